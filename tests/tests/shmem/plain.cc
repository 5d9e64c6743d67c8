// The same header in C++, and objects of its own that are symmetric.
#include <cstdio>
#include <cstring>
#include <shmem.h>
#include <vector>

struct Cell {
	long value = 40;
	char text[8] = "cell";
};
static Cell cells[4];

int main()
{
	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, last = (me + n - 1) % n;
	std::vector<double> own(100, me + 0.5);
	auto *dest = static_cast<double *>(shmem_malloc(100 * sizeof(double)));
	shmem_barrier_all();
	shmem_double_put(dest, own.data(), own.size(), next);
	shmem_long_atomic_add(&cells[2].value, me + 1, next);
	static_cast<Cell *>(shmem_ptr(&cells[3], next))->text[0] = 'C';
	shmem_barrier_all();
	bool well = dest[0] == last + 0.5 && dest[99] == last + 0.5 && cells[2].value == 41 + last &&
		    !std::strcmp(cells[3].text, "Cell") && cells[1].value == 40;
	shmem_sync(0, 0, n, static_cast<long *>(shmem_calloc(SHMEM_SYNC_SIZE, sizeof(long))));
	shmem_finalize();
	if (!well)
		std::fprintf(stderr, "PE %d is not well\n", me);
	return !well;
}
