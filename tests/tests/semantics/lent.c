/*
 * A program with connections starts others, which inherit them, as they lack close-on-exec, and use none: they get
 * rings again once those have ended.
 *
 *   lent WAY [seldom|blocks|stays|writes]
 *
 * seldom: it asks a few times and does something else for a while. blocks: who answers sleeps in recv. stays: the program
 * that was started lives on for a while. writes: it sends a byte, which is the program's to do; then rings need not come back.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "pair.h"

extern char **environ;

static const char *how = "";
static char command[40] = "exit 0";

static int is_how(const char *word)
{
	return !strcmp(how, word);
}

/* Until the child is no copy of this program any more. */
static void await_program(pid_t child)
{
	char path[40], name[20] = "";

	sprintf(path, "/proc/%d/comm", child);
	while (strcmp(name, "sleep\n")) {
		FILE *file = fopen(path, "r");

		if (!file || !fgets(name, sizeof(name), file))
			die("comm", 0);
		fclose(file);
	}
}

/* Gives the child where that lives on. */
static pid_t starts(const char *way)
{
	char *words[] = { "/bin/sh", "-c", command, NULL };
	posix_spawnattr_t attributes;
	FILE *output;
	pid_t child = 0;
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
		if (posix_spawn(&child, *words, NULL, &attributes, words, environ))
			die("spawn", 0);
	} else {
		child = strcmp(way, "fork") ? vfork() : fork();
		if (!child) {
			execv(*words, words);
			_exit(1);
		}
	}
	if (is_how("stays"))
		await_program(child);
	if (child && !is_how("stays") && waitpid(child, &status, 0) != child)
		die("waitpid", 0);
	if (status)
		die(way, status);
	return child;
}

/* Of the end that this thread serves it knows nothing more than that it is ready, unless it blocks. */
static void *serves(void *at)
{
	int fd = *(int *)at, set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
	char bytes[500];
	ssize_t got;

	if (!is_how("blocks"))
		epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	for (;;) {
		if (!is_how("blocks") && epoll_wait(set, &event, 1, -1) != 1) {
			if (errno == EINTR)
				continue;
			die("epoll_wait", 0);
		}
		got = recv(fd, bytes, sizeof(bytes), is_how("blocks") ? 0 : MSG_DONTWAIT);
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
	int ends[2], times;

	if (count > 2)
		how = words[2];
	times = is_how("seldom") ? 10 : 200;
	opens(ends);
	if (is_how("stays"))
		strcpy(command, "exec sleep 4");
	if (is_how("writes"))
		sprintf(command, "printf x >&%d", ends[0]);
	pthread_create(&thread, NULL, serves, &ends[1]);
	asks_until_rings(ends[0], times);
	for (int turn = 0; turn < 2; turn++) {
		pid_t child;

		/* Until who blocks sleeps in the kernel. */
		usleep(20000);
		child = starts(words[1]);
		if (is_how("writes")) {
			char byte = 0;

			if (recv(ends[0], &byte, 1, 0) != 1 || byte != 'x')
				die("not what the program wrote", byte);
			asks(ends[0], 500);
			/* Whatever it was offered meanwhile it is by now. */
			usleep(2500000);
			asks(ends[0], 500);
			continue;
		}
		/* Who sleeps in a call, or what a child did that forked, is seen as bytes go by TCP. */
		for (int i = 0; i < 1000 && getenv("LD_PRELOAD") && rings() == 2; i++)
			asks(ends[0], 1);
		if (getenv("LD_PRELOAD") && rings() == 2)
			die("a ring that the program could not see", turn);
		while (is_how("stays") && waitpid(child, NULL, WNOHANG) == 0) {
			asks(ends[0], times);
			usleep(1000);
			if (getenv("LD_PRELOAD") && rings() == 2 && waitpid(child, NULL, WNOHANG) == 0)
				die("a ring beside the program", turn);
		}
		asks_until_rings(ends[0], times);
	}
	shutdown(ends[0], SHUT_WR);
	pthread_join(thread, NULL);
	puts("all there");
	return 0;
}
