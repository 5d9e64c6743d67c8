/*
 * A program forbids itself all system calls but those that it makes, once its connection stands.
 *
 *   sandboxed prctl|seccomp|counter|asks
 *
 * It talks until a line comes on standard input, and then begins. By `counter` it forbids itself to read the processor's
 * counter instead.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(number)                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),  \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static int round_trips(int s, int count)
{
	for (int i = 0; i < count; i++) {
		char sent = '0' + i % 10, got = 0;
		if (write(s, &sent, 1) != 1 || read(s, &got, 1) != 1 || got != sent)
			return 0;
	}
	return 1;
}

static void forbid(const char *how)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(__NR_read),
		ALLOW(__NR_write),
		ALLOW(__NR_close),
		ALLOW(__NR_exit_group),
		ALLOW(__NR_rt_sigreturn),
		/* A connection more. */
		ALLOW(__NR_socket),
		ALLOW(__NR_connect),
		ALLOW(__NR_accept),
		/* A descriptor goes there and back. */
		ALLOW(__NR_sendmsg),
		ALLOW(__NR_recvmsg),
		/* A child. */
		ALLOW(__NR_clone),
		ALLOW(__NR_set_robust_list),
#if defined(__GLIBC_MINOR__) && __GLIBC_MINOR__ >= 38
		/* Around its fork. */
		ALLOW(__NR_rt_sigprocmask),
#endif
		ALLOW(__NR_wait4),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(*filter), .filter = filter };
	int ret;

	if (!strcmp(how, "counter")) {
		if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV))
			die("PR_SET_TSC");
		return;
	}
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (!strcmp(how, "prctl"))
		ret = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
	else
		ret = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
	if (ret)
		die("seccomp");
}

/* A connection that begins in the sandbox. */
static int begins(int listener, const struct sockaddr_in *at)
{
	int near = socket(AF_INET, SOCK_STREAM, 0), far;
	char byte = 'x';

	if (connect(near, (const void *)at, sizeof(*at)))
		return 0;
	far = accept(listener, NULL, NULL);
	for (int i = 0; i < 200; i++)
		if (write(near, &byte, 1) != 1 || read(far, &byte, 1) != 1)
			return 0;
	return !close(near) && read(far, &byte, 1) == 0 && !close(far);
}

/* The connection by a number that came in a message. */
static int passes(int s, const int pair[2])
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	char byte = 'x';
	struct iovec piece = { &byte, 1 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	int other;

	memcpy(CMSG_DATA(&control.head), &s, sizeof(s));
	if (sendmsg(pair[0], &message, 0) != 1 || recvmsg(pair[1], &message, 0) != 1)
		return 0;
	memcpy(&other, CMSG_DATA(&control.head), sizeof(other));
	return other != s && round_trips(other, 100) && !close(other) && round_trips(s, 100);
}

static int forks(int s)
{
	int status = 1;

	if (!fork())
		_exit(!round_trips(s, 10));
	return wait(&status) > 0 && status == 0 && round_trips(s, 10);
}

/* What libraries ask before they make a filter; none of it may end the rings. */
static void asks_what_there_is(void)
{
	unsigned action = SECCOMP_RET_ALLOW;

	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) ||
	    !syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) || errno != EINVAL ||
	    !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, NULL) || errno != EFAULT ||
	    !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) || errno != EFAULT)
		die("what there is");
}

/* Whether a line came on standard input. */
static int is_told(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&input, 1, 0) != 0;
}

/* Its end is the process's: killed, or 0. */
static _Noreturn void client(const struct sockaddr_in *at, const char *how)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(own);
	int s = socket(AF_INET, SOCK_STREAM, 0), listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, pair[2];

	if (bind(listener, (void *)&own, len) || listen(listener, 1) || getsockname(listener, (void *)&own, &len))
		die("listen");
	if (connect(s, (const void *)at, sizeof(*at)) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("connect");
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* Until some of it went by ring. On a busy machine the broker answers late. */
	while (!is_told()) {
		if (!round_trips(s, 100))
			die("before the ring");
		usleep(1000);
	}
	if (!round_trips(s, 1000))
		die("before");
	asks_what_there_is();
	if (!strcmp(how, "asks")) {
		round_trips(s, 5000);
		close(s);
		exit(0);
	}
	forbid(how);
	if (!round_trips(s, 2000))
		_exit(1);
	if (!begins(listener, &own) || !passes(s, pair) || !forks(s))
		_exit(1);
	close(s);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), status = 0, s;
	char buffer[4096];
	ssize_t n;

	if (argc < 2 || bind(listener, (void *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (void *)&at, &len))
		die("listen");
	if (!fork()) {
		close(listener);
		client(&at, argv[1]);
	}
	s = accept(listener, NULL, NULL);
	while ((n = read(s, buffer, sizeof(buffer))) > 0)
		if (write(s, buffer, n) != n)
			die("write");
	wait(&status);
	if (WIFSIGNALED(status))
		printf("killed by signal %d\n", WTERMSIG(status));
	else
		puts(WEXITSTATUS(status) ? "a call failed" : "all there");
	return 0;
}
