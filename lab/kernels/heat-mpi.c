/* Heat2D by MPI's ranks: blocks of rows, border rows to both neighbours in each step. The
 * collection of the result is not part of the time.
 */
#include "heat.h"
#include "ranks.h"

int main(int argc, char **argv)
{
	struct ranks ranks = ranks_begin(&argc, &argv);
	struct heat heat = heat_sizes(argc, argv);
	long n = heat.n, first = lab_first(n, ranks.own, ranks.count);
	long rows = lab_first(n, ranks.own + 1, ranks.count) - first;
	/* With a row of each neighbour around the own ones. */
	size_t cells = (size_t)((rows + 2) * n);
	double *u = lab_memory(cells, sizeof(*u)), *other = lab_memory(cells, sizeof(*other));
	int up = ranks.own > 0 ? ranks.own - 1 : MPI_PROC_NULL;
	int down = ranks.own + 1 < ranks.count ? ranks.own + 1 : MPI_PROC_NULL;
	int *counts = lab_memory((size_t)ranks.count, sizeof(*counts));
	int *starts = lab_memory((size_t)ranks.count, sizeof(*starts));
	double *all = NULL, begun, seconds, sent;
	int code = 0;

	if (n < ranks.count)
		lab_die("fewer rows than ranks", argv[1]);
	heat_fill(u + n, first, rows, n);
	MPI_Barrier(MPI_COMM_WORLD);
	begun = lab_now_s();
	for (long step = 0; step < heat.steps; step++) {
		double *old = u;

		MPI_Sendrecv(u + n, (int)n, MPI_DOUBLE, up, 0, u + (rows + 1) * n, (int)n, MPI_DOUBLE, down,
			     0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Sendrecv(u + rows * n, (int)n, MPI_DOUBLE, down, 1, u, (int)n, MPI_DOUBLE, up, 1,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (long x = 1; x <= rows; x++)
			if (first + x - 1 > 0 && first + x - 1 < n - 1)
				heat_row(u + x * n, other + x * n, n);
		u = other;
		other = old;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	seconds = lab_now_s() - begun;

	for (int rank = 0; rank < ranks.count; rank++) {
		starts[rank] = (int)(lab_first(n, rank, ranks.count) * n);
		counts[rank] = (int)(lab_first(n, rank + 1, ranks.count) * n) - starts[rank];
	}
	if (ranks.own == 0)
		all = lab_memory((size_t)(n * n), sizeof(*all));
	MPI_Gatherv(u + n, counts[ranks.own], MPI_DOUBLE, all, counts, starts, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	sent = 8.0 * (double)n * (double)heat.steps * ((up != MPI_PROC_NULL) + (down != MPI_PROC_NULL));
	if (ranks.own != 0)
		sent += 8.0 * counts[ranks.own];
	ranks_report(ranks, sent);
	if (ranks.own == 0) {
		printf("seconds %.9f\n", seconds);
		code = heat_check(all, heat);
	}
	return ranks_end(code);
}
