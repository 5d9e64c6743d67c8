/* The symmetric heap. All PEs ask for the same in the same order, so each keeps the same books by
 * itself, in private memory, and finds the same offsets. What others write cannot spoil the books. */
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A cache line: what two PEs wait for is never in one by chance. */
#define GRAIN 64ul

struct block {
	struct block *before, *behind;
	size_t at, len, asked;
	bool used;
};

static struct block *first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct block *new_block(size_t at, size_t len)
{
	struct block *block = calloc(1, sizeof(*block));
	if (!block)
		fail("no memory for the books of the symmetric heap");
	block->at = at;
	block->len = len;
	return block;
}

void heap_begin(void)
{
	first = new_block(0, job.heap_bytes);
}

/* Makes a block of its last bytes, from `len` on. */
static void split(struct block *block, size_t len)
{
	if (block->len == len)
		return;
	struct block *rest = new_block(block->at + len, block->len - len);
	rest->before = block;
	rest->behind = block->behind;
	if (rest->behind)
		rest->behind->before = rest;
	block->behind = rest;
	block->len = len;
}

static void join(struct block *block)
{
	struct block *gone = block->behind;
	block->len += gone->len;
	block->behind = gone->behind;
	if (block->behind)
		block->behind->before = block;
	free(gone);
}

/* The length that a block of `size` bytes has; 0: more than there can be. */
static size_t grains(size_t size)
{
	return size > job.heap_bytes ? 0 : (size + GRAIN - 1) & ~(GRAIN - 1);
}

static void *take(size_t alignment, size_t size)
{
	size_t len = grains(size);
	if (!len)
		return NULL;
	for (struct block *block = first; block; block = block->behind) {
		uintptr_t at = (uintptr_t)job.heap + block->at;
		/* The same in all PEs: their areas are at multiples of MOST_ALIGNMENT from here. */
		size_t skip = -at & (alignment - 1);
		if (block->used || skip > block->len || block->len - skip < len)
			continue;
		if (skip) {
			split(block, skip);
			block = block->behind;
		}
		split(block, len);
		block->used = true;
		block->asked = size;
		return job.heap + block->at;
	}
	return NULL;
}

static struct block *find(const char *call, const void *ptr)
{
	size_t at = (size_t)((const char *)ptr - job.heap);
	for (struct block *block = first; block && block->at <= at; block = block->behind)
		if (block->at == at && block->used)
			return block;
	fail("%s: %p is no block in use of the symmetric heap", call, ptr);
}

static void give(struct block *block)
{
	block->used = false;
	if (block->behind && !block->behind->used)
		join(block);
	if (block->before && !block->before->used)
		join(block->before);
}

/* With SHMEM_DEBUG: that all PEs ask for the same. */
static void check_same(const char *call, size_t size)
{
	if (!job.debug)
		return;
	struct set world = set_of_team(team_of(call, SHMEM_TEAM_WORLD));
	set_sync(&world);
	set_tell(&world, size);
	set_sync(&world);
	for (int pe = 0; pe < job.pes; pe++)
		if (set_heard(&world, pe) != size)
			fail("%s: this PE asks for %zu, PE %d for %zu", call, size, pe,
			     (size_t)set_heard(&world, pe));
	set_sync(&world);
}

static void *allocate(const char *call, size_t alignment, size_t size)
{
	check_up(call);
	check_same(call, size);
	if (!size)
		return NULL;
	pthread_mutex_lock(&lock);
	void *ptr = take(alignment, size);
	pthread_mutex_unlock(&lock);
	pshmem_barrier_all();
	return ptr;
}

PUBLIC(void *, malloc, size_t size)
{
	return allocate("shmem_malloc", GRAIN, size);
}
OLD_NAME(void *, shmalloc, malloc, size_t size)

PUBLIC(void *, malloc_with_hints, size_t size, long hints)
{
	/* Memory here is as good for atomics and signals as it can be. */
	(void)hints;
	return allocate("shmem_malloc_with_hints", GRAIN, size);
}

PUBLIC(void *, align, size_t alignment, size_t size)
{
	check_up("shmem_align");
	if (!alignment || alignment & (alignment - 1) || alignment > MOST_ALIGNMENT)
		return NULL;
	return allocate("shmem_align", alignment < GRAIN ? GRAIN : alignment, size);
}
OLD_NAME(void *, shmemalign, align, size_t alignment, size_t size)

PUBLIC(void *, calloc, size_t count, size_t size)
{
	size_t bytes = bytes_of(count, size);
	check_up("shmem_calloc");
	check_same("shmem_calloc", bytes);
	if (!bytes)
		return NULL;
	pthread_mutex_lock(&lock);
	void *ptr = take(GRAIN, bytes);
	pthread_mutex_unlock(&lock);
	if (ptr)
		memset(ptr, 0, bytes);
	pshmem_barrier_all();
	return ptr;
}

PUBLIC(void, free, void *ptr)
{
	check_up("shmem_free");
	if (!ptr)
		return;
	/* Nobody still writes to it. */
	pshmem_barrier_all();
	pthread_mutex_lock(&lock);
	give(find("shmem_free", ptr));
	pthread_mutex_unlock(&lock);
}
OLD_NAME(void, shfree, free, void *ptr)

PUBLIC(void *, realloc, void *ptr, size_t size)
{
	if (!ptr)
		return pshmem_malloc(size);
	if (!size) {
		pshmem_free(ptr);
		return NULL;
	}
	check_up("shmem_realloc");
	check_same("shmem_realloc", size);
	pshmem_barrier_all();
	pthread_mutex_lock(&lock);
	struct block *block = find("shmem_realloc", ptr);
	size_t len = grains(size), had = block->asked;
	void *new = ptr;
	if (len && len <= block->len) {
		split(block, len);
		block->asked = size;
		if (block->behind && !block->behind->used && block->behind->behind &&
		    !block->behind->behind->used)
			join(block->behind);
	} else {
		new = take(GRAIN, size);
		if (new) {
			memcpy(new, ptr, had < size ? had : size);
			give(block);
		}
	}
	pthread_mutex_unlock(&lock);
	pshmem_barrier_all();
	return new;
}
OLD_NAME(void *, shrealloc, realloc, void *ptr, size_t size)
