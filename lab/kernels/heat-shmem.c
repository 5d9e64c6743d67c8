/* Heat2D by OpenSHMEM's PEs: blocks of rows, border rows put to both neighbours in each step, each
 * with a signal. The collection of the result is not part of the time.
 */
#include "heat.h"
#include "pes.h"

enum side { ABOVE, BELOW };

/* How many border rows each neighbour has put here. */
static uint64_t signals[2];

int main(int argc, char **argv)
{
	struct pes pes = pes_begin();
	struct heat heat = heat_sizes(argc, argv);
	long n = heat.n, first = lab_first(n, pes.own, pes.count), behind = lab_first(n, pes.own + 1, pes.count);
	long rows = behind - first, rows_above = first - lab_first(n, pes.own - 1, pes.count);
	size_t row_len = (size_t)n * sizeof(double);
	/* With a row of each neighbour around the own ones; the first PEs may have one row more. */
	size_t cells = (size_t)((lab_first(n, 1, pes.count) + 2) * n);
	double *u = pes_memory(cells, sizeof(*u)), *other = pes_memory(cells, sizeof(*other));
	int has_above = pes.own > 0, has_below = pes.own + 1 < pes.count;
	/* Of the own rows, those that are not the grid's border. */
	long top = has_above ? 1 : 2, bottom = has_below ? rows : rows - 1;
	double *all = NULL, begun, seconds, moved;
	int code = 0;

	if (n < pes.count)
		lab_die("fewer rows than PEs", argv[1]);
	heat_fill(u, first - 1, rows + 2, n);
	shmem_barrier_all();
	begun = lab_now_s();
	for (long step = 0; step < heat.steps; step++) {
		double *old = u;

		if (has_above)
			shmem_signal_wait_until(&signals[ABOVE], SHMEM_CMP_GE, (uint64_t)step);
		if (has_below)
			shmem_signal_wait_until(&signals[BELOW], SHMEM_CMP_GE, (uint64_t)step);
		/* Border rows first: neighbours get them while the others are computed. Behind them nobody
		 * needs the neighbours' rows of this step, so the next ones may come.
		 */
		if (top <= bottom)
			heat_row(u + top * n, other + top * n, n);
		if (top < bottom)
			heat_row(u + bottom * n, other + bottom * n, n);
		if (has_above)
			shmem_putmem_signal(other + (rows_above + 1) * n, other + n, row_len, &signals[BELOW],
					    (uint64_t)step + 1, SHMEM_SIGNAL_SET, pes.own - 1);
		if (has_below)
			shmem_putmem_signal(other, other + rows * n, row_len, &signals[ABOVE],
					    (uint64_t)step + 1, SHMEM_SIGNAL_SET, pes.own + 1);
		for (long x = top + 1; x < bottom; x++)
			heat_row(u + x * n, other + x * n, n);
		u = other;
		other = old;
	}
	shmem_barrier_all();
	seconds = lab_now_s() - begun;

	moved = (double)row_len * (double)heat.steps * (has_above + has_below);
	if (pes.own != 0)
		moved += (double)row_len * (double)rows;
	pes_report(pes, moved);
	if (pes.own == 0) {
		all = lab_memory((size_t)(n * n), sizeof(*all));
		for (int pe = 0; pe < pes.count; pe++) {
			long from = lab_first(n, pe, pes.count), to = lab_first(n, pe + 1, pes.count);

			shmem_getmem(all + from * n, u + n, (size_t)(to - from) * row_len, pe);
		}
		printf("seconds %.9f\n", seconds);
		code = heat_check(all, heat);
	}
	return pes_end(code);
}
