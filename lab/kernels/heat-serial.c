/* Heat2D by one worker. */
#include "heat.h"

int main(int argc, char **argv)
{
	struct heat heat = heat_sizes(argc, argv);
	size_t cells = (size_t)(heat.n * heat.n);
	double *u = lab_memory(cells, sizeof(*u)), *other = lab_memory(cells, sizeof(*other)), begun;
	char cpus[LAB_CPUS_LEN];

	heat_fill(u, 0, heat.n, heat.n);
	begun = lab_now_s();
	u = heat_run(u, other, heat.n, heat.steps);
	printf("seconds %.9f\nmoved 0\n", lab_now_s() - begun);
	lab_cpus(cpus);
	lab_print_cpus(0, cpus);
	return heat_check(u, heat);
}
