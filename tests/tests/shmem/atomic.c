/* Atomics of every type: values that come back, and nothing lost between PEs. */
#include "check.h"

#define ROUNDS 2000
static int me, n;
static shmem_ctx_t ctx;

#define EXTENDED(name, type) \
	static type name##_word; \
	static void name##_extended(void) \
	{ \
		type old; \
		int next = (me + 1) % n, last = (me + n - 1) % n; \
		shmem_##name##_atomic_set(&name##_word, (type)(me + 1), next); \
		shmem_barrier_all(); \
		CHECK(name##_word == (type)(last + 1)); \
		CHECK(shmem_##name##_atomic_fetch(&name##_word, next) == (type)(me + 1)); \
		shmem_ctx_##name##_atomic_fetch_nbi(ctx, &old, &name##_word, next); \
		shmem_quiet(); \
		CHECK(old == (type)(me + 1)); \
		shmem_barrier_all(); \
		CHECK(shmem_##name##_atomic_swap(&name##_word, (type)50, next) == (type)(me + 1)); \
		shmem_##name##_atomic_swap_nbi(&old, &name##_word, (type)60, next); \
		shmem_quiet(); \
		CHECK(old == (type)50); \
		shmem_barrier_all(); \
		CHECK(name##_word == (type)60); \
		shmem_barrier_all(); \
		name##_word = 0; \
		shmem_barrier_all(); \
	}
YASMIN_SHMEM_EXTENDED(EXTENDED)

#define INTEGER(name, type) \
	static void name##_integer(void) \
	{ \
		type old, sum = 0; \
		for (int i = 0; i < ROUNDS; i++) { \
			shmem_##name##_atomic_inc(&name##_word, i % n); \
			shmem_ctx_##name##_atomic_add(ctx, &name##_word, 2, i % n); \
			old = shmem_##name##_atomic_fetch_inc(&name##_word, i % n); \
			sum += old < (type)(12 * n * ROUNDS); \
			shmem_##name##_atomic_fetch_add(&name##_word, 3, i % n); \
			shmem_##name##_atomic_fetch_inc_nbi(&old, &name##_word, i % n); \
			shmem_##name##_atomic_fetch_add_nbi(&old, &name##_word, 4, i % n); \
		} \
		shmem_barrier_all(); \
		/* Each PE did so to all in turn. */ \
		CHECK(sum == ROUNDS); \
		CHECK(name##_word == (type)(n * ((ROUNDS + n - 1 - me) / n) * 12)); \
		shmem_barrier_all(); \
		if (!me) \
			name##_word = 10; \
		shmem_barrier_all(); \
		/* One of all gets it. */ \
		old = shmem_##name##_atomic_compare_swap(&name##_word, 10, (type)(20 + me), 0); \
		CHECK(old == 10 || (old >= 20 && old < 20 + (type)n && old != (type)(20 + me))); \
		shmem_barrier_all(); \
		CHECK((old == 10) == (shmem_##name##_g(&name##_word, 0) == (type)(20 + me))); \
		shmem_barrier_all(); \
		shmem_##name##_atomic_compare_swap_nbi(&old, &name##_word, 5, 6, 0); \
		shmem_quiet(); \
		CHECK(old >= 20); \
	}
YASMIN_SHMEM_INTEGERS(INTEGER)

#define BITWISE(name, type) \
	static void name##_bitwise(void) \
	{ \
		type old, bit = (type)1 << me; \
		shmem_barrier_all(); \
		name##_word = 0; \
		shmem_barrier_all(); \
		CHECK(!(shmem_##name##_atomic_fetch_or(&name##_word, bit, 0) & bit)); \
		shmem_##name##_atomic_or(&name##_word, (type)(bit << 8), 0); \
		shmem_##name##_atomic_fetch_or_nbi(&old, &name##_word, (type)(bit << 16), 0); \
		shmem_barrier_all(); \
		old = shmem_##name##_atomic_fetch(&name##_word, 0); \
		type all = ((type)1 << n) - 1; \
		CHECK(old == (type)(all | all << 8 | all << 16)); \
		shmem_barrier_all(); \
		shmem_ctx_##name##_atomic_and(ctx, &name##_word, (type)~bit, 0); \
		CHECK(shmem_##name##_atomic_fetch_and(&name##_word, (type)~(bit << 8), 0) & bit << 8); \
		shmem_##name##_atomic_fetch_and_nbi(&old, &name##_word, (type)~(bit << 8), 0); \
		CHECK(!(old & bit << 8)); \
		shmem_barrier_all(); \
		CHECK(shmem_##name##_g(&name##_word, 0) == (type)(all << 16)); \
		shmem_barrier_all(); \
		shmem_##name##_atomic_xor(&name##_word, bit, 0); \
		CHECK(shmem_##name##_atomic_fetch_xor(&name##_word, bit << 16, 0) & bit); \
		shmem_##name##_atomic_fetch_xor_nbi(&old, &name##_word, bit << 8, 0); \
		shmem_barrier_all(); \
		CHECK(shmem_##name##_g(&name##_word, 0) == (type)(all | all << 8)); \
	}
YASMIN_SHMEM_BITWISE(BITWISE)

int main(void)
{
	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	CHECK(!shmem_ctx_create(0, &ctx));
#define RUN_EXTENDED(name, type) name##_extended();
#define RUN_INTEGER(name, type) name##_integer();
#define RUN_BITWISE(name, type) name##_bitwise();
	YASMIN_SHMEM_EXTENDED(RUN_EXTENDED)
	YASMIN_SHMEM_INTEGERS(RUN_INTEGER)
	YASMIN_SHMEM_BITWISE(RUN_BITWISE)
	/* Deprecated names. */
	shmem_barrier_all();
	long_word = 3;
	float_word = 1.5f;
	CHECK(shmem_long_fadd(&long_word, 4, me) == 3 && shmem_long_finc(&long_word, me) == 7);
	shmem_long_add(&long_word, 2, me);
	shmem_long_inc(&long_word, me);
	CHECK(shmem_long_cswap(&long_word, 11, 5, me) == 11 && shmem_long_fetch(&long_word, me) == 5);
	CHECK(shmem_float_swap(&float_word, 2.5f, me) == 1.5f);
	shmem_float_set(&float_word, 4.5f, me);
	CHECK(shmem_float_fetch(&float_word, me) == 4.5f);
	shmem_finalize();
	return 0;
}
