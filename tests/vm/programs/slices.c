// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What the driver of shared memory (kmod/region.c) gives and refuses.
 *
 *   slices DEVICE identity              the region's beginning, as text and hexadecimal
 *   slices DEVICE limits                what must be refused is
 *   slices DEVICE write OFFSET TEXT     into a slice of 64 KiB
 *   slices DEVICE read OFFSET           from one
 *   slices DEVICE keep OFFSET           holds one, counts in it until its memory is a copy, and says what it saw
 *   slices RESOURCE scribble SECONDS    anything over all of a PCI device's memory, again and again
 *
 * Exits with 1 at what is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../kmod/region.h"

#define SLICE (64 << 10)

static int device;

static void wrong(const char *what)
{
	fprintf(stderr, "slices: %s (%s)\n", what, strerror(errno));
	exit(1);
}

static int get(uint64_t offset, uint64_t bytes)
{
	struct yasmin_slice slice = { offset, bytes, offset + 7, 0 };

	return ioctl(device, YASMIN_SLICE_GET, &slice);
}

static char *map(int fd, size_t bytes, size_t offset)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
}

static void refused(const char *what, int got, int error)
{
	if (got != -1 || errno != error)
		wrong(what);
}

static void limits(void)
{
	struct yasmin_slice slice = { 0 };
	char *at, *half;
	int fd, status;

	refused("the first page", get(0, 4096), EINVAL);
	refused("half a page", get(4096, 100), EINVAL);
	refused("no page's offset", get(4097, 4096), EINVAL);
	refused("nothing", get(4096, 0), EINVAL);
	refused("beyond the end", get(4096, 1ull << 40), EINVAL);
	refused("around the end", get(4096, -4096ull), EINVAL);
	refused("behind the end", get(1ull << 40, 4096), EINVAL);
	fd = get(1 << 20, SLICE);
	if (fd < 0)
		wrong("a slice");
	refused("the same again", get(1 << 20, SLICE), EBUSY);
	refused("one that overlaps", get((1 << 20) + SLICE - 4096, SLICE), EBUSY);
	refused("one around it", get((1 << 20) - 4096, 3 * SLICE), EBUSY);
	if (map(fd, SLICE + 4096, 0) != MAP_FAILED || map(fd, 4096, SLICE) != MAP_FAILED)
		wrong("a mapping beyond the slice");
	if (mmap(NULL, SLICE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) != MAP_FAILED)
		wrong("a private mapping");
	if (mmap(NULL, SLICE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) != MAP_FAILED)
		wrong("a mapping to execute");
	at = map(fd, SLICE, 0);
	half = map(fd, 4096, SLICE - 4096);
	if (at == MAP_FAILED || half == MAP_FAILED)
		wrong("a mapping");
	at[SLICE - 4096] = 7;
	if (half[0] != 7)
		wrong("two mappings of one page");
	if (mprotect(at, SLICE, PROT_READ | PROT_EXEC) == 0)
		wrong("a mapping made executable");
	at[5] = 9;
	if (fork() == 0)
		_exit(at[5] == 9 ? 0 : 1);
	wait(&status);
	if (status)
		wrong("a child's mapping");
	if (ioctl(device, YASMIN_SLICE_NEXT, &slice) || slice.offset != 1 << 20 || slice.bytes != SLICE ||
	    slice.grant != (1 << 20) + 7)
		wrong("what is held");
	refused("freed", ioctl(device, YASMIN_SLICE_FREED, &slice), EAGAIN);
	close(fd);
	munmap(half, 4096);
	refused("freed, though mapped", ioctl(device, YASMIN_SLICE_FREED, &slice), EAGAIN);
	munmap(at, SLICE);
	slice.grant = 0;
	if (ioctl(device, YASMIN_SLICE_FREED, &slice) || slice.offset != 1 << 20 || slice.bytes != SLICE ||
	    slice.grant != (1 << 20) + 7)
		wrong("what was freed");
	slice.offset = 0;
	refused("what is held", ioctl(device, YASMIN_SLICE_NEXT, &slice), ENOENT);
	puts("refused");
}

/* The words of both directions are open; who takes the memory away must park them. */
static void keep(uint64_t offset)
{
	int fd = get(offset, SLICE);
	volatile uint64_t *at = (void *)map(fd, SLICE, 0);
	struct pollfd poll_fd = { .fd = device };
	uint64_t count = 0;

	if (fd < 0 || at == MAP_FAILED)
		wrong("a slice");
	at[0x400 / 8] = 0x1000 << 6 | 2;
	at[0x600 / 8] = 0x2000 << 6 | 1;
	puts("holds");
	fflush(stdout);
	do {
		count++;
		at[0] = count;
		at[4096 / 8 * 3] = count;
		if (at[0] != count || at[4096 / 8 * 3] != count)
			wrong("a count was lost");
	} while (count % 1000 || (poll(&poll_fd, 1, 0) >= 0 && !(poll_fd.revents & POLLHUP)));
	if (at[0x400 / 8] != 0x1000 << 6 || at[0x600 / 8] != 0x2000 << 6)
		wrong("a word that is not parked");
	if (at[0] != count || at[4096 / 8 * 3] != count || at[4096 / 8 * 5] != 0)
		wrong("a copy that is none");
	at[4096 / 8 * 5] = 1;
	if (get(offset + (1 << 20), SLICE) != -1 || errno != ENODEV)
		wrong("a slice of what is gone");
	puts("copied");
}

static void scribble(unsigned int seconds)
{
	uint64_t random = 88172645463325252ull, sweeps = 0, bytes, i;
	time_t end = time(NULL) + seconds;
	volatile uint64_t *at;
	struct stat resource;

	if (fstat(device, &resource))
		wrong("the resource");
	bytes = resource.st_size;
	at = (void *)map(device, bytes, 0);
	if (at == MAP_FAILED)
		wrong("the memory");
	do {
		for (i = 0; i < bytes / 8; i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			/* Small numbers, too: what looks right is worse. */
			at[i] = sweeps % 2 ? random : random % 16;
		}
		sweeps++;
	} while (time(NULL) < end);
	printf("%llu sweeps\n", (unsigned long long)sweeps);
}

int main(int argc, char **argv)
{
	uint64_t offset = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
	unsigned char identity[YASMIN_IDENTITY_BYTES];
	char *at;
	int i;

	if (argc < 3)
		wrong("slices DEVICE WHAT");
	device = open(argv[1], O_RDWR | O_CLOEXEC);
	if (device < 0)
		wrong(argv[1]);
	if (!strcmp(argv[2], "limits")) {
		limits();
	} else if (!strcmp(argv[2], "keep")) {
		keep(offset);
	} else if (!strcmp(argv[2], "scribble")) {
		scribble(offset);
	} else if (!strcmp(argv[2], "identity")) {
		if (read(device, identity, sizeof(identity)) != sizeof(identity))
			wrong("the identity");
		printf("%.8s ", identity);
		for (i = 8; i < YASMIN_IDENTITY_BYTES; i++)
			printf("%02x", identity[i]);
		puts("");
	} else {
		at = map(get(offset, SLICE), SLICE, 0);
		if (at == MAP_FAILED)
			wrong("a slice");
		if (!strcmp(argv[2], "write") && argc > 4)
			strcpy(at + 64, argv[4]);
		else
			puts(at + 64);
	}
	return 0;
}
