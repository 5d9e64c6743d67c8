/* Heat2D by OpenMP's threads: a barrier after each step. */
#include "heat.h"
#include "threads.h"

int main(int argc, char **argv)
{
	struct heat heat = heat_sizes(argc, argv);
	long n = heat.n;
	size_t cells = (size_t)(n * n);
	double *copies[2] = { lab_memory(cells, sizeof(double)), lab_memory(cells, sizeof(double)) };
	double begun;

	heat_fill(copies[0], 0, n, n);
	threads_report();
	begun = lab_now_s();
#pragma omp parallel
	for (long step = 0; step < heat.steps; step++) {
		const double *u = copies[step % 2];
		double *to = copies[(step + 1) % 2];

#pragma omp for schedule(static)
		for (long x = 1; x < n - 1; x++)
			heat_row(u + x * n, to + x * n, n);
	}
	printf("seconds %.9f\n", lab_now_s() - begun);
	return heat_check(copies[heat.steps % 2], heat);
}
