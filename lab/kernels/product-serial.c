/* Matrix product by one worker. */
#include "product.h"

int main(int argc, char **argv)
{
	long n = product_size(argc, argv);
	size_t cells = (size_t)(n * n);
	double *a = lab_memory(cells, sizeof(*a)), *b = lab_memory(cells, sizeof(*b));
	double *c = lab_memory(cells, sizeof(*c)), begun;
	char cpus[LAB_CPUS_LEN];

	product_fill(a, n, 1);
	product_fill(b, n, 2);
	begun = lab_now_s();
	product_rows(a, b, c, n, n);
	printf("seconds %.9f\nmoved 0\n", lab_now_s() - begun);
	lab_cpus(cpus);
	lab_print_cpus(0, cpus);
	return product_check(a, b, c, n);
}
