/*
 * Threads with PTHREAD_CANCEL_ASYNCHRONOUS are cancelled while they send and receive, at any instruction.
 * Others go on with the connection, and close it.
 *
 *   cancelled_anywhere
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40, TRIPS = 200, BYTES = 100, PATIENCE_S = 20 };

static int s;
static atomic_ulong trips;

static _Noreturn void die(const char *what, long a)
{
	printf("%s: %ld, %s\n", what, a, strerror(errno));
	exit(1);
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

static void *talk(void *unused)
{
	char bytes[BYTES] = { 0 };

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	while (send(s, bytes, BYTES, MSG_NOSIGNAL) == BYTES && recv(s, bytes, BYTES, MSG_WAITALL) == BYTES)
		trips++;
	return unused;
}

static void serve_and_connect(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	if (fork() == 0)
		echo(listener);
	close(listener);
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (void *)&at, sizeof(at)))
		die("connect", 0);
}

int main(void)
{
	unsigned seed = getpid();
	char buffer[4096];

	for (int round = 0; round < ROUNDS; round++) {
		unsigned long before = trips;
		pthread_t thread;
		void *result;
		ssize_t n;

		alarm(PATIENCE_S);
		serve_and_connect();
		pthread_create(&thread, NULL, talk, NULL);
		while (trips < before + TRIPS)
			sched_yield();
		usleep(rand_r(&seed) % 2000);
		if (pthread_cancel(thread) || pthread_join(thread, &result) || result != PTHREAD_CANCELED)
			die("cancel", round);
		while ((n = recv(s, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
			;
		if (n == 0 || errno != EAGAIN)
			die("recv", round);
		shutdown(s, SHUT_WR);
		while ((n = recv(s, buffer, sizeof(buffer), 0)) > 0)
			;
		if (n < 0)
			die("the end", round);
		close(s);
		wait(NULL);
	}
	puts("all there");
	return 0;
}
