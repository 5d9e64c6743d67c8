/* Matrix product by OpenMP's threads, as many as OMP_NUM_THREADS says. */
#include "product.h"
#include "threads.h"

int main(int argc, char **argv)
{
	long n = product_size(argc, argv);
	size_t cells = (size_t)(n * n);
	double *a = lab_memory(cells, sizeof(*a)), *b = lab_memory(cells, sizeof(*b));
	double *c = lab_memory(cells, sizeof(*c)), begun;

	product_fill(a, n, 1);
	product_fill(b, n, 2);
	threads_report();
	begun = lab_now_s();
#pragma omp parallel for schedule(static)
	for (long i = 0; i < n; i++)
		product_rows(a + i * n, b, c + i * n, 1, n);
	printf("seconds %.9f\n", lab_now_s() - begun);
	return product_check(a, b, c, n);
}
