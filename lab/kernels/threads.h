/* What the kernels in OpenMP share. */
#ifndef THREADS_H
#define THREADS_H

#include <omp.h>

#include "lab.h"

/* Starts the threads, which the timed part then has, and prints where each may run. */
static inline void threads_report(void)
{
#pragma omp parallel
	{
		char cpus[LAB_CPUS_LEN];

		lab_cpus(cpus);
#pragma omp critical
		lab_print_cpus(omp_get_thread_num(), cpus);
	}
	printf("moved 0\n");
}

#endif
