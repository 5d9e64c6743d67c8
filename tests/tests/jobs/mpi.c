/* Ranks that check every byte they get. Prints "all right" at the end, aborts otherwise. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void check(int good, const char *what, long size)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s of %ld differs\n", rank, what, size);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char value(int from, int to, long at)
{
	return (unsigned char)(from * 31 + to * 17 + at * 7 + (at >> 8));
}

static void fill(unsigned char *to, int from, int dest, long size)
{
	for (long i = 0; i < size; i++)
		to[i] = value(from, dest, i);
}

static void check_bytes(const unsigned char *got, int from, int dest, long size, const char *what)
{
	for (long i = 0; i < size; i++)
		check(got[i] == value(from, dest, i), what, size);
}

/* Everybody sends to everybody at once, without waiting. */
static void all_pairs(long size)
{
	unsigned char *out = malloc(size * ranks), *in = malloc(size * ranks);
	MPI_Request *requests = malloc(2 * ranks * sizeof *requests);

	memset(in, 0, size * ranks);
	for (int i = 0; i < ranks; i++) {
		MPI_Irecv(in + i * size, size, MPI_BYTE, i, 5, MPI_COMM_WORLD, &requests[i]);
		fill(out + i * size, rank, i, size);
	}
	for (int i = 0; i < ranks; i++)
		MPI_Isend(out + i * size, size, MPI_BYTE, i, 5, MPI_COMM_WORLD, &requests[ranks + i]);
	for (int done = 0; !done;)
		MPI_Testall(2 * ranks, requests, &done, MPI_STATUSES_IGNORE);
	for (int i = 0; i < ranks; i++)
		check_bytes(in + i * size, i, rank, size, "message");
	free(requests);
	free(in);
	free(out);
}

/* Round a ring, blocking, with sizes that are not known before. */
static void ring(long size)
{
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, count;
	unsigned char *out = malloc(size + 1), *in = malloc(size + 1);
	MPI_Status status;

	fill(out, rank, next, size);
	if (rank == 0)
		MPI_Send(out, size, MPI_BYTE, next, 6, MPI_COMM_WORLD);
	MPI_Probe(previous, 6, MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_BYTE, &count);
	check(count == size, "probed size", size);
	MPI_Recv(in, count, MPI_BYTE, previous, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check_bytes(in, previous, rank, size, "ring");
	if (rank != 0)
		MPI_Send(out, size, MPI_BYTE, next, 6, MPI_COMM_WORLD);
	free(in);
	free(out);
}

static void collectives(long count)
{
	long *in = malloc(count * ranks * sizeof *in), *out = malloc(count * ranks * sizeof *out);

	for (int root = 0; root < ranks; root++) {
		for (long i = 0; i < count; i++)
			in[i] = rank == root ? root + i : -1;
		MPI_Bcast(in, count, MPI_LONG, root, MPI_COMM_WORLD);
		for (long i = 0; i < count; i++)
			check(in[i] == root + i, "broadcast", count);
	}
	for (long i = 0; i < count; i++)
		in[i] = rank + i;
	MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (long i = 0; i < count; i++)
		check(out[i] == ranks * (ranks - 1) / 2 + ranks * i, "sum", count);
	MPI_Allgather(in, count, MPI_LONG, out, count, MPI_LONG, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		for (long i = 0; i < count; i++)
			check(out[from * count + i] == from + i, "gather", count);
	for (int to = 0; to < ranks; to++)
		for (long i = 0; i < count; i++)
			in[to * count + i] = rank * 1000000 + to * 1000 + i;
	MPI_Alltoall(in, count, MPI_LONG, out, count, MPI_LONG, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		for (long i = 0; i < count; i++)
			check(out[from * count + i] == from * 1000000 + rank * 1000 + i, "exchange", count);
	MPI_Barrier(MPI_COMM_WORLD);
	free(out);
	free(in);
}

int main(int argc, char **argv)
{
	static const long sizes[] = { 1, 7, 64, 1000, 4096, 33333, 70000, 300000, 1 << 20 };
	int rounds = argc > 1 ? atoi(argv[1]) : 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int round = 0; round < rounds; round++)
		for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			for (int again = 0; again < (sizes[i] < 5000 ? 10 : 1); again++) {
				all_pairs(sizes[i]);
				ring(sizes[i]);
			}
			collectives(sizes[i] / 8 + 1);
		}
	if (rank == 0)
		printf("all right\n");
	MPI_Finalize();
	return 0;
}
