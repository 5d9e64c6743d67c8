/* A connection whose ends cannot both have a ring yet. The program says so, and goes on once it is told to: they can
   then, and have one. The first word: `small`, one end reads in small pieces what the other one sends as a whole, so it
   is busy first; or `full`, another connection has the memory. */
#include "pair.h"

static void one_is_busy(const int ends[2])
{
	enum { BYTES = 40 };
	char sent[BYTES];

	memset(sent, 'x', BYTES);
	if (send(ends[1], sent, BYTES, 0) != BYTES)
		die("send", 0);
	for (int i = 0; i < BYTES; i++) {
		char one = 0;

		if (recv(ends[0], &one, 1, 0) != 1 || one != 'x')
			die("recv", i);
	}
	halts("none yet");
}

static void another_has_it(const int ends[2])
{
	int others[2];

	opens(others);
	talks_until(others, 2);
	talks(ends);
	halts("none yet");
	close(others[0]);
	close(others[1]);
}

int main(int argc, char **argv)
{
	int ends[2];

	opens(ends);
	if (!strcmp(argv[argc - 1], "small"))
		one_is_busy(ends);
	else
		another_has_it(ends);
	talks_until(ends, 2);
	if (getenv("LD_PRELOAD") && rings() != 2)
		die("rings", rings());
	talks(ends);
	puts("all there");
	return 0;
}
