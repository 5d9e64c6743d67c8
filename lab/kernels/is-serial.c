/* NPB IS by one worker: counts each key, and adds the counts up. */
#include "is.h"

/* below[k]: how many keys are less than k; one more entry than there are keys. */
static void rank_keys(const int *keys, long count, int *below, long max_key)
{
	int sum = 0;

	memset(below, 0, (size_t)(max_key + 1) * sizeof(*below));
	for (long at = 0; at < count; at++)
		below[keys[at] + 1]++;
	for (long key = 0; key <= max_key; key++)
		below[key] = sum += below[key];
}

/* Puts the keys where their ranks say, and looks whether they are in order. */
static int is_sorted_by(const int *keys, long count, int *below)
{
	int *sorted = lab_memory((size_t)count, sizeof(*sorted));
	int right = 1;

	for (long at = 0; at < count; at++)
		sorted[below[keys[at]]++] = keys[at];
	for (long at = 1; at < count; at++)
		right &= sorted[at - 1] <= sorted[at];
	free(sorted);
	return right;
}

int main(int argc, char **argv)
{
	const struct is_class *class = is_class(argc, argv);
	long count = is_keys(class), max_key = is_max_key(class), passed = 0;
	int *keys = lab_memory((size_t)count, sizeof(*keys));
	int *below = lab_memory((size_t)max_key + 1, sizeof(*below));
	double begun = 0, seconds;
	char cpus[LAB_CPUS_LEN];

	is_generate(class, keys, 0, count);
	/* Iteration 0 stands for the untimed one, which is another 1. */
	for (int iteration = 0; iteration <= IS_ITERATIONS; iteration++) {
		int changed = iteration ? iteration : 1, tests[IS_TESTS];

		if (iteration == 1)
			begun = lab_now_s();
		is_modify(class, keys, 0, count, changed);
		for (int test = 0; test < IS_TESTS; test++)
			tests[test] = keys[class->index[test]];
		rank_keys(keys, count, below, max_key);
		for (int test = 0; iteration && test < IS_TESTS; test++)
			passed += is_test_passes(class, test, iteration, below[tests[test]]);
	}
	seconds = lab_now_s() - begun;
	lab_cpus(cpus);
	lab_print_cpus(0, cpus);
	printf("moved 0\n");
	passed += is_sorted_by(keys, count, below);
	return is_report(class, seconds, passed);
}
