/* Heat2D: the explicit step of the heat equation on n by n cells whose border stays 0.
 *
 *   new = u + C (up + down - 2 u) + C (left + right - 2 u),  C = 0.1
 *
 * from u(x, y) = x (n - 1 - x) y (n - 1 - y). Every step needs the neighbours' border rows of the
 * step before. Every program computes rows by heat_row() and nothing else: equal to the bit.
 */
#ifndef HEAT_H
#define HEAT_H

#include <math.h>

#include "lab.h"

#define HEAT_C 0.1

struct heat {
	long n;
	long steps;
};

static inline struct heat heat_sizes(int argc, char **argv)
{
	if (argc != 3)
		lab_die("usage", "heat N STEPS");
	return (struct heat){ lab_number(argv[1], 3, 20000), lab_number(argv[2], 1, 1000000) };
}

/* The rows from `first` on, at the start. */
static inline void heat_fill(double *u, long first, long rows, long n)
{
	for (long x = 0; x < rows; x++)
		for (long y = 0; y < n; y++)
			u[x * n + y] = (double)((first + x) * (n - 1 - first - x)) * (double)(y * (n - 1 - y));
}

/* One row, whose neighbours lie before and behind it, by one step. */
static inline void heat_row(const double *restrict u, double *restrict to, long n)
{
	to[0] = 0;
	for (long y = 1; y < n - 1; y++)
		to[y] = u[y] + HEAT_C * (u[y - n] + u[y + n] - 2.0 * u[y]) +
			HEAT_C * (u[y - 1] + u[y + 1] - 2.0 * u[y]);
	to[n - 1] = 0;
}

/* Runs all steps from `u`, with `other` as its second copy; returns the one with the result. */
static inline double *heat_run(double *u, double *other, long n, long steps)
{
	for (long step = 0; step < steps; step++) {
		double *old = u;

		for (long x = 1; x < n - 1; x++)
			heat_row(u + x * n, other + x * n, n);
		u = other;
		other = old;
	}
	return u;
}

/* sin x sin y is an eigenvector of the step, so its exact result is known. */
static inline int heat_step_is_right(void)
{
	const long n = 41, steps = 50;
	const double angle = acos(-1.0) / (double)(n - 1);
	const double factor = pow(1.0 - 4.0 * HEAT_C * (1.0 - cos(angle)), (double)steps);
	double *u = lab_memory((size_t)(n * n), sizeof(*u)), *other = lab_memory((size_t)(n * n), sizeof(*u));
	double *result;
	int right = 1;

	for (long x = 1; x < n - 1; x++)
		for (long y = 1; y < n - 1; y++)
			u[x * n + y] = sin(angle * (double)x) * sin(angle * (double)y);
	result = heat_run(u, other, n, steps);
	for (long x = 1; x < n - 1; x++)
		for (long y = 1; y < n - 1; y++)
			right &= fabs(result[x * n + y] - factor * sin(angle * (double)x) * sin(angle * (double)y)) < 1e-13;
	free(u);
	free(other);
	return right;
}

/* Two checks: against a serial run, to the bit, and the step against what is known exactly. */
static inline int heat_check(const double *result, struct heat heat)
{
	size_t cells = (size_t)(heat.n * heat.n);
	double *u = lab_memory(cells, sizeof(*u)), *other = lab_memory(cells, sizeof(*other));
	int equal;

	heat_fill(u, 0, heat.n, heat.n);
	equal = !memcmp(heat_run(u, other, heat.n, heat.steps), result, cells * sizeof(*u));
	free(u);
	free(other);
	return lab_checked(equal + heat_step_is_right(), 2);
}

#endif
