/* NPB IS by OpenSHMEM's PEs. Each counts its part of the keys on its own; then each adds up all
 * PEs' counts for its part of the key values, reading them where they are.
 */
#include "is.h"
#include "pes.h"

struct sort {
	const struct is_class *class;
	struct pes pes;
	/* This PE's part of the sequence. */
	int *keys;
	long first;
	long count;
	/* Symmetric: how often this PE saw each key. */
	int *counts;
	/* Where the counts of all PEs are for this PE's part of the values, and room for copies. */
	const int **seen;
	int *copies;
	/* Symmetric: of each PE, how many keys its part of the values has. */
	long *parts;
	/* Symmetric: how many keys are less than each value of this PE's part. */
	int *below;
	/* Symmetric: all keys in order, in parts of the PEs. */
	int *sorted;
	double moved_bytes;
};

static long first_value(const struct sort *sort, int pe)
{
	return lab_first(is_max_key(sort->class), pe, sort->pes.count);
}

/* Where it is told how many keys are less than `key`: the PE, and the place in its `below`. */
static int *below_of(const struct sort *sort, int key, int *pe)
{
	*pe = pes_with(is_max_key(sort->class), key, sort->pes.count);
	return sort->below + key - first_value(sort, *pe);
}

static void rank_keys(struct sort *sort)
{
	int pes = sort->pes.count, own = sort->pes.own;
	long low = first_value(sort, own), values = first_value(sort, own + 1) - low, sum = 0;
	size_t len = (size_t)values * sizeof(int);

	memset(sort->counts, 0, (size_t)is_max_key(sort->class) * sizeof(int));
	for (long at = 0; at < sort->count; at++)
		sort->counts[sort->keys[at]]++;
	shmem_barrier_all();
	for (int pe = 0; pe < pes; pe++)
		sort->seen[pe] = pes_read(sort->counts + low, sort->copies + pe * values, len, pe);
	for (long value = 0; value < values; value++) {
		sort->below[value] = (int)sum;
		for (int pe = 0; pe < pes; pe++)
			sum += sort->seen[pe][value];
	}
	for (int pe = 0; pe < pes; pe++)
		shmem_long_p(&sort->parts[own], sum, pe);
	shmem_barrier_all();
	sum = 0;
	for (int pe = 0; pe < own; pe++)
		sum += sort->parts[pe];
	for (long value = 0; value < values; value++)
		sort->below[value] += (int)sum;
	/* Ranks are there for all PEs. Nobody changes them before the next of these. */
	shmem_barrier_all();
	sort->moved_bytes += (double)(pes - 1) * (double)(len + sizeof(long));
}

/* Of the test keys that this PE has. */
static long tests_passed(const struct sort *sort, int iteration)
{
	long passed = 0;

	for (int test = 0; test < IS_TESTS; test++) {
		long at = sort->class->index[test] - sort->first;
		int pe, *below;

		if (at < 0 || at >= sort->count)
			continue;
		below = below_of(sort, sort->keys[at], &pe);
		passed += is_test_passes(sort->class, test, iteration, shmem_int_g(below, pe));
	}
	return passed;
}

/* Puts each key to its place, behind those of its value that came before. Then all must be in order,
 * from one PE to the next too.
 */
static int is_sorted(struct sort *sort)
{
	static int wrong;
	int pes = sort->pes.count, pe, any = 0, before = -1;
	long total = is_keys(sort->class);
	const int *sorted = sort->sorted;

	for (long at = 0; at < sort->count; at++) {
		int *below = below_of(sort, sort->keys[at], &pe);
		long place = shmem_int_atomic_fetch_inc(below, pe);

		pe = pes_with(total, place, pes);
		shmem_int_p(&sort->sorted[place - lab_first(total, pe, pes)], sort->keys[at], pe);
	}
	shmem_barrier_all();
	if (sort->first > 0) {
		pe = pes_with(total, sort->first - 1, pes);
		before = shmem_int_g(&sorted[sort->first - 1 - lab_first(total, pe, pes)], pe);
	}
	for (long at = 0; at < sort->count; at++) {
		wrong |= sorted[at] < before;
		before = sorted[at];
	}
	shmem_barrier_all();
	for (pe = 0; pe < pes; pe++)
		any |= shmem_int_g(&wrong, pe);
	return !any;
}

int main(int argc, char **argv)
{
	static long own_passed;
	struct pes pes = pes_begin();
	struct sort sort = { .class = is_class(argc, argv), .pes = pes };
	long total = is_keys(sort.class), max_key = is_max_key(sort.class), passed;
	double begun = 0, seconds;
	int code = 0;

	sort.first = lab_first(total, pes.own, pes.count);
	sort.count = lab_first(total, pes.own + 1, pes.count) - sort.first;
	sort.keys = lab_memory((size_t)sort.count, sizeof(int));
	sort.seen = lab_memory((size_t)pes.count, sizeof(*sort.seen));
	sort.copies = lab_memory((size_t)(max_key + pes.count), sizeof(int));
	sort.counts = pes_memory((size_t)max_key, sizeof(int));
	sort.parts = pes_memory((size_t)pes.count, sizeof(long));
	sort.below = pes_memory((size_t)lab_first(max_key, 1, pes.count), sizeof(int));
	sort.sorted = pes_memory((size_t)lab_first(total, 1, pes.count), sizeof(int));
	is_generate(sort.class, sort.keys, sort.first, sort.count);
	/* Iteration 0 stands for the untimed one, which is another 1. */
	for (int iteration = 0; iteration <= IS_ITERATIONS; iteration++) {
		if (iteration == 1) {
			shmem_barrier_all();
			begun = lab_now_s();
		}
		is_modify(sort.class, sort.keys, sort.first, sort.count, iteration ? iteration : 1);
		rank_keys(&sort);
		if (iteration)
			own_passed += tests_passed(&sort, iteration);
	}
	shmem_barrier_all();
	seconds = lab_now_s() - begun;
	passed = is_sorted(&sort);
	pes_report(pes, sort.moved_bytes);
	if (pes.own == 0) {
		for (int pe = 0; pe < pes.count; pe++)
			passed += shmem_long_g(&own_passed, pe);
		code = is_report(sort.class, seconds, passed);
	}
	return pes_end(code);
}
