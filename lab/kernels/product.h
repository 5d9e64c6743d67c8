/* Matrix product C = A B of n by n doubles: compute alone, one distribution and one collection.
 *
 * Every program computes rows by product_rows() and nothing else, in one order of additions, so
 * results are equal to the bit however rows are distributed.
 */
#ifndef PRODUCT_H
#define PRODUCT_H

#include <math.h>

#include "lab.h"

static inline long product_size(int argc, char **argv)
{
	if (argc != 2)
		lab_die("usage", "product N");
	return lab_number(argv[1], 1, 20000);
}

/* Values in (-1, 1) that need all bits of a double. */
static inline void product_fill(double *matrix, long n, uint64_t seed)
{
	for (long at = 0; at < n * n; at++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		matrix[at] = (double)(int64_t)seed / 9223372036854775808.0;
	}
}

static inline void product_rows(const double *a, const double *b, double *c, long rows, long n)
{
	for (long i = 0; i < rows; i++) {
		double *row = c + i * n;

		memset(row, 0, (size_t)n * sizeof(*row));
		for (long k = 0; k < n; k++) {
			double factor = a[i * n + k];

			for (long j = 0; j < n; j++)
				row[j] += factor * b[k * n + j];
		}
	}
}

/* Freivalds: C x against A (B x) for x of ones and minus ones. Each entry of C is a sum of n
 * products below 1, so its error is below n * n * 2^-53, and that of a row times x below n times
 * this; the other side likewise.
 */
static inline int product_is_right(const double *a, const double *b, const double *c, long n)
{
	const double bound = 4.0 * (double)n * (double)n * (double)n * 0x1p-53;
	double *x = lab_memory((size_t)n, sizeof(*x)), *bx = lab_memory((size_t)n, sizeof(*bx));
	int right = 1;

	for (long j = 0; j < n; j++)
		x[j] = (j * 2654435761u >> 7) & 1 ? 1.0 : -1.0;
	for (long i = 0; i < n; i++)
		for (long j = 0; j < n; j++)
			bx[i] += b[i * n + j] * x[j];
	for (long i = 0; i < n; i++) {
		double left = 0, other = 0;

		for (long j = 0; j < n; j++) {
			left += c[i * n + j] * x[j];
			other += a[i * n + j] * bx[j];
		}
		right &= fabs(left - other) <= bound;
	}
	free(x);
	free(bx);
	return right;
}

/* Two checks: against a serial run, to the bit, and against the definition. */
static inline int product_check(const double *a, const double *b, const double *c, long n)
{
	double *serial = lab_memory((size_t)(n * n), sizeof(*serial));
	int equal;

	product_rows(a, b, serial, n, n);
	equal = !memcmp(serial, c, (size_t)(n * n) * sizeof(*serial));
	free(serial);
	return lab_checked(equal + product_is_right(a, b, c, n), 2);
}

#endif
