/* Locks exclude, and are free again as they were; order of stores. */
#include "check.h"
#include <sched.h>

#define ROUNDS 300

int main(void)
{
	static long lock, other;
	static int count, pair[2];

	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes();
	for (int i = 0; i < ROUNDS; i++) {
		if (i % 3)
			shmem_set_lock(&lock);
		else
			while (shmem_test_lock(&lock))
				sched_yield();
		/* Not atomic by itself. */
		int now = shmem_int_g(&count, 0);
		shmem_int_p(&count, now + 1, 0);
		shmem_clear_lock(&lock);
	}
	shmem_barrier_all();
	CHECK(shmem_int_g(&count, 0) == n * ROUNDS);
	CHECK(shmem_long_g(&lock, 0) == 0);
	shmem_barrier_all();
	if (!me) {
		shmem_set_lock(&other);
		CHECK(shmem_test_lock(&lock) == 0);
	}
	shmem_barrier_all();
	CHECK(shmem_test_lock(&other) == 1 && shmem_test_lock(&lock) == 1);
	shmem_barrier_all();
	if (!me) {
		shmem_clear_lock(&other);
		shmem_clear_lock(&lock);
	}
	shmem_barrier_all();
	if (me == n - 1)
		CHECK(shmem_test_lock(&other) == 0);
	shmem_barrier_all();
	/* The second is not seen before the first. */
	if (me == 0) {
		for (int i = 1; i <= 20000; i++) {
			shmem_int_p(&pair[0], i, n - 1);
			shmem_fence();
			shmem_int_p(&pair[1], i, n - 1);
		}
	}
	if (me == n - 1) {
		volatile int *seen = pair;
		int second;
		do {
			second = seen[1];
			CHECK(seen[0] >= second);
		} while (second < 20000);
	}
	shmem_set_cache_inv();
	shmem_clear_cache_inv();
	shmem_set_cache_line_inv(&count);
	shmem_clear_cache_line_inv(&count);
	shmem_udcflush();
	shmem_udcflush_line(&count);
	shmem_pcontrol(1);
	shmem_finalize();
	return 0;
}
