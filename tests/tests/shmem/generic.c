/* C11: one name for all types, with a context and without. */
#include "check.h"

#define EACH(type, i) \
	{ \
		static type a[4], b[4], c; \
		for (int k = 0; k < 4; k++) \
			b[k] = (type)(me + k); \
		c = 0; \
		shmem_barrier_all(); \
		shmem_put(a, b, 2, next); \
		shmem_put(ctx, a + 2, b + 2, 2, next); \
		shmem_barrier_all(); \
		for (int k = 0; k < 4; k++) \
			CHECK(a[k] == (type)(last + k)); \
		shmem_get(a, b, 4, next); \
		CHECK(a[3] == (type)(next + 3)); \
		shmem_get_nbi(SHMEM_CTX_DEFAULT, a, b, 4, last); \
		shmem_put_nbi(&c, &b[1], 1, next); \
		shmem_barrier_all(); \
		CHECK(a[3] == (type)(last + 3) && c == (type)(last + 1)); \
		shmem_barrier_all(); \
		shmem_p(&c, (type)(me + 9), next); \
		shmem_barrier_all(); \
		CHECK(c == (type)(last + 9) && shmem_g(&c, next) == (type)(me + 9)); \
		CHECK(shmem_g(ctx, (const type *)&c, next) == (type)(me + 9)); \
		shmem_iput(a, b, 2, 1, 2, me); \
		shmem_iget(ctx, a, b, 2, 1, 2, me); \
		CHECK(a[2] == (type)(me + 1)); \
		static uint64_t sig; \
		shmem_barrier_all(); \
		shmem_put_signal(a, b, 1, &sig, 1, SHMEM_SIGNAL_ADD, next); \
		shmem_put_signal_nbi(ctx, a, b, 1, &sig, 1, SHMEM_SIGNAL_ADD, next); \
		shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 2); \
		CHECK(a[0] == (type)last); \
		static type all[8], sum; \
		CHECK(!shmem_broadcast(SHMEM_TEAM_WORLD, &sum, b, 1, n - 1) && sum == (type)(n - 1)); \
		CHECK(!shmem_fcollect(SHMEM_TEAM_WORLD, all, b, 1) && all[n - 1] == (type)(n - 1)); \
		CHECK(!shmem_collect(SHMEM_TEAM_WORLD, all, b, 1) && all[0] == 0); \
		CHECK(!shmem_alltoall(SHMEM_TEAM_WORLD, all, all, 0)); \
		CHECK(!shmem_alltoalls(SHMEM_TEAM_WORLD, all, all, 1, 1, 0)); \
		CHECK(!shmem_sum_reduce(SHMEM_TEAM_WORLD, &sum, &b[0], 1)); \
		CHECK(sum == (type)(n * (n - 1) / 2)); \
		CHECK(!shmem_prod_reduce(SHMEM_TEAM_WORLD, &sum, &b[0], 1) && sum == 0); \
		CHECK(!shmem_max_reduce(SHMEM_TEAM_WORLD, &sum, &b[0], 1) && sum == (type)(n - 1)); \
		CHECK(!shmem_min_reduce(SHMEM_TEAM_WORLD, &sum, &b[1], 1) && sum == 1); \
	}
#define ATOMIC(type, i) \
	{ \
		static type word, got; \
		word = 5; \
		CHECK(shmem_atomic_fetch(&word, me) == 5); \
		shmem_atomic_set(ctx, &word, 6, me); \
		CHECK(shmem_atomic_swap(&word, 7, me) == 6); \
		shmem_atomic_fetch_nbi(&got, &word, me); \
		shmem_atomic_swap_nbi(ctx, &got, &word, 8, me); \
		CHECK(got == 7 && shmem_fetch(&word, me) == 8); \
	}
#define INTEGER(type, i) \
	ATOMIC(type, i) \
	{ \
		static type word, got, many[3]; \
		size_t indices[3]; \
		word = 5; \
		CHECK(shmem_atomic_compare_swap(&word, 5, 6, me) == 5); \
		CHECK(shmem_atomic_fetch_inc(&word, me) == 6 && \
		      shmem_atomic_fetch_add(ctx, &word, 3, me) == 7); \
		shmem_atomic_inc(&word, me); \
		shmem_atomic_add(ctx, &word, 2, me); \
		shmem_atomic_compare_swap_nbi(&got, &word, 13, 20, me); \
		shmem_atomic_fetch_inc_nbi(&got, &word, me); \
		shmem_atomic_fetch_add_nbi(ctx, &got, &word, 1, me); \
		CHECK(got == 21 && shmem_finc(&word, me) == 22 && shmem_fadd(&word, 1, me) == 23); \
		shmem_inc(&word, me); \
		shmem_add(&word, 1, me); \
		shmem_wait_until(&word, SHMEM_CMP_EQ, 26); \
		CHECK(shmem_test(&word, SHMEM_CMP_GT, 25)); \
		CHECK(shmem_test_any(many, 3, NULL, SHMEM_CMP_EQ, 0) == 0); \
		CHECK(shmem_wait_until_some(many, 3, indices, NULL, SHMEM_CMP_EQ, 0) == 3); \
		shmem_wait_until_all_vector(many, 3, NULL, SHMEM_CMP_EQ, many); \
	}

int main(void)
{
	static long psync[SHMEM_SYNC_SIZE];
	static unsigned bits = 6;
	static double _Complex z = 1, zs;
	shmem_ctx_t ctx;

	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, last = (me + n - 1) % n;
	CHECK(!shmem_ctx_create(0, &ctx));
	EACH(float, 0) EACH(double, 0) EACH(long double, 0) EACH(char, 0) EACH(signed char, 0)
	EACH(short, 0) EACH(int, 0) EACH(long, 0) EACH(long long, 0) EACH(unsigned char, 0)
	EACH(unsigned short, 0) EACH(unsigned int, 0) EACH(unsigned long, 0)
	EACH(unsigned long long, 0) EACH(size_t, 0) EACH(int8_t, 0) EACH(uint64_t, 0)
	ATOMIC(float, 0) ATOMIC(double, 0)
	INTEGER(int, 0) INTEGER(long, 0) INTEGER(long long, 0) INTEGER(unsigned int, 0)
	INTEGER(unsigned long, 0) INTEGER(unsigned long long, 0) INTEGER(ptrdiff_t, 0)
	CHECK(shmem_atomic_fetch_and(&bits, 3u, me) == 6 && shmem_atomic_fetch_or(&bits, 8u, me) == 2);
	shmem_atomic_xor(ctx, &bits, 1u, me);
	CHECK(bits == 11);
	shmem_barrier_all();
	static unsigned reduced;
	CHECK(!shmem_or_reduce(SHMEM_TEAM_WORLD, &reduced, &bits, 1) && reduced == 11);
	CHECK(!shmem_and_reduce(SHMEM_TEAM_WORLD, &reduced, &bits, 1) && reduced == 11);
	CHECK(!shmem_xor_reduce(SHMEM_TEAM_WORLD, &reduced, &bits, 1) && reduced == (n % 2 ? 11 : 0));
	CHECK(!shmem_sum_reduce(SHMEM_TEAM_WORLD, &zs, &z, 1) && zs == n);
	CHECK(!shmem_sync(SHMEM_TEAM_WORLD));
	shmem_sync(0, 0, n, psync);
	shmem_finalize();
	return 0;
}
