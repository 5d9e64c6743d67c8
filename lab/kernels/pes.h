/* What the kernels in OpenSHMEM share. */
#ifndef PES_H
#define PES_H

#include <shmem.h>

#include "lab.h"

struct pes {
	int own;
	int count;
};

static inline struct pes pes_begin(void)
{
	shmem_init();
	return (struct pes){ shmem_my_pe(), shmem_n_pes() };
}

/* Symmetric memory, zero at first. All PEs ask for the same in the same order. */
static inline void *pes_memory(size_t count, size_t size)
{
	void *memory = shmem_calloc(count ? count : 1, size);

	if (!memory) {
		fprintf(stderr, "lab: no symmetric memory for %zu times %zu bytes: set SHMEM_SYMMETRIC_SIZE\n",
			count, size);
		shmem_global_exit(2);
	}
	return memory;
}

/* Of `total` things, which lab_first() divides, the PE that has number `at`. */
static inline int pes_with(long total, long at, int pes)
{
	long least = total / pes, more = total % pes;

	if (at < more * (least + 1))
		return (int)(at / (least + 1));
	return (int)(more + (at - more * (least + 1)) / least);
}

/* `len` bytes of PE `pe`: where they are, if this PE can read them there, else a copy in `copy`. */
static inline const void *pes_read(const void *source, void *copy, size_t len, int pe)
{
	const void *there = shmem_ptr(source, pe);

	if (there)
		return there;
	shmem_getmem(copy, source, len, pe);
	return copy;
}

/* PE 0 prints where all PEs may run, and how many bytes went from one to another: those that each
 * says it put, got, or read and wrote where they are.
 */
static inline void pes_report(struct pes pes, double moved_bytes)
{
	static char cpus[LAB_CPUS_LEN];
	static double moved;
	double sum = 0;

	lab_cpus(cpus);
	moved = moved_bytes;
	shmem_barrier_all();
	if (pes.own != 0)
		return;
	for (int pe = 0; pe < pes.count; pe++) {
		char others[LAB_CPUS_LEN];

		shmem_getmem(others, cpus, sizeof(others), pe);
		lab_print_cpus(pe, others);
		sum += shmem_double_g(&moved, pe);
	}
	printf("moved %.0f\n", sum);
}

/* All PEs end alike: with `code` of PE 0. */
static inline int pes_end(int code)
{
	static int ends;

	ends = code;
	shmem_barrier_all();
	code = shmem_int_g(&ends, 0);
	shmem_finalize();
	return code;
}

#endif
