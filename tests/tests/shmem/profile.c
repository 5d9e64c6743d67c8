/* A tool in place of some calls, which calls the library by its other names. */
#include "check.h"
#include <pshmem.h>

static int puts_seen, barriers_seen;

#undef shmem_put
void shmem_long_put(long *dest, const long *source, size_t nelems, int pe)
{
	puts_seen++;
	pshmem_long_put(dest, source, nelems, pe);
}

void shmem_barrier_all(void)
{
	barriers_seen++;
	pshmem_barrier_all();
}

int main(void)
{
	static long word;
	shmem_init();
	long own = shmem_my_pe() + 5;
	int n = shmem_n_pes();
	shmem_barrier_all();
	shmem_long_put(&word, &own, 1, (shmem_my_pe() + 1) % n);
	shmem_barrier_all();
	CHECK(word == (shmem_my_pe() + n - 1) % n + 5);
	/* The library's own barriers are its own affair. */
	CHECK(puts_seen == 1 && barriers_seen == 2);
	pshmem_finalize();
	return 0;
}
