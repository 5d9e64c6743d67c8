/*
 * Another user passes on sockets that look as if bytes were left for them.
 *
 *   strangers FOLDER         prints whether the receiving call took longer than a moment
 *   strangers FOLDER lock    a thread of that user's holds the first socket's lock meanwhile
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SOCKETS = 20, MARK = 0x7ffffe57 };

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* A page that nobody ever gives: who reads it waits, and so does who sends from it. */
static void *missing_page(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range = (struct uffdio_range){(unsigned long)page, 4096};
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
		return NULL;
	return page;
}

static void *page;
static int holds_lock;

static void *sends_for_ever(void *s)
{
	send(*(int *)s, page, 4096, 0);
	return NULL;
}

static void stranger(struct sockaddr_un *to)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int l = socket(AF_INET, SOCK_STREAM, 0), u = socket(AF_UNIX, SOCK_STREAM, 0), mark = MARK;
	char control[CMSG_SPACE(SOCKETS * sizeof(int))];
	int sockets[SOCKETS];
	/* A forked child has none of its parent's. */
	if (holds_lock)
		page = missing_page();
	if (setuid(65534))
		die("setuid");
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, SOCKETS))
		die("listen");
	getsockname(l, (struct sockaddr *)&at, &len);
	for (int i = 0; i < SOCKETS; i++) {
		sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(sockets[i], (struct sockaddr *)&at, sizeof at))
			die("connect");
		setsockopt(sockets[i], IPPROTO_TCP, TCP_NOTSENT_LOWAT, &mark, sizeof mark);
	}
	if (holds_lock) {
		pthread_t sender;
		/* Its end lets go of the lock. */
		alarm(4);
		if (pthread_create(&sender, 0, sends_for_ever, sockets))
			die("thread");
		usleep(300000);
	}
	if (connect(u, (struct sockaddr *)to, sizeof *to))
		die("connect to the Unix socket");
	struct iovec one = {"x", 1};
	struct msghdr msg = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
			     .msg_controllen = sizeof control};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	*head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
				 .cmsg_len = CMSG_LEN(sizeof sockets)};
	memcpy(CMSG_DATA(head), sockets, sizeof sockets);
	if (sendmsg(u, &msg, 0) != 1)
		die("sendmsg");
	pause();
}

int main(int argc, char **argv)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char control[CMSG_SPACE(SOCKETS * sizeof(int))], byte;
	struct iovec one = {&byte, 1};
	struct msghdr msg = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
			     .msg_controllen = sizeof control};
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getuid() != 0) {
		printf("skipped: needs another user\n");
		return 0;
	}
	int l = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(at.sun_path, sizeof at.sun_path, "%s/strangers.sock", argv[1]);
	if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, 1) || chmod(at.sun_path, 0777) ||
	    chmod(argv[1], 0755))
		die(at.sun_path);
	holds_lock = argc > 2;
	if (holds_lock && !missing_page()) {
		printf("skipped: needs userfaultfd\n");
		return 0;
	}
	pid_t pid = fork();
	if (!pid)
		stranger(&at);
	int s = accept(l, 0, 0);
	if (recv(s, &byte, 1, MSG_PEEK) != 1)
		die("peek");
	double began = now();
	if (recvmsg(s, &msg, MSG_DONTWAIT) != 1)
		die("recvmsg");
	/* An answer that does not come is waited for 2 s and longer. */
	printf(now() - began < 1.5 ? "at once\n" : "late\n");
	kill(pid, 9);
	return 0;
}
