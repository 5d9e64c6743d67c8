/* NPB IS, integer sort: keys are generated, ranked ten times (one more time untimed before), and
 * then put in order. Made from the benchmark's definition (NAS Parallel Benchmarks, RNR-94-007 and
 * NPB 2 and 3): the generator, the classes, the two keys that change before each ranking, the
 * partial verification after each, and the full one at the end.
 */
#ifndef IS_H
#define IS_H

#include "lab.h"

enum { IS_ITERATIONS = 10, IS_TESTS = 5, IS_CHECKS = IS_ITERATIONS * IS_TESTS + 1 };

struct is_class {
	char name;
	int log_keys;
	int log_max_key;
	int log_buckets;
	/* Partial verification: of the key with this index, the rank is this plus (iteration - lag) for
	 * the test keys whose bit in `rising` is set, and minus that for the others.
	 */
	long index[IS_TESTS];
	long rank[IS_TESTS];
	unsigned rising;
	int lag_rising;
	int lag_falling;
};

static const struct is_class is_classes[] = {
	{ 'S', 16, 11, 9, { 48427, 17148, 23627, 62548, 4431 }, { 0, 18, 346, 64917, 65463 }, 0x07, 0, 0 },
	{ 'W', 20, 16, 10, { 357773, 934767, 875723, 898999, 404505 },
	  { 1249, 11698, 1039987, 1043896, 1048018 }, 0x03, 2, 0 },
	{ 'A', 23, 19, 10, { 2112377, 662041, 5336171, 3642833, 4250760 },
	  { 104, 17523, 123928, 8288932, 8388264 }, 0x07, 1, 1 },
	{ 'B', 25, 21, 10, { 41869, 812306, 5102857, 18232239, 26860214 },
	  { 33422937, 10244, 59149, 33135281, 99 }, 0x16, 0, 0 },
	{ 'C', 27, 23, 10, { 44172927, 72999161, 74326391, 129606274, 21736814 },
	  { 61147, 882988, 266290, 133997595, 133525895 }, 0x07, 0, 0 },
};

static inline const struct is_class *is_class(int argc, char **argv)
{
	if (argc != 2 || strlen(argv[1]) != 1)
		lab_die("usage", "is S|W|A|B|C");
	for (size_t at = 0; at < sizeof(is_classes) / sizeof(*is_classes); at++)
		if (is_classes[at].name == *argv[1])
			return &is_classes[at];
	lab_die("no class of IS (S, W, A, B, C)", argv[1]);
	return NULL;
}

static inline long is_keys(const struct is_class *class)
{
	return 1L << class->log_keys;
}

static inline long is_max_key(const struct is_class *class)
{
	return 1L << class->log_max_key;
}

/* x(k + 1) = 5^13 x(k) mod 2^46. Products wrap at 2^64, of which 2^46 is a divisor. */
#define IS_A 1220703125u
#define IS_MASK ((1ull << 46) - 1)

/* Generates the keys from `first` on, as a worker that holds only these does. */
static inline void is_generate(const struct is_class *class, int *keys, long first, long count)
{
	const double scale = (double)(is_max_key(class) / 4);
	uint64_t x = 314159265, step = IS_A;

	for (uint64_t steps = 4 * (uint64_t)first; steps; steps >>= 1) {
		if (steps & 1)
			x = x * step & IS_MASK;
		step = step * step & IS_MASK;
	}
	for (long at = 0; at < count; at++) {
		/* Sums of four 46-bit fractions: exact in a double. */
		double sum = 0;

		for (int part = 0; part < 4; part++) {
			x = x * IS_A & IS_MASK;
			sum += (double)x * 0x1p-46;
		}
		keys[at] = (int)(scale * sum);
	}
}

/* The two keys that change before ranking `iteration`, if they are among those from `first` on. */
static inline void is_modify(const struct is_class *class, int *keys, long first, long count, int iteration)
{
	long low = iteration - first, high = iteration + IS_ITERATIONS - first;

	if (low >= 0 && low < count)
		keys[low] = iteration;
	if (high >= 0 && high < count)
		keys[high] = (int)is_max_key(class) - iteration;
}

/* What must be added to a test key's rank in `iteration`. */
static inline long is_shift(const struct is_class *class, int test, int iteration)
{
	int rises = class->rising >> test & 1;

	return rises ? iteration - class->lag_rising : class->lag_falling - iteration;
}

/* `below`: how many keys are less than test key `test`, all workers together. */
static inline int is_test_passes(const struct is_class *class, int test, int iteration, long below)
{
	return below == class->rank[test] + is_shift(class, test, iteration);
}

static inline int is_report(const struct is_class *class, double seconds, long passed)
{
	printf("seconds %.9f\nmops %.6f\n", seconds, 1e-6 * IS_ITERATIONS * (double)is_keys(class) / seconds);
	return lab_checked(passed, IS_CHECKS);
}

#endif
