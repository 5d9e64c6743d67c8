/* Threads that are cancelled while they wait for a line of a connection: the stream is whole, and unlocked. */
#define _GNU_SOURCE
#include <pthread.h>

#include "pair.h"

enum { TIMES = 50, NAP_US = 400 };

static void *waits_for_a_line(void *at)
{
	char line[100];

	if (fgets(line, sizeof(line), at))
		puts("a line");
	return at;
}

int main(void)
{
	char line[100], own[100];
	FILE *in, *out;
	int ends[2];

	connects(ends);
	in = fdopen(ends[1], "r");
	out = fdopen(ends[0], "w");
	for (int i = 0; i < TIMES; i++) {
		pthread_t thread;
		void *result;

		pthread_create(&thread, NULL, waits_for_a_line, in);
		usleep(i % 5 * NAP_US);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		if (result != PTHREAD_CANCELED)
			die("not cancelled", i);
		snprintf(own, sizeof(own), "line %d\n", i);
		if (fputs(own, out) < 0 || fflush(out) || !fgets(line, sizeof(line), in) || strcmp(line, own))
			die("lost", i);
	}
	puts("all there");
	return 0;
}
