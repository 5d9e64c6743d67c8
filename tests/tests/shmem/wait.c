/* Waiting and testing: one, all, any and some of many, by one value or a vector of them. */
#include "check.h"
#include <time.h>

#define N 6
static int me, n, next;

#define TYPE(name, type) \
	static type name##_ivars[N]; \
	static void name##_test(void) \
	{ \
		type values[N]; \
		size_t indices[N], found; \
		int status[N] = { 0, 1, 0, 0, 1, 0 }, all_out[N] = { 1, 1, 1, 1, 1, 1 }; \
		shmem_barrier_all(); \
		for (int i = 0; i < N; i++) { \
			name##_ivars[i] = 0; \
			values[i] = (type)(i + 1); \
		} \
		shmem_barrier_all(); \
		type *ivars = name##_ivars; \
		CHECK(!shmem_##name##_test(ivars, SHMEM_CMP_NE, 0)); \
		CHECK(shmem_##name##_test(ivars, SHMEM_CMP_EQ, 0)); \
		CHECK(shmem_##name##_test(ivars, SHMEM_CMP_LT, 1)); \
		CHECK(shmem_##name##_test(ivars, SHMEM_CMP_LE, 0)); \
		CHECK(shmem_##name##_test(ivars, SHMEM_CMP_GE, 0)); \
		CHECK(!shmem_##name##_test(ivars, SHMEM_CMP_GT, 0)); \
		CHECK(!shmem_##name##_test_all(ivars, N, NULL, SHMEM_CMP_NE, 0)); \
		CHECK(shmem_##name##_test_any(ivars, N, status, SHMEM_CMP_NE, 0) == SIZE_MAX); \
		CHECK(shmem_##name##_test_some(ivars, N, indices, NULL, SHMEM_CMP_NE, 0) == 0); \
		CHECK(shmem_##name##_test_all(ivars, N, all_out, SHMEM_CMP_NE, 0)); \
		shmem_##name##_wait_until_all(ivars, N, all_out, SHMEM_CMP_NE, 0); \
		CHECK(shmem_##name##_wait_until_any(ivars, N, all_out, SHMEM_CMP_NE, 0) == SIZE_MAX); \
		CHECK(shmem_##name##_wait_until_any(ivars, 0, NULL, SHMEM_CMP_NE, 0) == SIZE_MAX); \
		CHECK(shmem_##name##_wait_until_some(ivars, N, indices, all_out, SHMEM_CMP_NE, 0) == 0); \
		shmem_barrier_all(); \
		/* The next one writes 3 to [3]: it is waited for in each way. */ \
		shmem_##name##_p(&name##_ivars[3], 4, next); \
		shmem_##name##_wait_until(&ivars[3], SHMEM_CMP_EQ, 4); \
		CHECK(shmem_##name##_wait_until_any(ivars, N, status, SHMEM_CMP_GT, 0) == 3); \
		CHECK(shmem_##name##_test_any(ivars, N, NULL, SHMEM_CMP_EQ, 4) == 3); \
		found = shmem_##name##_wait_until_some(ivars, N, indices, status, SHMEM_CMP_NE, 0); \
		CHECK(found == 1 && indices[0] == 3); \
		CHECK(shmem_##name##_wait_until_any_vector(ivars, N, NULL, SHMEM_CMP_EQ, values) == 3); \
		CHECK(shmem_##name##_test_any_vector(ivars, N, NULL, SHMEM_CMP_EQ, values) == 3); \
		found = shmem_##name##_wait_until_some_vector(ivars, N, indices, NULL, SHMEM_CMP_EQ, \
							      values); \
		CHECK(found == 1 && indices[0] == 3); \
		CHECK(!shmem_##name##_test_all_vector(ivars, N, status, SHMEM_CMP_EQ, values)); \
		shmem_barrier_all(); \
		for (int i = 0; i < N; i++) \
			if (!status[i]) \
				shmem_##name##_p(&name##_ivars[i], (type)(i + 1), next); \
		shmem_##name##_wait_until_all(ivars, N, status, SHMEM_CMP_NE, 0); \
		shmem_##name##_wait_until_all_vector(ivars, N, status, SHMEM_CMP_EQ, values); \
		CHECK(shmem_##name##_test_all_vector(ivars, N, status, SHMEM_CMP_EQ, values)); \
		CHECK(shmem_##name##_test_all(ivars, N, status, SHMEM_CMP_GE, 1)); \
		found = shmem_##name##_test_some(ivars, N, indices, NULL, SHMEM_CMP_NE, 0); \
		CHECK(found == 4 && indices[0] == 0 && indices[1] == 2 && indices[2] == 3 && \
		      indices[3] == 5); \
		found = shmem_##name##_test_some_vector(ivars, N, indices, status, SHMEM_CMP_EQ, \
							values); \
		CHECK(found == 4 && indices[3] == 5); \
		CHECK(ivars[1] == 0 && ivars[4] == 0); \
	}
YASMIN_SHMEM_WAITED(TYPE)

int main(void)
{
	static uint64_t signal;
	static long flag, token;
	static int data[1000];

	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	next = (me + 1) % n;
#define RUN(name, type) name##_test();
	YASMIN_SHMEM_WAITED(RUN)
	/* A token goes round: what was written before it is seen behind it. */
	for (int round = 1; round <= 50; round++) {
		if (me || round > 1)
			shmem_long_wait_until(&token, SHMEM_CMP_GE, me ? round : round - 1);
		if (me || round > 1)
			CHECK(data[round % 1000] == 0 || data[(round - 1) % 1000] >= 0);
		shmem_int_p(&data[round % 1000], round, next);
		shmem_fence();
		shmem_long_p(&token, round, next);
	}
	shmem_barrier_all();
	for (int round = 1; round <= 50; round++)
		CHECK(data[round] == round);
	shmem_uint64_atomic_set(&signal, 6, next);
	CHECK(shmem_signal_wait_until(&signal, SHMEM_CMP_GE, 6) == 6);
	shmem_long_p(&flag, 1, next);
	shmem_long_wait(&flag, 0);
	shmem_wait(&flag, 0);
	shmem_wait_until(&flag, SHMEM_CMP_EQ, 1);
	shmem_barrier_all();
	/* A plain store by a pointer ends a wait, too, also after a long time. */
	flag = 0;
	shmem_barrier_all();
	if (!me) {
		struct timespec nap = { .tv_nsec = 100000000 };
		nanosleep(&nap, NULL);
	}
	if (!me)
		for (int pe = 0; pe < n; pe++)
			__atomic_store_n((long *)shmem_ptr(&flag, pe), 2, __ATOMIC_RELEASE);
	shmem_long_wait_until(&flag, SHMEM_CMP_EQ, 2);
	shmem_finalize();
	return 0;
}
