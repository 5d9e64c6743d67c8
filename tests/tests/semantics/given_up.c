/*
 * A thread waits on a connection, and another one gives its descriptor up: closes it, or puts another
 * connection in its place. The one that waits comes back, and no byte goes to the wrong connection.
 *
 *   given_up close recv|poll|select
 *   given_up dup2 recv
 *
 * A forked process has a thread for each connection. It tells the connection's number and counts on with
 * each byte that it gets.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 120, TRIPS = 100, PATIENCE_MS = 8000 };

struct told {
	uint64_t who, count;
};

static struct sockaddr_in at;
static pid_t child;
static const char *way;
static int s;
static atomic_ulong trips;
static atomic_int is_over;

static _Noreturn void die(const char *what, long a, long b)
{
	printf("%s: %ld %ld, %s\n", what, a, b, strerror(errno));
	if (child)
		kill(child, SIGKILL);
	exit(1);
}

static void *tell(void *arg)
{
	int fd = (int)(long)arg;
	struct told told = { 0, 0 };
	char byte;

	if (recv(fd, &told.who, sizeof(told.who), MSG_WAITALL) == sizeof(told.who))
		do {
			if (send(fd, &told, sizeof(told), MSG_NOSIGNAL) != sizeof(told))
				break;
			told.count++;
		} while (recv(fd, &byte, 1, 0) == 1);
	close(fd);
	return NULL;
}

static _Noreturn void serve(int listener)
{
	for (;;) {
		pthread_t thread;
		int fd = accept(listener, NULL, NULL);

		if (fd < 0 || pthread_create(&thread, NULL, tell, (void *)(long)fd))
			_exit(1);
		pthread_detach(thread);
	}
}

static int connection(void)
{
	static uint64_t who;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	who++;
	if (fd < 0 || connect(fd, (void *)&at, sizeof(at)) || send(fd, &who, sizeof(who), 0) != sizeof(who))
		die("connect", fd, 0);
	return fd;
}

/* Until there is something. */
static int waits(void)
{
	struct pollfd one = { .fd = s, .events = POLLIN };
	fd_set set;

	if (!strcmp(way, "poll"))
		return poll(&one, 1, -1) < 0 || one.revents & POLLNVAL ? -1 : 0;
	if (!strcmp(way, "select")) {
		FD_ZERO(&set);
		FD_SET(one.fd, &set);
		return select(one.fd + 1, &set, NULL, NULL, NULL) < 0 ? -1 : 0;
	}
	return 0;
}

/* Ends with the first error, or goes on with the connection that is there then. */
static void *hear(void *goes_on)
{
	struct told last = { 0, 0 }, told;

	for (;;) {
		ssize_t n = waits();

		if (n == 0)
			n = recv(s, &told, sizeof(told), 0);
		if (n <= 0 && !goes_on)
			break;
		if (n <= 0 && is_over)
			break;
		if (n < 0 && errno != EINTR && errno != EBADF && errno != ECONNRESET)
			die("recv", n, last.who);
		if (n <= 0)
			continue;
		if (n != sizeof(told))
			die("a part", n, last.who);
		if (told.who == last.who ? told.count != last.count + 1 : told.who < last.who || told.count)
			die("out of order", told.who * 1000000 + told.count, last.who * 1000000 + last.count);
		last = told;
		trips++;
		send(s, "", 1, MSG_NOSIGNAL);
	}
	is_over = 1;
	return NULL;
}

/* Until it is, or for too long. */
static void await(int (*is)(unsigned long), unsigned long what, const char *name, int round)
{
	struct timespec begun, now;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	while (!is(what)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 > PATIENCE_MS)
			die(name, round, trips);
		sched_yield();
	}
}

static int has_gone(unsigned long count)
{
	return trips >= count || is_over;
}

static int has_ended(unsigned long unused)
{
	(void)unused;
	return is_over;
}

static void close_it(unsigned *seed)
{
	for (int round = 0; round < ROUNDS; round++) {
		unsigned long before = trips;
		pthread_t thread;

		s = connection();
		is_over = 0;
		pthread_create(&thread, NULL, hear, NULL);
		await(has_gone, before + TRIPS, "no answers", round);
		usleep(rand_r(seed) % 500);
		close(s);
		await(has_ended, 0, "it waits on", round);
		pthread_join(thread, NULL);
	}
}

static void replace_it(unsigned *seed)
{
	pthread_t thread;

	s = connection();
	pthread_create(&thread, NULL, hear, &s);
	for (int round = 0; round < ROUNDS; round++) {
		int next;

		usleep(rand_r(seed) % 4000);
		next = connection();
		if (dup2(next, s) != s)
			die("dup2", next, s);
		close(next);
		if (round % 8 == 0)
			await(has_gone, trips + TRIPS, "no answers", round);
	}
	is_over = 1;
	shutdown(s, SHUT_RDWR);
	pthread_join(thread, NULL);
}

int main(int count, char **words)
{
	socklen_t len = sizeof(at);
	unsigned seed = getpid();
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (count != 3)
		return 2;
	way = words[2];
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)&at, sizeof(at)) || listen(listener, 128) ||
	    getsockname(listener, (void *)&at, &len))
		die("listen", 0, 0);
	child = fork();
	if (child == 0)
		serve(listener);
	close(listener);
	if (!strcmp(words[1], "close"))
		close_it(&seed);
	else
		replace_it(&seed);
	kill(child, SIGKILL);
	puts("all there");
	return 0;
}
