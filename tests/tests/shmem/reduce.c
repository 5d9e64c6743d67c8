/* Reductions of every type and operation, of teams and active sets, in place too. */
#include "check.h"
#include <complex.h>

#define N 150
static int me, n;
static long psync[SHMEM_REDUCE_SYNC_SIZE];

/* Small enough that a product of eight fits in a signed char. */
#define AT(type, pe, i) ((type)(1 + ((pe) + (i)) % 2))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))
#define XOR(a, b) ((a) ^ (b))
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((b) > (a) ? (b) : (a))
#define SUM(a, b) ((a) + (b))
#define PROD(a, b) ((a) * (b))

#define STORE(name, type) static type name##_dest[N], name##_source[N];
#define WORK(name, type) static type name##_work[N];
YASMIN_SHMEM_RMA(STORE)
YASMIN_SHMEM_COMPLEX(STORE)
YASMIN_SHMEM_TO_ALL_INTEGERS(WORK)
YASMIN_SHMEM_TO_ALL_REALS(WORK)
YASMIN_SHMEM_COMPLEX(WORK)

#define FILL(name, type) \
	shmem_barrier_all(); \
	for (int i = 0; i < N; i++) { \
		name##_source[i] = AT(type, me, i); \
		name##_dest[i] = (type)77; \
	} \
	shmem_barrier_all();
#define SEEN(name, type, OP, what) \
	for (int i = 0; i < N; i++) { \
		type wanted = AT(type, 0, i); \
		for (int pe = 1; pe < n; pe++) \
			wanted = (type)OP(wanted, AT(type, pe, i)); \
		CHECK(what[i] == wanted); \
	}
#define TEAM(name, type, word, OP) \
	FILL(name, type) \
	CHECK(!shmem_##name##_##word##_reduce(SHMEM_TEAM_WORLD, name##_dest, name##_source, N)); \
	SEEN(name, type, OP, name##_dest) \
	CHECK(name##_source[0] == AT(type, me, 0)); \
	CHECK(!shmem_##name##_##word##_reduce(SHMEM_TEAM_WORLD, name##_source, name##_source, N)); \
	SEEN(name, type, OP, name##_source)
#define ACTIVE(name, type, word, OP) \
	FILL(name, type) \
	shmem_##name##_##word##_to_all(name##_dest, name##_source, N, 0, 0, n, name##_work, psync); \
	SEEN(name, type, OP, name##_dest) \
	shmem_##name##_##word##_to_all(name##_source, name##_source, N, 0, 0, n, name##_work, psync); \
	SEEN(name, type, OP, name##_source)

#define TEAM_BITS(name, type) \
	TEAM(name, type, and, AND) TEAM(name, type, or, OR) TEAM(name, type, xor, XOR)
#define TEAM_SUMS(name, type) TEAM(name, type, sum, SUM) TEAM(name, type, prod, PROD)
#define TEAM_NUMBERS(name, type) \
	TEAM(name, type, min, MIN) TEAM(name, type, max, MAX) TEAM_SUMS(name, type)
#define ACTIVE_BITS(name, type) \
	ACTIVE(name, type, and, AND) ACTIVE(name, type, or, OR) ACTIVE(name, type, xor, XOR)
#define ACTIVE_SUMS(name, type) ACTIVE(name, type, sum, SUM) ACTIVE(name, type, prod, PROD)
#define ACTIVE_NUMBERS(name, type) \
	ACTIVE(name, type, min, MIN) ACTIVE(name, type, max, MAX) ACTIVE_SUMS(name, type)

int main(void)
{
	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	YASMIN_SHMEM_REDUCED_BITS(TEAM_BITS)
	YASMIN_SHMEM_RMA(TEAM_NUMBERS)
	YASMIN_SHMEM_COMPLEX(TEAM_SUMS)
	YASMIN_SHMEM_TO_ALL_INTEGERS(ACTIVE_BITS)
	YASMIN_SHMEM_TO_ALL_INTEGERS(ACTIVE_NUMBERS)
	YASMIN_SHMEM_TO_ALL_REALS(ACTIVE_NUMBERS)
	YASMIN_SHMEM_COMPLEX(ACTIVE_SUMS)
	/* Distinct values, of signed and of unsigned. */
	int_source[0] = me - 1;
	uint_source[0] = (unsigned)me - 1;
	shmem_barrier_all();
	shmem_int_min_reduce(SHMEM_TEAM_WORLD, int_dest, int_source, 1);
	shmem_uint_max_reduce(SHMEM_TEAM_WORLD, uint_dest, uint_source, 1);
	CHECK(int_dest[0] == -1 && uint_dest[0] == UINT32_MAX);
	CHECK(shmem_int_sum_reduce(SHMEM_TEAM_INVALID, int_dest, int_source, 1) == -1);
	/* Every second PE, and none. */
	if (me % 2 == 0) {
		shmem_int_sum_to_all(int_dest, int_source, 1, 0, 1, (n + 1) / 2, int_work, psync);
		int sum = 0;
		for (int pe = 0; pe < n; pe += 2)
			sum += pe - 1;
		CHECK(int_dest[0] == sum);
	}
	shmem_barrier_all();
	CHECK(!shmem_int_sum_reduce(SHMEM_TEAM_WORLD, int_dest, int_source, 0));
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		CHECK(psync[i] == SHMEM_SYNC_VALUE);
	shmem_finalize();
	return 0;
}
