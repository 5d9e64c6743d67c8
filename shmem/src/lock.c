/* Locks: tickets in PE 0's copy of the lock, the next one to give in the lower half, the one that is
 * served in the upper. So PEs get it in the order in which they came, and a free lock is 0. Caches
 * need no help. */
#include "internal.h"

/* Where all PEs have the lock. */
static uint64_t *word_of(const char *call, long *lock)
{
	return remote(call, lock, sizeof(*lock), 0);
}

static uint32_t *half(uint64_t *word, int upper)
{
	return (uint32_t *)word + upper;
}

PUBLIC(void, set_lock, long *lock)
{
	uint64_t *word = word_of("shmem_set_lock", lock);
	uint32_t mine = __atomic_fetch_add(half(word, 0), 1, __ATOMIC_ACQ_REL);
	for (unsigned looks = 0; __atomic_load_n(half(word, 1), __ATOMIC_ACQUIRE) != mine;)
		look_again(&looks);
}

PUBLIC(int, test_lock, long *lock)
{
	uint64_t *word = word_of("shmem_test_lock", lock);
	uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
	uint32_t next = (uint32_t)seen;
	if (next != seen >> 32)
		return 1;
	uint64_t taken = (seen & ~0xffffffffull) | (uint32_t)(next + 1);
	return !__atomic_compare_exchange_n(word, &seen, taken, false, __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED);
}

PUBLIC(void, clear_lock, long *lock)
{
	uint64_t *word = word_of("shmem_clear_lock", lock);
	pshmem_quiet();
	uint32_t served = __atomic_load_n(half(word, 1), __ATOMIC_RELAXED) + 1;
	/* Nobody waits: as it was at first. */
	uint64_t alone = (uint64_t)(served - 1) << 32 | served;
	if (!__atomic_compare_exchange_n(word, &alone, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		__atomic_store_n(half(word, 1), served, __ATOMIC_RELEASE);
}

PUBLIC(void, set_cache_inv, void)
{
}

PUBLIC(void, set_cache_line_inv, void *dest)
{
	(void)dest;
}

PUBLIC(void, clear_cache_inv, void)
{
}

PUBLIC(void, clear_cache_line_inv, void *dest)
{
	(void)dest;
}

PUBLIC(void, udcflush, void)
{
}

PUBLIC(void, udcflush_line, void *dest)
{
	(void)dest;
}
