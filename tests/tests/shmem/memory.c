/* The symmetric heap: blocks have the same offsets everywhere, do not overlap, and come back. */
#include "check.h"

#define BLOCKS 40

static long offsets[BLOCKS], theirs[BLOCKS];

int main(void)
{
	char *blocks[BLOCKS];
	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n;
	char *first = shmem_malloc(1);
	for (int i = 0; i < BLOCKS; i++) {
		size_t size = 1 + (size_t)i * i * 37;
		blocks[i] = i % 3 == 0   ? shmem_malloc(size)
			    : i % 3 == 1 ? shmem_align(1ul << (i % 13), size)
					 : shmem_malloc_with_hints(size, SHMEM_MALLOC_SIGNAL_REMOTE);
		CHECK(blocks[i]);
		if (i % 3 == 1)
			CHECK((uintptr_t)blocks[i] % (1ul << (i % 13)) == 0);
		memset(blocks[i], i + 1, size);
		offsets[i] = blocks[i] - first;
	}
	shmem_barrier_all();
	shmem_long_get(theirs, offsets, BLOCKS, next);
	for (int i = 0; i < BLOCKS; i++) {
		size_t size = 1 + (size_t)i * i * 37;
		CHECK(theirs[i] == offsets[i]);
		for (size_t at = 0; at < size; at++)
			CHECK(blocks[i][at] == i + 1);
	}
	/* Others write all of a block: nothing beside it changes. */
	char *ones = malloc(40 * 40 * 37);
	memset(ones, 99, 40 * 40 * 37);
	shmem_barrier_all();
	shmem_putmem(blocks[20], ones, 1 + 20 * 20 * 37, next);
	shmem_barrier_all();
	for (int i = 0; i < BLOCKS; i++) {
		size_t size = 1 + (size_t)i * i * 37;
		for (size_t at = 0; at < size; at++)
			CHECK(blocks[i][at] == (i == 20 ? 99 : i + 1));
	}
	for (int i = 0; i < BLOCKS; i += 2)
		shmem_free(blocks[i]);
	int *numbers = shmem_calloc(1000, sizeof(int));
	for (int i = 0; i < 1000; i++)
		CHECK(numbers[i] == 0);
	for (int i = 0; i < 1000; i++)
		numbers[i] = me + i;
	numbers = shmem_realloc(numbers, 300000 * sizeof(int));
	CHECK(numbers);
	for (int i = 0; i < 1000; i++)
		CHECK(numbers[i] == me + i);
	numbers = shmem_realloc(numbers, 10 * sizeof(int));
	CHECK(numbers[9] == me + 9);
	int theirs_now;
	shmem_barrier_all();
	shmem_int_get(&theirs_now, &numbers[3], 1, next);
	CHECK(theirs_now == next + 3);
	for (int i = 1; i < BLOCKS; i += 2)
		for (size_t at = 0; at < 1 + (size_t)i * i * 37; at++)
			CHECK(blocks[i][at] == i + 1);

	CHECK(!shmem_malloc(0) && !shmem_calloc(0, 8) && !shmem_calloc(SIZE_MAX, 2));
	CHECK(!shmem_malloc(SIZE_MAX) && !shmem_malloc(1ul << 40) && !shmem_align(3, 8));
	shmem_free(NULL);
	CHECK(!shmem_realloc(numbers, 0));
	for (int i = 1; i < BLOCKS; i += 2)
		shmem_free(blocks[i]);
	shmem_free(first);
	/* All of it is there again, in one piece: SHMEM_SYMMETRIC_SIZE says how much. */
	const char *size = getenv("SHMEM_SYMMETRIC_SIZE");
	if (!size)
		size = getenv("SMA_SYMMETRIC_SIZE");
	size_t all = size ? 4ul << 20 : 64ul << 20;
	CHECK(!shmem_malloc(all + 1));
	char *whole = shmem_malloc(all);
	CHECK(whole && !shmem_malloc(1));
	whole[0] = whole[all - 1] = 1;
	shmem_free(whole);
	char *old = shmalloc(10);
	CHECK(old == first && (old = shrealloc(old, 20)));
	shfree(old);
	CHECK((old = shmemalign(4096, 10)) && (uintptr_t)old % 4096 == 0);
	shmem_finalize();
	return 0;
}
