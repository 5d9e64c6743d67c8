/*
 * members COMMAND NAME [...]: programs of several guests around one segment.
 *
 *   push NAME COUNT        adds nodes to a list of plain pointers, in the segment's heap
 *   sum NAME               the list's length and sum, by those pointers; frees all of it
 *   count NAME TIMES       adds to a counter of two words under a mutex; says how many owners died
 *   hold NAME              takes the mutex, says its fence, and holds it
 *   late NAME              holds the mutex until there is a line to read, and says what unlocking gives
 *   meet NAME ROUNDS       a barrier of two
 *   ring NAME SIDE ROUNDS  waits for each other by semaphores, half a second each time; how long a wake-up took,
 *                          and how often a wait slept
 *   exchange NAME SIDE ROUNDS INTS   ints there and back by flags; microseconds for each
 *   watch NAME             reads one byte again and again, until it faults
 *   trespass NAME          what a process without the right to write can do
 *   address NAME           where it is
 *   fill NAME SEED         writes all of it, each word another one
 *   verify NAME SEED       reads all of it, and insists on what fill wrote
 *   pierce FILE            writes ones over a device's memory behind its first page, as root may
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "yasmin.h"

#define SLOTS 64
#define INTS_MAX 65536

struct node {
	struct node *next;
	uint64_t value;
};

struct table {
	yasmin_slot slots[SLOTS];
	yasmin_once made;
	yasmin_mutex mutex;
	yasmin_barrier barrier;
	yasmin_semaphore bells[2];
	uint64_t first, second;
	struct node *list;
	_Atomic uint64_t flags[2][8];
	int ints[2][INTS_MAX];
	_Alignas(4096) char heap[];
};

#define HEAP_BYTES (512 << 10)

static yasmin_segment *segment;
static struct table *table;
static yasmin_member *member;
static yasmin_heap *heap;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s (%s)\n", what, strerror(errno), yasmin_segment_error());
	exit(1);
}

static void done(const char *what, int error)
{
	errno = error;
	if (error && error != EOWNERDEAD)
		fail(what);
}

static void open_it(const char *name, unsigned rights)
{
	segment = yasmin_segment_open(name, rights);
	if (!segment)
		fail("open");
	table = yasmin_segment_attach(segment, 0);
	if (!table)
		fail("attach");
}

static void join(const char *name)
{
	int made;

	open_it(name, YASMIN_SEGMENT_WRITE);
	member = yasmin_member_join(segment, table->slots, SLOTS);
	if (!member)
		fail("join");
	made = yasmin_once_begin(member, &table->made);
	if (made == YASMIN_ONCE_MAKE || made == EOWNERDEAD) {
		done("barrier", yasmin_barrier_init(&table->barrier, 2));
		memset(table->heap, 0, HEAP_BYTES);
		heap = yasmin_heap_create(member, table->heap, HEAP_BYTES);
		done("once", yasmin_once_finish(member, &table->made));
	} else {
		done("once", made);
		heap = yasmin_heap_open(member, table->heap, HEAP_BYTES);
	}
	if (!heap)
		fail("heap");
}

/* The next one after a death makes it whole; how many died. */
static int lock(uint64_t *fence)
{
	int error = yasmin_mutex_lock(member, &table->mutex, fence);

	done("lock", error);
	if (error != EOWNERDEAD)
		return 0;
	table->second = table->first;
	done("consistent", yasmin_mutex_consistent(member, &table->mutex));
	return 1;
}

