/*
 * A one-shot registration that was told of, whether by a ring or by TCP, tells of nothing until it is armed
 * again: not of an end either, and whoever else looks at the set.
 *
 *   spent fork      a forked child has the set, too
 *   spent vfork     a program was started with the set
 *   spent poll      somebody polls the set
 *   spent nest      the set is in another set
 *   spent child     a forked child arms it again and takes what comes, then this process does
 */
#include "peer.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum { TRIPS = 300, SOON_MS = 5000 };

static int fd, set, round_of;
static struct epoll_event asked = { .events = EPOLLIN | EPOLLONESHOT | EPOLLRDHUP, .data.u64 = 77 };

static void arm(void)
{
	if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &asked))
		die("arm", round_of);
}

static void take(unsigned events)
{
	struct epoll_event told[2] = { { 0 } };
	int n = epoll_wait(set, told, 2, SOON_MS);

	if (n != 1 || told[0].events != events || told[0].data.u64 != 77)
		die("told", n == 1 ? (long)told[0].events : n - 100);
}

static void tells_nothing(int ms)
{
	struct epoll_event told[2] = { { 0 } };

	if (epoll_wait(set, told, 2, ms))
		die("told what is spent", told[0].events);
}

static void trip(void)
{
	char byte;

	if (send(fd, "x", 1, MSG_NOSIGNAL) != 1)
		die("send", round_of);
	take(EPOLLIN);
	if (recv(fd, &byte, 1, 0) != 1 || byte != 'x')
		die("recv", round_of);
}

static void looks_on(const char *way)
{
	struct epoll_event told;
	struct pollfd one = { set, POLLIN, 0 };
	int outer;

	if (!strcmp(way, "poll") && poll(&one, 1, 0))
		die("polled", one.revents);
	if (strcmp(way, "nest"))
		return;
	outer = epoll_create1(0);
	told.events = EPOLLIN;
	if (epoll_ctl(outer, EPOLL_CTL_ADD, set, &told) || epoll_wait(outer, &told, 1, 0))
		die("nested", 0);
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "fork";
	struct pollfd one = { .events = 0 };
	pid_t child = 0;

	for (round_of = 0; round_of < 8; round_of++) {
		int status = 0;

		fd = echoing_peer();
		set = epoll_create1(!strcmp(way, "vfork") ? 0 : EPOLL_CLOEXEC);
		if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &asked))
			die("add", 0);
		trip();
		for (int i = 0; i < TRIPS; i++) {
			arm();
			tells_nothing(0);
			trip();
		}
		if (!strcmp(way, "fork") || !strcmp(way, "child"))
			child = fork();
		if (!child && !strcmp(way, "child")) {
			arm();
			trip();
			tells_nothing(10);
			_exit(0);
		}
		if (!strcmp(way, "fork") && !child)
			for (;;)
				pause();
		if (!strcmp(way, "child")) {
			if (waitpid(child, &status, 0) != child || status)
				die("child", status);
			tells_nothing(10);
			arm();
			trip();
		}
		if (!strcmp(way, "vfork") && vfork() == 0) {
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		looks_on(way);
		shutdown(fd, SHUT_WR);
		one.fd = fd;
		if (poll(&one, 1, SOON_MS) != 1 || one.revents != POLLHUP)
			die("poll", one.revents);
		tells_nothing(30);
		arm();
		take(EPOLLIN | EPOLLHUP | EPOLLRDHUP);
		tells_nothing(0);
		close(set);
		close(fd);
		if (!strcmp(way, "fork")) {
			kill(child, SIGKILL);
			waitpid(child, NULL, 0);
		}
		child = 0;
	}
	puts("all there");
	return 0;
}
