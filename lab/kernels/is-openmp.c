/* NPB IS by OpenMP's threads. Each counts its part of the keys on its own; then each adds up all
 * threads' counts for its part of the key values.
 */
#include "is.h"
#include "threads.h"

struct ranking {
	const int *keys;
	long count;
	long max_key;
	/* Of each thread, how often it saw each key. */
	int *counts;
	/* Of each thread, how many keys its part of the values has. */
	long *parts;
	/* How many keys are less than each key. */
	int *below;
};

static void rank_keys(struct ranking *ranking)
{
#pragma omp parallel
	{
		int thread = omp_get_thread_num(), threads = omp_get_num_threads();
		long first = lab_first(ranking->max_key, thread, threads);
		long behind = lab_first(ranking->max_key, thread + 1, threads), sum = 0;
		int *own = ranking->counts + thread * ranking->max_key;

		memset(own, 0, (size_t)ranking->max_key * sizeof(*own));
#pragma omp for schedule(static)
		for (long at = 0; at < ranking->count; at++)
			own[ranking->keys[at]]++;
		for (long key = first; key < behind; key++) {
			ranking->below[key] = (int)sum;
			for (int other = 0; other < threads; other++)
				sum += ranking->counts[other * ranking->max_key + key];
		}
		ranking->parts[thread] = sum;
#pragma omp barrier
		sum = 0;
		for (int other = 0; other < thread; other++)
			sum += ranking->parts[other];
		for (long key = first; key < behind; key++)
			ranking->below[key] += (int)sum;
	}
}

static int is_sorted_by(const struct ranking *ranking)
{
	int *sorted = lab_memory((size_t)ranking->count, sizeof(*sorted));
	int right = 1;

	for (long at = 0; at < ranking->count; at++)
		sorted[ranking->below[ranking->keys[at]]++] = ranking->keys[at];
	for (long at = 1; at < ranking->count; at++)
		right &= sorted[at - 1] <= sorted[at];
	free(sorted);
	return right;
}

int main(int argc, char **argv)
{
	const struct is_class *class = is_class(argc, argv);
	long count = is_keys(class), max_key = is_max_key(class), passed = 0;
	int threads = omp_get_max_threads();
	int *keys = lab_memory((size_t)count, sizeof(*keys));
	struct ranking ranking = {
		.keys = keys,
		.count = count,
		.max_key = max_key,
		.counts = lab_memory((size_t)(threads * max_key), sizeof(int)),
		.parts = lab_memory((size_t)threads, sizeof(long)),
		.below = lab_memory((size_t)max_key, sizeof(int)),
	};
	double begun = 0, seconds;

	is_generate(class, keys, 0, count);
	threads_report();
	/* Iteration 0 stands for the untimed one, which is another 1. */
	for (int iteration = 0; iteration <= IS_ITERATIONS; iteration++) {
		int tests[IS_TESTS];

		if (iteration == 1)
			begun = lab_now_s();
		is_modify(class, keys, 0, count, iteration ? iteration : 1);
		for (int test = 0; test < IS_TESTS; test++)
			tests[test] = keys[class->index[test]];
		rank_keys(&ranking);
		for (int test = 0; iteration && test < IS_TESTS; test++)
			passed += is_test_passes(class, test, iteration, ranking.below[tests[test]]);
	}
	seconds = lab_now_s() - begun;
	passed += is_sorted_by(&ranking);
	return is_report(class, seconds, passed);
}