static void unlock(void)
{
	done("unlock", yasmin_mutex_unlock(member, &table->mutex));
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void push(long count)
{
	for (long i = 1; i <= count; i++) {
		struct node *node = yasmin_heap_alloc(heap, sizeof(*node));

		if (!node)
			fail("alloc");
		node->value = i;
		lock(NULL);
		node->next = table->list;
		table->list = node;
		unlock();
	}
}

static void sum(void)
{
	uint64_t sum = 0, length = 0;
	struct node *node;
	size_t blocks, bytes;

	lock(NULL);
	node = table->list;
	table->list = NULL;
	unlock();
	while (node) {
		struct node *next = node->next;

		sum += node->value;
		length++;
		done("free", yasmin_heap_free(heap, node));
		node = next;
	}
	done("heap", yasmin_heap_check(heap, &blocks, &bytes));
	printf("%lu nodes, sum %lu, %zu blocks left\n", length, sum, blocks);
}

static void count(long times)
{
	int died = 0;

	for (long i = 0; i < times; i++) {
		died += lock(NULL);
		if (table->first != table->second) {
			fprintf(stderr, "two in the lock: %lu %lu\n", table->first, table->second);
			exit(1);
		}
		((volatile struct table *)table)->first++;
		((volatile struct table *)table)->second++;
		unlock();
	}
	lock(NULL);
	printf("counter %lu, %d died\n", table->first, died);
	unlock();
}

static void hold(void)
{
	uint64_t fence;
	int died = lock(&fence);

	printf("holds fence %lu, %d died\n", fence, died);
	fflush(stdout);
}

static void exchange(int side, long rounds, long ints)
{
	_Atomic uint64_t *own = &table->flags[side][0], *other = &table->flags[!side][0];
	int *buffer = malloc(ints * sizeof(int));
	uint64_t seen = atomic_load(other);
	double started;

	for (long i = 0; i < ints; i++)
		buffer[i] = i;
	done("barrier", yasmin_barrier_wait(member, &table->barrier) > 0);
	started = now_us();
	for (long round = 0; round < rounds; round++) {
		for (int turn = 0; turn < 2; turn++) {
			if (turn == side) {
				buffer[0] = buffer[ints - 1] = round;
				memcpy(table->ints[side], buffer, ints * sizeof(int));
				atomic_fetch_add(own, 1);
				continue;
			}
			while (atomic_load(other) == seen)
				;
			seen++;
			memcpy(buffer, table->ints[!side], ints * sizeof(int));
			/* All of them now and then: it takes longer than the copy. */
			for (long i = 1; round % 64 == 0 && i < ints - 1; i++)
				if (buffer[i] != i)
					buffer[0] = -1;
			if (buffer[0] != round || buffer[ints - 1] != round) {
				fprintf(stderr, "round %ld: other ints\n", round);
				exit(1);
			}
		}
	}
	printf("%.1f us\n", (now_us() - started) / rounds);
}

static void ring(int side, long rounds)
{
	const useconds_t pause_us = 500000;
	yasmin_semaphore *own = &table->bells[side], *other = &table->bells[!side];
	struct rusage before, after;
	double started;

	done("barrier", yasmin_barrier_wait(member, &table->barrier) > 0);
	getrusage(RUSAGE_SELF, &before);
	started = now_us();
	for (long round = 0; round < 2 * rounds; round++) {
		if (round % 2 != side) {
			done("wait", yasmin_semaphore_wait(member, own));
			continue;
		}
		usleep(pause_us);
		done("post", yasmin_semaphore_post(member, other));
	}
	getrusage(RUSAGE_SELF, &after);
	/* Whoever rings first is not woken the last time. */
	printf("%.2f ms a wake-up, %ld sleeps a wait\n",
	       ((now_us() - started) / rounds - 2 * pause_us) / 2e3,
	       (after.ru_nvcsw - before.ru_nvcsw) / rounds);
}

static void on_bus_error(int signal)
{
	(void)signal;
	_exit(write(1, "SIGBUS\n", 7) == 7 ? 0 : 1);
}

static void watch(void)
{
	signal(SIGBUS, on_bus_error);
	printf("watching\n");
	fflush(stdout);
	for (;;) {
		(void)*(volatile char *)table;
		usleep(1000);
	}
}

static void trespass(const char *name)
{
	int status, fd;

	if (yasmin_segment_open(name, YASMIN_SEGMENT_WRITE) || errno != EACCES)
		fail("opened to write");
	printf("open to write: EACCES\n");
	open_it(name, YASMIN_SEGMENT_READ);
	if (yasmin_segment_allow(name, YASMIN_SEGMENT_EVERYONE, YASMIN_SEGMENT_WRITE) != -1 ||
	    errno != EPERM)
		fail("allowed");
	printf("allow: EPERM\n");
	if (!mprotect(table, 4096, PROT_READ | PROT_WRITE) || errno != EACCES)
		fail("mprotect");
	printf("mprotect: EACCES\n");
	for (fd = 3; fd < 16; fd++) {
		void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (mapped != MAP_FAILED) {
			fprintf(stderr, "descriptor %d maps for writing\n", fd);
			exit(1);
		}
		/* Nor does that of the memory map what lies behind the segment. The other one is a memfd. */
		if (fcntl(fd, F_GET_SEALS) >= 0)
			continue;
		mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 1 << 30);
		if (mapped != MAP_FAILED) {
			fprintf(stderr, "descriptor %d maps what is not its own\n", fd);
			exit(1);
		}
	}
	if (!fork()) {
		*(volatile char *)table = 1;
		_exit(0);
	}
	wait(&status);
	printf("write: %s\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? "SIGSEGV" : "done");
}

static uint64_t word(uint64_t seed, uint64_t at)
{
	return (seed << 32 | at) * 0x9e3779b97f4a7c15;
}

static void fill(const char *name, long seed)
{
	uint64_t at, words;

	open_it(name, YASMIN_SEGMENT_WRITE);
	words = yasmin_segment_size(segment) / 8;
	for (at = 0; at < words; at++)
		((uint64_t *)table)[at] = word(seed, at);
}

static void verify(const char *name, long seed)
{
	uint64_t at, words;

	open_it(name, YASMIN_SEGMENT_READ);
	words = yasmin_segment_size(segment) / 8;
	for (at = 0; at < words; at++)
		if (((uint64_t *)table)[at] != word(seed, at)) {
			fprintf(stderr, "word %lu is another one\n", at);
			exit(1);
		}
	printf("all %lu bytes as written\n", words * 8);
}

static void pierce(const char *path)
{
	int fd = open(path, O_RDWR);
	char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd < 0 || memory == MAP_FAILED)
		fail(path);
	for (int at = 4096; at < 1 << 20; at++)
		((volatile char *)memory)[at] = -1;
	printf("wrote, and reads %d\n", ((volatile char *)memory)[4096]);
}

