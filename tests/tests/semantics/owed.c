/* Closes many connections at once, and opens others now and then: between these steps it says so, and goes on when it is told to. */
#include "pair.h"

enum { MANY = 250, LATER = 50 };

int main(void)
{
	int ends[MANY][2], last[2];

	for (int i = 0; i < MANY; i++) {
		opens(ends[i]);
		talks(ends[i]);
	}
	for (int tries = 0; tries < 200 && getenv("LD_PRELOAD") && rings() < 2 * MANY; tries++) {
		usleep(5000);
		for (int i = 0; i < MANY; i++)
			talks(ends[i]);
	}
	halts("many");
	for (int i = 0; i < MANY; i++) {
		close(ends[i][0]);
		close(ends[i][1]);
	}
	halts("closed");
	for (int i = 0; i < LATER; i++) {
		opens(last);
		close(last[0]);
		close(last[1]);
		usleep(20000);
	}
	halts("others");
	puts("all there");
	return 0;
}
