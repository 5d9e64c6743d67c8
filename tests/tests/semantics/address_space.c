/*
 * A program whose address space has a limit has as much of it left as by TCP, but for an eighth: 40 connections, both
 * ends here. Prints what could be had. All of them talk once more at the end: a channel that the broker gave late carries
 * something then.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "pair.h"

enum { CONNECTIONS = 40, LIMIT_MIB = 256, WANTED_MIB = 160 };

static void *nothing(void *none)
{
	return none;
}

int main(void)
{
	struct rlimit limit = { (rlim_t)LIMIT_MIB << 20, (rlim_t)LIMIT_MIB << 20 };
	static int ends[CONNECTIONS][2];
	pthread_t thread;
	void *memory;

	setrlimit(RLIMIT_AS, &limit);
	for (int i = 0; i < CONNECTIONS; i++)
		meets(ends[i]);
	memory = mmap(NULL, (size_t)WANTED_MIB << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("%d MiB of %d: %s\n", WANTED_MIB, LIMIT_MIB, memory == MAP_FAILED ? "none" : "mapped");
	printf("thread: %d\n", pthread_create(&thread, NULL, nothing, NULL));
	for (int i = 0; i < CONNECTIONS; i++)
		talks(ends[i]);
	return 0;
}
