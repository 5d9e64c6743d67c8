/* A program tries to take pages out of the memory that it shares with its peer, who would wait for it. */
#include <sys/mman.h>

#include "pair.h"

/* How often; with `is_taken`, every one has to refuse that. */
static int mapped(int is_taken)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;

	if (!maps)
		die("maps", 0);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from, to;

		if (!strstr(line, "memfd:yasmin-channel") || sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		count++;
		if (is_taken && (!madvise((void *)from, to - from, MADV_REMOVE) || errno != EPERM))
			die("pages were taken", errno);
	}
	fclose(maps);
	return count;
}

int main(void)
{
	enum { TRIES = 1000 };
	int ends[2], tries = 0;

	connects(ends);
	/* An end that has mapped it alone does not use it yet. */
	while (mapped(0) < 2 && tries++ < TRIES)
		talks(ends);
	talks(ends);
	if (mapped(1) != 2)
		die("mappings", mapped(0));
	talks(ends);
	puts("all there");
	return 0;
}
