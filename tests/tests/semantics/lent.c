/*
 * A program with connections starts others, which inherit them, as they lack close-on-exec, and use none: they get
 * rings again once those have ended.
 *
 *   lent WAY [seldom]
 *
 * seldom: it asks a few times and does something else for a while.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "pair.h"

extern char **environ;

static void starts(const char *way)
{
	char *words[] = { "/bin/sh", "-c", "exit 0", NULL };
	posix_spawnattr_t attributes;
	FILE *output;
	pid_t child;
	int status = 0;

	if (!strcmp(way, "system")) {
		status = system("exit 0");
	} else if (!strcmp(way, "popen")) {
		char line[20] = "";

		output = popen("echo here", "r");
		if (!output || !fgets(line, sizeof(line), output) || strcmp(line, "here\n"))
			die("popen", 0);
		status = pclose(output);
	} else if (!strcmp(way, "spawn")) {
		posix_spawnattr_init(&attributes);
		if (posix_spawn(&child, *words, NULL, &attributes, words, environ) || waitpid(child, &status, 0) != child)
			die("spawn", 0);
	} else {
		child = vfork();
		if (!child) {
			execv(*words, words);
			_exit(1);
		}
		if (waitpid(child, &status, 0) != child)
			die("vfork", 0);
	}
	if (status)
		die(way, status);
}

/* Of the end that this thread serves it knows nothing more than that it is ready. */
static void *serves(void *at)
{
	int fd = *(int *)at, set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
	char bytes[500];
	ssize_t got;

	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	for (;;) {
		if (epoll_wait(set, &event, 1, -1) != 1) {
			if (errno == EINTR)
				continue;
			die("epoll_wait", 0);
		}
		got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (got == 0)
			return NULL;
		if (got < 0 && errno == EAGAIN)
			continue;
		if (got < 0 || send(fd, bytes, got, 0) != got)
			die("serve", got);
	}
}

static void asks(int fd, int times)
{
	static unsigned int seed = 1;
	unsigned char bytes[300], back[300];

	for (int i = 0; i < times; i++) {
		int len = i % sizeof(bytes) + 1;

		for (int at = 0; at < len; at++)
			bytes[at] = (seed = seed * 1103515245 + 12345) >> 20;
		if (send(fd, bytes, len, 0) != len || recv(fd, back, len, MSG_WAITALL) != len || memcmp(bytes, back, len))
			die("differ", i);
	}
}

static void asks_until_rings(int fd, int times)
{
	enum { TRIES = 4000, NAP_US = 5000 };

	for (int i = 0; i < TRIES && getenv("LD_PRELOAD") && rings() < 2; i++) {
		usleep(NAP_US);
		asks(fd, times);
	}
	if (getenv("LD_PRELOAD") && rings() < 2)
		die("no rings", rings());
	asks(fd, 500);
}

int main(int count, char **words)
{
	pthread_t thread;
	int ends[2], times = count > 2 ? 10 : 200;

	opens(ends);
	pthread_create(&thread, NULL, serves, &ends[1]);
	asks_until_rings(ends[0], times);
	for (int turn = 0; turn < 2; turn++) {
		starts(words[1]);
		if (getenv("LD_PRELOAD") && rings() == 2)
			die("a ring that the program could not see", turn);
		asks_until_rings(ends[0], times);
	}
	shutdown(ends[0], SHUT_WR);
	pthread_join(thread, NULL);
	puts("all there");
	return 0;
}
