/* Put and get of every type and size, strided, single, without waiting, with signals, by context. */
#include "check.h"

#define N 12
static int me, n, next, last;
static uint64_t sig;
static shmem_ctx_t ctx;

/* Of a type: SRC is what PE p has at i. */
#define TYPE(name, type) \
	static type name##_dest[3 * N], name##_source[3 * N]; \
	static type name##_at(int pe, int i) { return (type)((pe * 20 + i) % 101); } \
	static void name##_clear(void) \
	{ \
		shmem_barrier_all(); \
		for (int i = 0; i < 3 * N; i++) { \
			name##_dest[i] = (type)111; \
			name##_source[i] = name##_at(me, i); \
		} \
		sig = 0; \
		shmem_barrier_all(); \
	} \
	/* What `from` sent is in the first N, at `stride`, and nothing else. */ \
	static void name##_is(int from, int dst, int sst) \
	{ \
		for (int i = 0; i < 3 * N; i++) \
			CHECK(name##_dest[i] == \
			      (i % dst == 0 && i / dst < N ? name##_at(from, i / dst * sst) : (type)111)); \
	} \
	static void name##_test(void) \
	{ \
		name##_clear(); \
		shmem_##name##_put(name##_dest, name##_source, N, next); \
		shmem_barrier_all(); name##_is(last, 1, 1); name##_clear(); \
		shmem_ctx_##name##_put_nbi(ctx, name##_dest, name##_source, N, next); \
		shmem_ctx_quiet(ctx); \
		shmem_barrier_all(); name##_is(last, 1, 1); name##_clear(); \
		shmem_##name##_get(name##_dest, name##_source, N, next); \
		name##_is(next, 1, 1); name##_clear(); \
		shmem_ctx_##name##_get_nbi(ctx, name##_dest, name##_source, N, next); \
		shmem_quiet(); name##_is(next, 1, 1); name##_clear(); \
		shmem_##name##_iput(name##_dest, name##_source, 3, 2, N, next); \
		shmem_barrier_all(); name##_is(last, 3, 2); name##_clear(); \
		shmem_ctx_##name##_iget(ctx, name##_dest, name##_source, 2, 3, N, next); \
		name##_is(next, 2, 3); name##_clear(); \
		for (int i = 0; i < N; i++) \
			shmem_##name##_p(&name##_dest[i], name##_source[i], next); \
		shmem_barrier_all(); name##_is(last, 1, 1); \
		for (int i = 0; i < N; i++) \
			CHECK(shmem_##name##_g(&name##_source[i], next) == name##_at(next, i) && \
			      shmem_ctx_##name##_g(ctx, &name##_source[i], last) == \
				      name##_at(last, i)); \
		name##_clear(); \
		shmem_##name##_put_signal(name##_dest, name##_source, N, &sig, 7, \
					  SHMEM_SIGNAL_SET, next); \
		CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_NE, 0) == 7); \
		name##_is(last, 1, 1); name##_clear(); \
		shmem_ctx_##name##_put_signal_nbi(ctx, name##_dest, name##_source, N, &sig, 5, \
						  SHMEM_SIGNAL_ADD, next); \
		CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 5) == 5); \
		CHECK(shmem_signal_fetch(&sig) == 5); \
		name##_is(last, 1, 1); \
		shmem_##name##_put(name##_dest, name##_source, 0, next); \
		shmem_##name##_iput(name##_dest, name##_source, 1, 1, 0, next); \
	}
YASMIN_SHMEM_RMA(TYPE)

static unsigned char from[16 * N], to[16 * N];

static void fill(void)
{
	shmem_barrier_all();
	for (int i = 0; i < 16 * N; i++) {
		from[i] = (unsigned char)(me * 50 + i);
		to[i] = 0;
	}
	sig = 0;
	shmem_barrier_all();
}

static void has(int pe, size_t bytes)
{
	for (size_t i = 0; i < 16 * N; i++)
		CHECK(to[i] == (i < bytes ? (unsigned char)(pe * 50 + (int)i) : 0));
}

#define SIZE(bits, bytes) \
	fill(); shmem_put##bits(to, from, N, next); shmem_barrier_all(); has(last, N * bytes); \
	fill(); shmem_get##bits(to, from, N, next); has(next, N * bytes); \
	fill(); shmem_put##bits##_nbi(to, from, N, next); shmem_barrier_all(); has(last, N * bytes); \
	fill(); shmem_get##bits##_nbi(to, from, N, next); shmem_quiet(); has(next, N * bytes); \
	fill(); shmem_iput##bits(to, from, 1, 1, N, next); shmem_barrier_all(); has(last, N * bytes); \
	fill(); shmem_iget##bits(to, from, 1, 1, N, next); has(next, N * bytes); \
	fill(); shmem_iget##bits(to, from, 2, 1, 2, next); \
	CHECK(!memcmp(to + 2 * bytes, shmem_ptr(from + bytes, next), bytes)); \
	fill(); \
	shmem_put##bits##_signal(to, from, N, &sig, 3, SHMEM_SIGNAL_ADD, next); \
	shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 3); has(last, N * bytes); \
	fill(); \
	shmem_ctx_put##bits##_signal_nbi(ctx, to, from, N, &sig, 3, SHMEM_SIGNAL_SET, next); \
	shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 3); has(last, N * bytes);

int main(void)
{
	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	next = (me + 1) % n;
	last = (me + n - 1) % n;
	CHECK(!shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) && ctx != SHMEM_CTX_INVALID);
#define RUN(name, type) name##_test();
	YASMIN_SHMEM_RMA(RUN)
	YASMIN_SHMEM_SIZES(SIZE)
	fill(); shmem_putmem(to, from, 16 * N, next); shmem_barrier_all(); has(last, 16 * N);
	fill(); shmem_getmem(to, from, 5, next); has(next, 5);
	fill(); shmem_putmem_nbi(to, from, 5, next); shmem_barrier_all(); has(last, 5);
	fill(); shmem_getmem_nbi(to, from, 5, next); shmem_quiet(); has(next, 5);
	fill(); shmem_putmem_signal(to, from, 7, &sig, 1, SHMEM_SIGNAL_SET, next);
	shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 1); has(last, 7);
	shmem_ctx_destroy(ctx);
	/* From memory that is not symmetric, and a long way. */
	size_t large = 3 << 20;
	char *dest = shmem_malloc(large), *own = malloc(large);
	for (size_t i = 0; i < large; i++)
		own[i] = (char)(i * 7 + (size_t)me);
	shmem_putmem_signal(dest, own, large, &sig, 9, SHMEM_SIGNAL_SET, next);
	shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 9);
	for (size_t i = 0; i < large; i++)
		CHECK(dest[i] == (char)(i * 7 + (size_t)last));
	shmem_finalize();
	return 0;
}
