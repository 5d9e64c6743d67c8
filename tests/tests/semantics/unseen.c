// unseen listen                        prints its port, echoes one connection
// unseen connect PORT SEEN UNSEEN HOW  exchanges so many numbers, waiting through libc, and then so
//                                      many, waiting HOW: seen, poll, epoll, send, aio, uring
// With UNSEEN_OBJECT the unseen calls come from that object, loaded when they are needed.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 20000 };

static const char *how;
static int set = -1;
static aio_context_t context;

#ifdef UNSEEN_OBJECT
static void *object;
#define UNSEEN(name) ((__typeof__(&name))dlsym(object, #name))
#else
#define UNSEEN(name) name
#endif
int unseen_poll(struct pollfd *, unsigned long, int);
int unseen_epoll_ctl(int, int, int, struct epoll_event *);
int unseen_epoll_wait(int, struct epoll_event *, int, int);
long unseen_send(int, const void *, unsigned long, int);
int unseen_uring_open(void);
int unseen_uring_wait(int);

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int is(const char *name) { return !strcmp(how, name); }

static void begin(int fd) {
  if (is("seen"))
    return;
#ifdef UNSEEN_OBJECT
  if (!is("aio") && !(object = dlopen(getenv("UNSEEN_OBJECT"), RTLD_NOW))) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
#endif
  if (is("epoll")) {
    struct epoll_event event = {.events = EPOLLIN};
    set = epoll_create1(0);
    if (UNSEEN(unseen_epoll_ctl)(set, EPOLL_CTL_ADD, fd, &event))
      fail("epoll_ctl");
  }
  if (is("aio") && syscall(SYS_io_setup, 8, &context))
    fail("io_setup");
  if (is("uring") && UNSEEN(unseen_uring_open)()) {
    printf("refused\n");
    exit(0);
  }
}

// Whether `fd` can be read before the time is over.
static int wait_for(int fd, int is_seen) {
  struct pollfd one = {fd, POLLIN, 0};
  struct epoll_event event;
  if (is_seen || is("seen") || is("send"))
    return poll(&one, 1, TIMEOUT_MS) == 1;
  if (is("poll"))
    return UNSEEN(unseen_poll)(&one, 1, TIMEOUT_MS) == 1;
  if (is("epoll"))
    return UNSEEN(unseen_epoll_wait)(set, &event, 1, TIMEOUT_MS) == 1;
  if (is("uring"))
    return UNSEEN(unseen_uring_wait)(fd) == 1;
  struct iocb request = {.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = fd, .aio_buf = POLLIN};
  struct iocb *requests = &request;
  struct io_event done;
  struct timespec timeout = {TIMEOUT_MS / 1000, 0};
  return syscall(SYS_io_submit, context, 1L, &requests) == 1 &&
         syscall(SYS_io_getevents, context, 1L, 1L, &done, &timeout) == 1;
}

static void exchange(int fd, unsigned number, int is_seen) {
  ssize_t ret = !is_seen && is("send") ? UNSEEN(unseen_send)(fd, &number, 4, 0)
                                       : send(fd, &number, 4, 0);
  if (ret != 4)
    fail("send");
  unsigned got = 0;
  for (size_t have = 0; have < 4;) {
    ret = recv(fd, (char *)&got + have, 4 - have, 0);
    if (ret > 0) {
      have += ret;
    } else if (ret == 0 || errno != EAGAIN) {
      fail("recv");
    } else if (!wait_for(fd, is_seen)) {
      printf("no event in exchange %u\n", number);
      exit(1);
    }
  }
  if (got != number) {
    printf("%u came for %u\n", got, number);
    exit(1);
  }
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IONBF, 0);
  alarm(60);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof at;
  int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
  if (count == 2) {
    if (bind(fd, (void *)&at, len) || listen(fd, 5) || getsockname(fd, (void *)&at, &len))
      fail("listen");
    printf("port %d\n", ntohs(at.sin_port));
    fd = accept(fd, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char bytes[4096];
    for (ssize_t got; (got = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
      // The other end finds nothing yet, and has to wait.
      nanosleep(&(struct timespec){0, 100000}, NULL);
      if (send(fd, bytes, got, 0) != got)
        fail("echo");
    }
    return 0;
  }
  if (count != 6)
    return 2;
  at.sin_port = htons(atoi(words[2]));
  unsigned seen = atoi(words[3]), unseen = atoi(words[4]);
  how = words[5];
  if (connect(fd, (void *)&at, len) || fcntl(fd, F_SETFL, O_NONBLOCK))
    fail("connect");
  for (unsigned i = 0; i < seen; i++)
    exchange(fd, i, 1);
  begin(fd);
  for (unsigned i = seen; i < seen + unseen; i++)
    exchange(fd, i, 0);
  printf("all came\n");
  return 0;
}
