/* NPB IS by MPI's ranks, any number of them. In each iteration: all ranks' bucket sizes are added
 * up (small messages), each rank gets whole buckets, about equally many keys, the keys go to
 * their ranks (all to all, large messages), and each rank counts its own.
 */
#include "is.h"
#include "ranks.h"

struct sort {
	const struct is_class *class;
	struct ranks ranks;
	/* This rank's part of the sequence. */
	int *keys;
	long first;
	long count;
	/* The same, by bucket. */
	int *bucketed;
	/* The keys of this rank's buckets, from all ranks. */
	int *received;
	size_t received_capacity;
	long received_count;
	/* Values [low, high) are this rank's; keys_before: how many keys are less than low. */
	long low;
	long high;
	long keys_before;
	/* Of value low + k, how many of this rank's keys are less. */
	int *below;
	double sent_bytes;
};

static int bucket_of(const struct is_class *class, int key)
{
	return key >> (class->log_max_key - class->log_buckets);
}

static void rank_keys(struct sort *sort)
{
	const struct is_class *class = sort->class;
	int buckets = 1 << class->log_buckets, ranks = sort->ranks.count, own = sort->ranks.own;
	int own_sizes[1 << 10] = { 0 }, sizes[1 << 10], at[1 << 10];
	int *send_counts = lab_memory((size_t)ranks, sizeof(int)), *send_starts = lab_memory((size_t)ranks, sizeof(int));
	int *counts = lab_memory((size_t)ranks, sizeof(int)), *starts = lab_memory((size_t)ranks, sizeof(int));
	long sum = 0, taken = 0;
	int start = 0, to = 0, first_bucket = 0, behind_bucket = 0;

	for (long key = 0; key < sort->count; key++)
		own_sizes[bucket_of(class, sort->keys[key])]++;
	for (int bucket = 0; bucket < buckets; start += own_sizes[bucket++])
		at[bucket] = start;
	for (long key = 0; key < sort->count; key++)
		sort->bucketed[at[bucket_of(class, sort->keys[key])]++] = sort->keys[key];

	MPI_Allreduce(own_sizes, sizes, buckets, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	/* A rank takes buckets until all up to it have their share; the last takes the rest. */
	for (int bucket = 0; bucket < buckets; bucket++) {
		send_counts[to] += own_sizes[bucket];
		taken += sizes[bucket];
		if (to == own) {
			behind_bucket = bucket + 1;
			sum += sizes[bucket];
		}
		if (to + 1 < ranks && taken >= lab_first(is_keys(class), to + 1, ranks)) {
			to++;
			if (to == own) {
				first_bucket = behind_bucket = bucket + 1;
				sort->keys_before = taken;
			}
		}
	}
	/* Ranks that got none stand behind all others. */
	if (to < own) {
		first_bucket = behind_bucket = buckets;
		sort->keys_before = taken;
	}

	MPI_Alltoall(send_counts, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
	for (int rank = 1; rank < ranks; rank++) {
		send_starts[rank] = send_starts[rank - 1] + send_counts[rank - 1];
		starts[rank] = starts[rank - 1] + counts[rank - 1];
	}
	sort->received_count = sum;
	if (sort->received_capacity < (size_t)sum) {
		free(sort->received);
		sort->received = lab_memory((size_t)sum, sizeof(int));
		sort->received_capacity = (size_t)sum;
	}
	MPI_Alltoallv(sort->bucketed, send_counts, send_starts, MPI_INT, sort->received, counts, starts, MPI_INT,
		      MPI_COMM_WORLD);
	sort->sent_bytes += 4.0 * (double)(sort->count - send_counts[own]);

	sort->low = (long)first_bucket << (class->log_max_key - class->log_buckets);
	sort->high = (long)behind_bucket << (class->log_max_key - class->log_buckets);
	memset(sort->below, 0, (size_t)(sort->high - sort->low + 1) * sizeof(int));
	for (long key = 0; key < sum; key++)
		sort->below[sort->received[key] - sort->low + 1]++;
	for (long key = 1; key <= sort->high - sort->low; key++)
		sort->below[key] += sort->below[key - 1];
	free(send_counts);
	free(send_starts);
	free(counts);
	free(starts);
}

/* The test keys, from the ranks that hold them. */
static void read_tests(const struct sort *sort, int tests[IS_TESTS])
{
	int own[IS_TESTS] = { 0 };

	for (int test = 0; test < IS_TESTS; test++) {
		long at = sort->class->index[test] - sort->first;

		if (at >= 0 && at < sort->count)
			own[test] = sort->keys[at];
	}
	MPI_Allreduce(own, tests, IS_TESTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* Each rank sorts its keys; its first must not be less than the last of the ranks before. */
static int is_sorted(struct sort *sort)
{
	int *sorted = lab_memory((size_t)sort->received_count, sizeof(int));
	int right, all, largest = -1, before = -1;
	long keys = 0;

	for (long at = 0; at < sort->received_count; at++)
		sorted[sort->below[sort->received[at] - sort->low]++] = sort->received[at];
	right = 1;
	for (long at = 1; at < sort->received_count; at++)
		right &= sorted[at - 1] <= sorted[at];
	if (sort->received_count)
		largest = sorted[sort->received_count - 1];
	MPI_Exscan(&largest, &before, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (sort->ranks.own == 0)
		before = -1;
	right &= !sort->received_count || before <= sorted[0];
	/* None was lost. */
	MPI_Allreduce(&sort->received_count, &keys, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	right &= keys == is_keys(sort->class);
	MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	free(sorted);
	return all;
}

int main(int argc, char **argv)
{
	struct ranks ranks = ranks_begin(&argc, &argv);
	struct sort sort = { .class = is_class(argc, argv), .ranks = ranks };
	long total = is_keys(sort.class), own_passed = 0, passed = 0;
	double begun = 0, seconds;
	int code = 0, in_order;

	sort.first = lab_first(total, ranks.own, ranks.count);
	sort.count = lab_first(total, ranks.own + 1, ranks.count) - sort.first;
	sort.keys = lab_memory((size_t)sort.count, sizeof(int));
	sort.bucketed = lab_memory((size_t)sort.count, sizeof(int));
	sort.below = lab_memory((size_t)is_max_key(sort.class) + 1, sizeof(int));
	is_generate(sort.class, sort.keys, sort.first, sort.count);
	/* Iteration 0 stands for the untimed one, which is another 1. */
	for (int iteration = 0; iteration <= IS_ITERATIONS; iteration++) {
		int tests[IS_TESTS];

		if (iteration == 1) {
			MPI_Barrier(MPI_COMM_WORLD);
			begun = lab_now_s();
		}
		is_modify(sort.class, sort.keys, sort.first, sort.count, iteration ? iteration : 1);
		read_tests(&sort, tests);
		rank_keys(&sort);
		for (int test = 0; iteration && test < IS_TESTS; test++)
			if (tests[test] >= sort.low && tests[test] < sort.high)
				own_passed += is_test_passes(sort.class, test, iteration,
							     sort.keys_before + sort.below[tests[test] - sort.low]);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	seconds = lab_now_s() - begun;
	in_order = is_sorted(&sort);
	MPI_Reduce(&own_passed, &passed, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	ranks_report(ranks, sort.sent_bytes);
	if (ranks.own == 0)
		code = is_report(sort.class, seconds, passed + in_order);
	return ranks_end(code);
}