int main(int argc, char **argv)
{
	const char *command = argc > 2 ? argv[1] : "", *name = argc > 2 ? argv[2] : "";
	long number = argc > 3 ? atol(argv[3]) : 0;

	if (!strcmp(command, "watch") || !strcmp(command, "address")) {
		open_it(name, YASMIN_SEGMENT_READ);
		if (!strcmp(command, "watch"))
			watch();
		printf("%p\n", (void *)table);
		return 0;
	}
	if (!strcmp(command, "pierce")) {
		pierce(name);
		return 0;
	}
	if (!strcmp(command, "fill") || !strcmp(command, "verify")) {
		(command[0] == 'f' ? fill : verify)(name, number);
		return 0;
	}
	if (!strcmp(command, "trespass")) {
		trespass(name);
		return 0;
	}
	join(name);
	if (!strcmp(command, "push"))
		push(number);
	else if (!strcmp(command, "sum"))
		sum();
	else if (!strcmp(command, "count"))
		count(number);
	else if (!strcmp(command, "hold")) {
		hold();
		for (;;)
			pause();
	} else if (!strcmp(command, "late")) {
		hold();
		getchar();
		printf("unlock: %s\n", strerrorname_np(yasmin_mutex_unlock(member, &table->mutex)));
	} else if (!strcmp(command, "meet")) {
		for (long round = 0; round < number; round++)
			if (yasmin_barrier_wait(member, &table->barrier) > 0)
				fail("barrier");
		printf("met %ld times\n", number);
	} else if (!strcmp(command, "ring") && argc > 4)
		ring(number, atol(argv[4]));
	else if (!strcmp(command, "exchange") && argc > 5)
		exchange(number, atol(argv[4]), atol(argv[5]));
	else
		return 2;
	yasmin_heap_close(heap);
	yasmin_member_leave(member);
	return 0;
}
