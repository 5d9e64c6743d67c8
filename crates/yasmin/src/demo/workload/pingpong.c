/* Ping-pong of 1 byte between two ranks; prints the median one-way time in nanoseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 2000, BATCHES = 1001 };

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void round_trip(int rank)
{
	char byte = 1;
	if (rank == 0) {
		MPI_Send(&byte, 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(&byte, 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else {
		MPI_Recv(&byte, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(&byte, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
	}
}

int main(int argc, char **argv)
{
	static double ns[BATCHES];
	int rank, batch = argc > 1 ? atoi(argv[1]) : 100;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < WARM_UP; i++)
		round_trip(rank);
	for (int i = 0; i < BATCHES; i++) {
		double begun = MPI_Wtime();
		for (int j = 0; j < batch; j++)
			round_trip(rank);
		ns[i] = (MPI_Wtime() - begun) * 1e9 / (2 * batch);
	}
	if (rank == 0) {
		qsort(ns, BATCHES, sizeof ns[0], by_value);
		printf("median_ns %.1f\n", ns[BATCHES / 2]);
	}
	MPI_Finalize();
	return 0;
}
