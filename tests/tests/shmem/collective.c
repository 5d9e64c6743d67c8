/* Collectives, of teams and of active sets. */
#include "check.h"

#define N 5
#define MAX 8
static int me, n;
static long psync[SHMEM_SYNC_SIZE], psync2[SHMEM_SYNC_SIZE];

#define TYPE(name, type) \
	static type name##_dest[4 * MAX * N * 2], name##_source[4 * MAX * N * 2]; \
	static void name##_clear(void) \
	{ \
		shmem_sync_all(); \
		for (int i = 0; i < 4 * MAX * N * 2; i++) { \
			name##_source[i] = (type)((me * 13 + i) % 97); \
			name##_dest[i] = (type)120; \
		} \
		shmem_sync_all(); \
	} \
	static type name##_at(int pe, int i) { return (type)((pe * 13 + i) % 97); } \
	static void name##_test(shmem_team_t team, int size, int first, int stride) \
	{ \
		int rank = shmem_team_my_pe(team); \
		name##_clear(); \
		if (team != SHMEM_TEAM_INVALID) { \
			int root = size - 1; \
			CHECK(!shmem_##name##_broadcast(team, name##_dest, name##_source, N, root)); \
			for (int i = 0; i < N; i++) \
				CHECK(name##_dest[i] == name##_at(first + root * stride, i)); \
			CHECK(name##_dest[N] == (type)120); \
		} \
		name##_clear(); \
		if (team != SHMEM_TEAM_INVALID) { \
			CHECK(!shmem_##name##_fcollect(team, name##_dest, name##_source, N)); \
			for (int i = 0; i < N * size; i++) \
				CHECK(name##_dest[i] == name##_at(first + i / N * stride, i % N)); \
			CHECK(name##_dest[N * size] == (type)120); \
		} \
		name##_clear(); \
		if (team != SHMEM_TEAM_INVALID) { \
			/* Each has another length, the first none. */ \
			CHECK(!shmem_##name##_collect(team, name##_dest, name##_source, \
						      (size_t)rank)); \
			int at = 0; \
			for (int other = 0; other < size; other++) \
				for (int i = 0; i < other; i++) \
					CHECK(name##_dest[at++] == \
					      name##_at(first + other * stride, i)); \
			CHECK(name##_dest[at] == (type)120); \
		} \
		name##_clear(); \
		if (team != SHMEM_TEAM_INVALID) { \
			CHECK(!shmem_##name##_alltoall(team, name##_dest, name##_source, N)); \
			for (int i = 0; i < N * size; i++) \
				CHECK(name##_dest[i] == name##_at(first + i / N * stride, \
								  rank * N + i % N)); \
			CHECK(name##_dest[N * size] == (type)120); \
		} \
		name##_clear(); \
		if (team != SHMEM_TEAM_INVALID) { \
			CHECK(!shmem_##name##_alltoalls(team, name##_dest, name##_source, 3, 2, N)); \
			for (int i = 0; i < N * size * 3; i++) { \
				int k = i / 3; \
				CHECK(name##_dest[i] == \
				      (i % 3 ? (type)120 \
					     : name##_at(first + k / N * stride, \
							 (rank * N + k % N) * 2))); \
			} \
		} \
	}
YASMIN_SHMEM_RMA(TYPE)

static void restored(void)
{
	for (int i = 0; i < SHMEM_SYNC_SIZE; i++)
		CHECK(psync[i] == SHMEM_SYNC_VALUE && psync2[i] == SHMEM_SYNC_VALUE);
}

/* An active set of `size` from `first` on, every 2^log-th. */
#define ACTIVE(bits, type, name) \
	static void active##bits(int first, int log, int size) \
	{ \
		int stride = 1 << log; \
		bool is_in = me >= first && (me - first) % stride == 0 && \
			     (me - first) / stride < size; \
		int rank = (me - first) / stride; \
		for (int round = 0; round < 20; round++) { \
			name##_clear(); \
			if (!is_in) { \
				for (int i = 0; i < 4; i++) \
					name##_clear(); \
				continue; \
			} \
			long *ps = round % 2 ? psync : psync2; \
			int root = round % size; \
			shmem_broadcast##bits(name##_dest, name##_source, N, root, first, log, size, ps); \
			for (int i = 0; i < N; i++) \
				CHECK(name##_dest[i] == \
				      (rank == root ? (type)120 : name##_at(first + root * stride, i))); \
			name##_clear(); \
			shmem_fcollect##bits(name##_dest, name##_source, N, first, log, size, psync); \
			for (int i = 0; i < N * size; i++) \
				CHECK(name##_dest[i] == name##_at(first + i / N * stride, i % N)); \
			name##_clear(); \
			shmem_collect##bits(name##_dest, name##_source, (size_t)rank + 1, first, log, \
					    size, psync2); \
			int at = 0; \
			for (int other = 0; other < size; other++) \
				for (int i = 0; i <= other; i++) \
					CHECK(name##_dest[at++] == \
					      name##_at(first + other * stride, i)); \
			name##_clear(); \
			shmem_alltoall##bits(name##_dest, name##_source, N, first, log, size, psync); \
			for (int i = 0; i < N * size; i++) \
				CHECK(name##_dest[i] == \
				      name##_at(first + i / N * stride, rank * N + i % N)); \
			name##_clear(); \
			shmem_alltoalls##bits(name##_dest, name##_source, 2, 3, N, first, log, size, \
					      psync2); \
			for (int k = 0; k < N * size; k++) \
				CHECK(name##_dest[2 * k] == name##_at(first + k / N * stride, \
								      (rank * N + k % N) * 3)); \
			shmem_barrier(first, log, size, psync); \
			shmem_sync(first, log, size, psync2); \
		} \
		shmem_barrier_all(); \
		restored(); \
		shmem_barrier_all(); \
	}
ACTIVE(32, int, int)
ACTIVE(64, long, long)

static volatile int turn[MAX];

int main(void)
{
	shmem_team_t odd;
	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	CHECK(n <= MAX);
	/* Nobody leaves a barrier before all have come. */
	for (int round = 1; round < 500; round++) {
		turn[me] = round;
		if (round % 3 == 0)
			shmem_team_sync(SHMEM_TEAM_SHARED);
		else if (round % 3 == 1)
			shmem_barrier_all();
		else
			shmem_sync(0, 0, n, psync);
		for (int pe = 0; pe < n; pe++)
			CHECK(*(volatile int *)shmem_ptr((void *)&turn[pe], pe) >= round);
		shmem_sync_all();
	}
#define RUN(name, type) name##_test(SHMEM_TEAM_WORLD, n, 0, 1);
	YASMIN_SHMEM_RMA(RUN)
	if (n > 1) {
		CHECK(!shmem_team_split_strided(SHMEM_TEAM_WORLD, 1, 2, n / 2, NULL, 0, &odd));
#define RUN_ODD(name, type) name##_test(odd, n / 2, 1, 2);
		YASMIN_SHMEM_RMA(RUN_ODD)
	}
	static char bytes[64], all[64 * MAX];
	memset(bytes, me + 1, sizeof(bytes));
	shmem_barrier_all();
	CHECK(!shmem_fcollectmem(SHMEM_TEAM_WORLD, all, bytes, 7));
	for (int i = 0; i < 7 * n; i++)
		CHECK(all[i] == i / 7 + 1);
	CHECK(!shmem_collectmem(SHMEM_TEAM_WORLD, all, bytes, (size_t)me + 1));
	CHECK(all[0] == 1 && all[n * (n + 1) / 2 - 1] == n);
	CHECK(!shmem_broadcastmem(SHMEM_TEAM_WORLD, all, bytes, 9, n - 1) && all[8] == n);
	CHECK(!shmem_alltoallmem(SHMEM_TEAM_WORLD, all, bytes, 3) && all[3 * n - 1] == n);
	CHECK(!shmem_alltoallsmem(SHMEM_TEAM_WORLD, all, bytes, 2, 1, 3) && all[2 * 3 * n - 2] == n);
	CHECK(shmem_team_sync(SHMEM_TEAM_INVALID) == -1);
	active32(0, 0, n);
	active64(0, 0, n);
	active64(0, 1, (n + 1) / 2);
	active32(n - 1, 0, 1);
	if (n > 2)
		active32(1, 0, n - 1);
	shmem_finalize();
	return 0;
}
