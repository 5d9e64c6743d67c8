/*
 * Waits with a signal mask that is the thread's own, and with another one, beside talk.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "peer.h"

enum { TRIPS = 500, SHORT_MS = 30, LONG_MS = 20000, WAYS = 4 };

static int s, set;
static volatile int handled;

static void handle(int number)
{
	handled += number == SIGUSR1 || number == SIGALRM;
}

/* As epoll_wait returns. */
static int waits(int way, int ms, const sigset_t *mask)
{
	struct epoll_event event;
	struct pollfd one = { .fd = s, .events = POLLIN };
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	fd_set readable;
	int told;

	switch (way) {
	case 0: return epoll_pwait(set, &event, 1, ms, mask);
	case 1:
		told = syscall(SYS_epoll_pwait2, set, &event, 1, &time, mask, 8);
		return told < 0 && errno == ENOSYS ? epoll_pwait(set, &event, 1, ms, mask) : told;
	case 2: return ppoll(&one, 1, &time, mask);
	default:
		FD_ZERO(&readable);
		FD_SET(s, &readable);
		return pselect(s + 1, &readable, NULL, NULL, &time, mask);
	}
}

static void talks(int way, const sigset_t *mask)
{
	char bytes[100];

	for (int i = 0; i < TRIPS; i++) {
		memset(bytes, i, sizeof(bytes));
		if (send(s, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes))
			die("send", i);
		if (waits(way, LONG_MS, mask) != 1)
			die("waits", way);
		if (recv(s, bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes) || bytes[99] != (char)i)
			die("recv", i);
	}
}

static void interrupts(int way, const sigset_t *mask, const char *what)
{
	errno = 0;
	if (waits(way, LONG_MS, mask) != -1 || errno != EINTR || handled != 1)
		die(what, way);
	handled = 0;
}

int main(void)
{
	struct sigaction action = { .sa_handler = handle };
	struct itimerval soon = { .it_value.tv_usec = SHORT_MS * 1000 };
	struct epoll_event event = { .events = EPOLLIN };
	sigset_t none, one, more;

	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	sigemptyset(&none);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	/* These the kernel takes out. */
	more = one;
	sigaddset(&more, SIGKILL);
	sigaddset(&more, SIGSTOP);
	s = echoing_peer();
	set = epoll_create1(0);
	if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, s, &event))
		die("epoll_ctl", set);
	for (int round = 0; round < 3; round++)
		for (int way = 0; way < WAYS; way++) {
			talks(way, &none);
			setitimer(ITIMER_REAL, &soon, NULL);
			interrupts(way, &none, "a timer");

			sigprocmask(SIG_BLOCK, &one, NULL);
			talks(way, &one);
			talks(way, &more);
			raise(SIGUSR1);
			talks(way, &one);
			if (waits(way, SHORT_MS, &one) || waits(way, SHORT_MS, &more) || handled)
				die("a blocked signal", way);
			interrupts(way, &none, "a pending signal");
			talks(way, &none);
			sigprocmask(SIG_UNBLOCK, &one, NULL);

			/* Blocked while it waits alone. */
			setitimer(ITIMER_REAL, &soon, NULL);
			sigaddset(&more, SIGALRM);
			if (waits(way, 3 * SHORT_MS, &more) || handled != 1)
				die("a signal that was put off", way);
			sigdelset(&more, SIGALRM);
			handled = 0;
		}
	puts("all there");
	return 0;
}
