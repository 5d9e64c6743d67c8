// Calls on sockets that go past libc, as some runtimes make them: an object for dlopen, or part
// of a program's own text.
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static long raw(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result < 0) {
    errno = (int)-result;
    return -1;
  }
  return result;
}

int unseen_poll(struct pollfd *fds, unsigned long count, int timeout_ms) {
  return (int)raw(SYS_poll, (long)fds, (long)count, timeout_ms, 0, 0, 0);
}

int unseen_epoll_ctl(int set, int what, int fd, struct epoll_event *event) {
  return (int)raw(SYS_epoll_ctl, set, what, fd, (long)event, 0, 0);
}

int unseen_epoll_wait(int set, struct epoll_event *events, int room, int timeout_ms) {
  return (int)raw(SYS_epoll_wait, set, (long)events, room, timeout_ms, 0, 0);
}

long unseen_recv(int fd, void *to, unsigned long len, int flags) {
  return raw(SYS_recvfrom, fd, (long)to, (long)len, flags, 0, 0);
}

long unseen_send(int fd, const void *from, unsigned long len, int flags) {
  return raw(SYS_sendto, fd, (long)from, (long)len, flags, 0, 0);
}

static int uring = -1;
static struct io_uring_params shape;
static char *sent, *done;
static struct io_uring_sqe *requests;

// 0, or -1 where the kernel refuses io_uring.
int unseen_uring_open(void) {
  uring = (int)raw(SYS_io_uring_setup, 8, (long)&shape, 0, 0, 0, 0);
  if (uring < 0)
    return -1;
  sent = mmap(0, shape.sq_off.array + shape.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED,
              uring, IORING_OFF_SQ_RING);
  done = mmap(0, shape.cq_off.cqes + shape.cq_entries * sizeof(struct io_uring_cqe),
              PROT_READ | PROT_WRITE, MAP_SHARED, uring, IORING_OFF_CQ_RING);
  requests = mmap(0, shape.sq_entries * sizeof *requests, PROT_READ | PROT_WRITE, MAP_SHARED,
                  uring, IORING_OFF_SQES);
  return sent == MAP_FAILED || done == MAP_FAILED || requests == MAP_FAILED ? -1 : 0;
}

// Waits until `fd` can be read. The caller's alarm ends one that never does.
int unseen_uring_wait(int fd) {
  unsigned *tail = (unsigned *)(sent + shape.sq_off.tail);
  unsigned at = *tail & *(unsigned *)(sent + shape.sq_off.ring_mask);
  memset(&requests[at], 0, sizeof requests[at]);
  requests[at].opcode = IORING_OP_POLL_ADD;
  requests[at].fd = fd;
  requests[at].poll32_events = POLLIN;
  ((unsigned *)(sent + shape.sq_off.array))[at] = at;
  __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
  if (raw(SYS_io_uring_enter, uring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1)
    return -1;
  unsigned *head = (unsigned *)(done + shape.cq_off.head);
  __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
  return 1;
}
