/* Matrix product by MPI's ranks: B goes to all, blocks of rows of A out and of C back. Both are
 * part of the time.
 */
#include "product.h"
#include "ranks.h"

int main(int argc, char **argv)
{
	struct ranks ranks = ranks_begin(&argc, &argv);
	long n = product_size(argc, argv);
	size_t cells = (size_t)(n * n);
	double *a = NULL, *c = NULL, *b = lab_memory(cells, sizeof(*b));
	int *counts = lab_memory((size_t)ranks.count, sizeof(*counts));
	int *starts = lab_memory((size_t)ranks.count, sizeof(*starts));
	double *own_a, *own_c, begun, seconds, sent = 0;
	int code = 0;

	for (int rank = 0; rank < ranks.count; rank++) {
		starts[rank] = (int)(lab_first(n, rank, ranks.count) * n);
		counts[rank] = (int)(lab_first(n, rank + 1, ranks.count) * n) - starts[rank];
	}
	own_a = lab_memory((size_t)counts[ranks.own], sizeof(*own_a));
	own_c = lab_memory((size_t)counts[ranks.own], sizeof(*own_c));
	if (ranks.own == 0) {
		a = lab_memory(cells, sizeof(*a));
		c = lab_memory(cells, sizeof(*c));
		product_fill(a, n, 1);
		product_fill(b, n, 2);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	begun = lab_now_s();
	MPI_Bcast(b, (int)cells, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	MPI_Scatterv(a, counts, starts, MPI_DOUBLE, own_a, counts[ranks.own], MPI_DOUBLE, 0, MPI_COMM_WORLD);
	product_rows(own_a, b, own_c, counts[ranks.own] / n, n);
	MPI_Gatherv(own_c, counts[ranks.own], MPI_DOUBLE, c, counts, starts, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	seconds = lab_now_s() - begun;
	/* Rows out and back, for all ranks but the first, and B. */
	if (ranks.own != 0)
		sent = 8.0 * (2.0 * counts[ranks.own] + (double)cells);
	ranks_report(ranks, sent);
	if (ranks.own == 0) {
		printf("seconds %.9f\n", seconds);
		code = product_check(a, b, c, n);
	}
	return ranks_end(code);
}
