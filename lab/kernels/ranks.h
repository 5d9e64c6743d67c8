/* What the kernels in MPI share. */
#ifndef RANKS_H
#define RANKS_H

#include <mpi.h>

#include "lab.h"

struct ranks {
	int own;
	int count;
};

enum { RANKS_GREETINGS = 64, RANKS_GREETING_LEN = 1024 };

/* All ranks exchange some messages, so that no kernel's time has the connections' set-up in it:
 * MPI connects ranks when they first talk.
 */
static inline struct ranks ranks_begin(int *argc, char ***argv)
{
	struct ranks ranks;
	char *out, *in;

	MPI_Init(argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &ranks.own);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks.count);
	out = lab_memory((size_t)ranks.count, RANKS_GREETING_LEN);
	in = lab_memory((size_t)ranks.count, RANKS_GREETING_LEN);
	for (int nth = 0; nth < RANKS_GREETINGS; nth++)
		MPI_Alltoall(out, RANKS_GREETING_LEN, MPI_CHAR, in, RANKS_GREETING_LEN, MPI_CHAR,
			     MPI_COMM_WORLD);
	free(out);
	free(in);
	return ranks;
}

/* Rank 0 prints where all ranks may run, and what they sent together, greetings included. */
static inline void ranks_report(struct ranks ranks, double sent_bytes)
{
	char own[LAB_CPUS_LEN];
	char *all = lab_memory((size_t)ranks.count, LAB_CPUS_LEN);
	double moved = 0;

	lab_cpus(own);
	sent_bytes += (double)RANKS_GREETINGS * RANKS_GREETING_LEN * (ranks.count - 1);
	MPI_Gather(own, LAB_CPUS_LEN, MPI_CHAR, all, LAB_CPUS_LEN, MPI_CHAR, 0, MPI_COMM_WORLD);
	MPI_Reduce(&sent_bytes, &moved, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (ranks.own == 0) {
		for (int rank = 0; rank < ranks.count; rank++)
			lab_print_cpus(rank, all + (size_t)rank * LAB_CPUS_LEN);
		printf("moved %.0f\n", moved);
	}
	free(all);
}

/* All ranks end alike: with `code` of rank 0. */
static inline int ranks_end(int code)
{
	MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Finalize();
	return code;
}

#endif
