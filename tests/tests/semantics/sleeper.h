/* A thread that calls, and another one that acts once it sleeps there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int waiter_tid;

static _Noreturn void die(const char *what, long a)
{
	printf("%s: %ld, %s\n", what, a, strerror(errno));
	exit(1);
}

/* Until the thread that calls sleeps there, or has come back and waits for this one. */
static void until_it_sleeps(void)
{
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", waiter_tid);
	for (int seen = 0; seen < 3; usleep(1000)) {
		FILE *file = fopen(path, "r");

		if (!file || !fgets(line, sizeof(line), file))
			die(path, 0);
		fclose(file);
		seen = strstr(line, ") S ") ? seen + 1 : 0;
	}
}
