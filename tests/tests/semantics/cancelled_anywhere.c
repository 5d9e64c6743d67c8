/*
 * Threads with PTHREAD_CANCEL_ASYNCHRONOUS are cancelled while they send and receive, at any instruction.
 * Others go on with the connection, and close it.
 *
 *   cancelled_anywhere
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "peer.h"

enum { ROUNDS = 40, TRIPS = 200, BYTES = 100, PATIENCE_S = 20 };

static int s;
static atomic_ulong trips;

static void *talk(void *unused)
{
	char bytes[BYTES] = { 0 };

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	while (send(s, bytes, BYTES, MSG_NOSIGNAL) == BYTES && recv(s, bytes, BYTES, MSG_WAITALL) == BYTES)
		trips++;
	return unused;
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
		s = echoing_peer();
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
