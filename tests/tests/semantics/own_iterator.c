/*
 * A program that has dl_iterate_phdr itself, and finds libc's as it is called first.
 *
 *   own_iterator
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>

#include "peer.h"

typedef int visit(struct dl_phdr_info *info, size_t size, void *data);

static int calls;

int dl_iterate_phdr(visit *visitor, void *data)
{
	static int (*libcs)(visit *visitor, void *data);

	calls++;
	if (!libcs)
		libcs = (int (*)(visit *, void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
	return libcs(visitor, data);
}

static int counts(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)info, (void)size;
	++*(int *)data;
	return 0;
}

int main(void)
{
	char bytes[100] = { 0 };
	int s = echoing_peer(), objects = 0;

	for (int i = 0; i < 1000; i++)
		if (send(s, bytes, 100, MSG_NOSIGNAL) != 100 || recv(s, bytes, 100, MSG_WAITALL) != 100)
			die("a round trip", i);
	if (dl_iterate_phdr(counts, &objects) || objects < 3 || calls != 1)
		die("objects", objects);
	close(s);
	puts("all there");
	return 0;
}
