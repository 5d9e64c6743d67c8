/*
 * A handler leaves a call by siglongjmp, at any moment of it: a timeout as programs had it before there
 * were others. The connection, and the set, go on as if the call had been interrupted.
 *
 *   jumps recv|waitall|poll|epoll [thread]
 *
 * A forked child echoes. After each jump one byte goes there and back; thread: another thread reads it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { ROUNDS = 6000, LONGEST_US = 90 };

static sigjmp_buf before;
static volatile sig_atomic_t may_jump;
static int s, set;
static pid_t child;

static void die(const char *what, int round)
{
	printf("%s in round %d: %s\n", what, round, strerror(errno));
	if (child)
		kill(child, SIGKILL);
	exit(1);
}

static void handler(int signal)
{
	(void)signal;
	if (!may_jump)
		return;
	may_jump = 0;
	siglongjmp(before, 1);
}

static void echo(int listener)
{
	char buffer[4096];
	ssize_t n;
	int c = accept(listener, NULL, NULL);

	close(listener);
	while ((n = recv(c, buffer, sizeof(buffer), 0)) > 0)
		if (send(c, buffer, n, MSG_NOSIGNAL) != n)
			break;
	_exit(0);
}

/* Whatever it returns is wrong: nothing comes. */
static void call(const char *way, int round)
{
	char buffer[10];
	struct pollfd one = { .fd = s, .events = POLLIN };
	struct epoll_event event;

	if (!strcmp(way, "recv"))
		recv(s, buffer, sizeof(buffer), 0);
	else if (!strcmp(way, "waitall"))
		recv(s, buffer, sizeof(buffer), MSG_WAITALL);
	else if (!strcmp(way, "poll"))
		poll(&one, 1, -1);
	else
		epoll_wait(set, &event, 1, -1);
	die("the call came back", round);
}

static void *read_one(void *at)
{
	ssize_t n;

	do {
		n = recv(s, at, 1, 0);
	} while (n < 0 && errno == EINTR && may_jump);
	if (n != 1)
		*(char *)at = 0;
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval patience = { .tv_sec = 10 };
	struct epoll_event event = { .events = EPOLLIN };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	volatile int round;

	if (argc < 2 || bind(listener, (void *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	child = fork();
	if (!child)
		echo(listener);
	close(listener);
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (void *)&at, len))
		die("connect", 0);
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	set = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(set, EPOLL_CTL_ADD, s, &event);
	for (int i = 0; i < 300; i++) {
		char byte = 'w';
		if (send(s, &byte, 1, 0) != 1 || recv(s, &byte, 1, 0) != 1)
			die("warm", i);
	}
	signal(SIGALRM, handler);
	for (round = 0; round < ROUNDS; round++) {
		char sent = '0' + round % 10, got = 0;
		if (!sigsetjmp(before, 1)) {
			struct itimerval soon = { .it_value.tv_usec = 1 + round % LONGEST_US };
			may_jump = 1;
			setitimer(ITIMER_REAL, &soon, NULL);
			call(argv[1], round);
		}
		if (send(s, &sent, 1, 0) != 1)
			die("send", round);
		if (!strcmp(argv[1], "epoll") && epoll_wait(set, &event, 1, 10000) != 1)
			die("epoll_wait", round);
		if (argc > 2) {
			pthread_t thread;
			pthread_create(&thread, NULL, read_one, &got);
			pthread_join(thread, NULL);
		} else {
			read_one(&got);
		}
		if (got != sent)
			die("not what was sent", round);
	}
	kill(child, SIGKILL);
	puts("all there");
	return 0;
}
