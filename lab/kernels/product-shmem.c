/* Matrix product by OpenSHMEM's PEs: A, B and C are PE 0's. The others read its A and B and write
 * its C where they are; on another machine, copies of B and of blocks of rows, in their own.
 */
#include "pes.h"
#include "product.h"

int main(int argc, char **argv)
{
	struct pes pes = pes_begin();
	long n = product_size(argc, argv), first = lab_first(n, pes.own, pes.count);
	long rows = lab_first(n, pes.own + 1, pes.count) - first;
	size_t cells = (size_t)(n * n), part = (size_t)(rows * n) * sizeof(double);
	double *a = pes_memory(cells, sizeof(*a)), *b = pes_memory(cells, sizeof(*b));
	double *c = pes_memory(cells, sizeof(*c)), *own_a = a + first * n, *own_c = c + first * n, *to_c;
	const double *from_a, *from_b;
	double begun, seconds, moved = 0;
	int code = 0;

	if (pes.own == 0) {
		product_fill(a, n, 1);
		product_fill(b, n, 2);
	}
	shmem_barrier_all();
	begun = lab_now_s();
	from_a = pes_read(own_a, own_a, part, 0);
	from_b = pes_read(b, b, cells * sizeof(*b), 0);
	to_c = shmem_ptr(own_c, 0);
	product_rows(from_a, from_b, to_c ? to_c : own_c, rows, n);
	if (!to_c)
		shmem_putmem(own_c, own_c, part, 0);
	shmem_barrier_all();
	seconds = lab_now_s() - begun;
	/* Rows out and back, for all PEs but the first, and B. */
	if (pes.own != 0)
		moved = 2.0 * (double)part + 8.0 * (double)cells;
	pes_report(pes, moved);
	if (pes.own == 0) {
		printf("seconds %.9f\n", seconds);
		code = product_check(a, b, c, n);
	}
	return pes_end(code);
}
