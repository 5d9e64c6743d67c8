/* Connections that one end ends just when they are to get a ring, and receives on. It keeps them until it is told
   to end. */
#include "pair.h"

enum { CONNECTIONS = 40, MESSAGES = 8, BYTES = 64, LATE = 4, NAP_US = 1000 };

static void says(int from, int to)
{
	char bytes[BYTES] = { 0 };

	if (send(from, bytes, BYTES, 0) != BYTES || recv(to, bytes, BYTES, MSG_WAITALL) != BYTES)
		die("bytes", from);
}

int main(void)
{
	int ends[2];

	for (int i = 0; i < CONNECTIONS; i++) {
		opens(ends);
		for (int message = 0; message < MESSAGES; message++) {
			says(ends[0], ends[1]);
			says(ends[1], ends[0]);
		}
		/* The broker answers meanwhile, and the library hears of it in a later call. */
		usleep(NAP_US);
		if (shutdown(ends[0], SHUT_WR))
			die("shutdown", i);
		for (int message = 0; message < LATE; message++) {
			usleep(NAP_US);
			says(ends[1], ends[0]);
		}
	}
	puts("all there");
	fflush(stdout);
	return getchar() == EOF;
}
