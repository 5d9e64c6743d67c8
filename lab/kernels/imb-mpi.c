/* Point-to-point by the definitions of the Intel MPI Benchmarks, for sizes 0, 1, 2, 4 ... MOST:
 *
 *   pingpong   ranks 0 and 1: a message there and back; half of that time; bytes / time
 *   pingping   ranks 0 and 1: both send at once (Isend, Recv, Wait); bytes / time
 *   sendrecv   all ranks in a ring: each sends to the right and receives from the left;
 *              2 x bytes / time
 *
 * 1,000 repetitions, fewer where they would move more than 40 MB; the time is the slowest rank's.
 * In a last, untimed repetition of each size every byte that was received is looked at.
 */
#include "ranks.h"

enum pattern { PINGPONG, PINGPING, SENDRECV };

static const char *const names[] = { "pingpong", "pingping", "sendrecv" };

static const long most_repetitions = 1000, volume_bytes = 40000000, warm_up = 10;

static unsigned char byte_of(int rank, long at, long len)
{
	return (unsigned char)(rank * 31 + at * 7 + len);
}

static void repeat(enum pattern pattern, struct ranks ranks, unsigned char *out, unsigned char *in, int len)
{
	int other = 1 - ranks.own, left = (ranks.own + ranks.count - 1) % ranks.count;
	int right = (ranks.own + 1) % ranks.count;
	MPI_Request request;

	if (pattern != SENDRECV && ranks.own > 1)
		return;
	switch (pattern) {
	case PINGPONG:
		if (ranks.own == 0)
			MPI_Send(out, len, MPI_BYTE, other, 0, MPI_COMM_WORLD);
		MPI_Recv(in, len, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (ranks.own == 1)
			MPI_Send(out, len, MPI_BYTE, other, 0, MPI_COMM_WORLD);
		break;
	case PINGPING:
		MPI_Isend(out, len, MPI_BYTE, other, 0, MPI_COMM_WORLD, &request);
		MPI_Recv(in, len, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		break;
	case SENDRECV:
		MPI_Sendrecv(out, len, MPI_BYTE, right, 0, in, len, MPI_BYTE, left, 0, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		break;
	}
}

int main(int argc, char **argv)
{
	struct ranks ranks = ranks_begin(&argc, &argv);
	long most, passed = 0, all = 0;
	enum pattern pattern = PINGPONG;
	unsigned char *out, *in;
	double sent = 0;
	int code = 0, from;

	if (argc != 3)
		lab_die("usage", "imb pingpong|pingping|sendrecv MOST");
	while (strcmp(names[pattern], argv[1]))
		if (pattern++ == SENDRECV)
			lab_die("no pattern (pingpong, pingping, sendrecv)", argv[1]);
	most = lab_number(argv[2], 0, 1 << 26);
	if (ranks.count < 2)
		lab_die("fewer than 2 ranks for", argv[1]);
	out = lab_memory((size_t)most, 1);
	in = lab_memory((size_t)most, 1);
	from = pattern == SENDRECV ? (ranks.own + ranks.count - 1) % ranks.count : 1 - ranks.own;

	for (long len = 0; len <= most; len = len ? 2 * len : 1) {
		long repetitions = len * most_repetitions > volume_bytes ? volume_bytes / len : most_repetitions;
		double begun, own, seconds = 0;
		int right = 1, all_right = 0;

		if (repetitions < 1)
			repetitions = 1;
		for (long nth = 0; nth < warm_up; nth++)
			repeat(pattern, ranks, out, in, (int)len);
		MPI_Barrier(MPI_COMM_WORLD);
		begun = lab_now_s();
		for (long nth = 0; nth < repetitions; nth++)
			repeat(pattern, ranks, out, in, (int)len);
		own = (lab_now_s() - begun) / (double)repetitions;

		for (long at = 0; at < len; at++)
			out[at] = byte_of(ranks.own, at, len);
		memset(in, 0, (size_t)len);
		repeat(pattern, ranks, out, in, (int)len);
		if (pattern == SENDRECV || ranks.own < 2) {
			for (long at = 0; at < len; at++)
				right &= in[at] == byte_of(from, at, len);
			sent += (double)(len * (warm_up + repetitions + 1));
		}
		MPI_Reduce(&own, &seconds, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		MPI_Reduce(&right, &all_right, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
		if (ranks.own == 0) {
			double one = pattern == PINGPONG ? seconds / 2 : seconds;
			double bytes = (double)len * (pattern == SENDRECV ? 2 : 1);

			printf("point %ld %.3f %.3f 0\n", len, 1e9 * one, bytes / one);
			passed += all_right;
			all++;
		}
	}
	ranks_report(ranks, sent);
	if (ranks.own == 0)
		code = lab_checked(passed, all);
	return ranks_end(code);
}
