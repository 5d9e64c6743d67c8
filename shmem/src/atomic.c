/* Atomics: the processor's, on the other PE's memory. Those that do not wait are the same, and have
 * their result at once. */
#include "internal.h"

#define DEFAULT SHMEM_CTX_DEFAULT
#define ORDER __ATOMIC_SEQ_CST

/* Where a context's PE has it. The processor's atomics want it aligned. */
static inline void *at(const char *call, shmem_ctx_t ctx, const void *symmetric_at, size_t size,
		       int pe)
{
	if (__builtin_expect((uintptr_t)symmetric_at & (size - 1), 0))
		fail("%s: %p is not aligned to its type", call, symmetric_at);
	return remote(call, symmetric_at, size, world_pe(call, ctx, pe));
}
#define AT(call, p) ((__typeof__(p))at("shmem_" call, ctx, p, sizeof(*(p)), pe))

/* A function by context, and without; `list` are its parameters, `names` their names. */
#define PAIR(result, name, list, names, body) \
	PUBLIC(result, ctx_##name, shmem_ctx_t ctx, UNPACK list) { body } \
	PUBLIC(result, name, UNPACK list) { return pshmem_ctx_##name(DEFAULT, UNPACK names); }
#define UNPACK(...) __VA_ARGS__

#define EXTENDED(name, type) \
	PAIR(type, name##_atomic_fetch, (const type *source, int pe), (source, pe), \
	     type value; __atomic_load((type *)AT(#name "_atomic_fetch", source), &value, ORDER); \
	     return value;) \
	PAIR(void, name##_atomic_set, (type *dest, type value, int pe), (dest, value, pe), \
	     __atomic_store(AT(#name "_atomic_set", dest), &value, ORDER);) \
	PAIR(type, name##_atomic_swap, (type *dest, type value, int pe), (dest, value, pe), \
	     type old; __atomic_exchange(AT(#name "_atomic_swap", dest), &value, &old, ORDER); \
	     return old;) \
	PAIR(void, name##_atomic_fetch_nbi, (type *fetch, const type *source, int pe), \
	     (fetch, source, pe), *fetch = pshmem_ctx_##name##_atomic_fetch(ctx, source, pe);) \
	PAIR(void, name##_atomic_swap_nbi, (type *fetch, type *dest, type value, int pe), \
	     (fetch, dest, value, pe), \
	     *fetch = pshmem_ctx_##name##_atomic_swap(ctx, dest, value, pe);)
YASMIN_SHMEM_EXTENDED(EXTENDED)

#define INTEGER(name, type) \
	PAIR(type, name##_atomic_compare_swap, (type *dest, type cond, type value, int pe), \
	     (dest, cond, value, pe), \
	     __atomic_compare_exchange_n(AT(#name "_atomic_compare_swap", dest), &cond, value, \
					 false, ORDER, ORDER); \
	     return cond;) \
	PAIR(type, name##_atomic_fetch_add, (type *dest, type value, int pe), (dest, value, pe), \
	     return __atomic_fetch_add(AT(#name "_atomic_fetch_add", dest), value, ORDER);) \
	PAIR(void, name##_atomic_add, (type *dest, type value, int pe), (dest, value, pe), \
	     __atomic_fetch_add(AT(#name "_atomic_add", dest), value, ORDER);) \
	PAIR(type, name##_atomic_fetch_inc, (type *dest, int pe), (dest, pe), \
	     return __atomic_fetch_add(AT(#name "_atomic_fetch_inc", dest), 1, ORDER);) \
	PAIR(void, name##_atomic_inc, (type *dest, int pe), (dest, pe), \
	     __atomic_fetch_add(AT(#name "_atomic_inc", dest), 1, ORDER);) \
	PAIR(void, name##_atomic_compare_swap_nbi, \
	     (type *fetch, type *dest, type cond, type value, int pe), \
	     (fetch, dest, cond, value, pe), \
	     *fetch = pshmem_ctx_##name##_atomic_compare_swap(ctx, dest, cond, value, pe);) \
	PAIR(void, name##_atomic_fetch_inc_nbi, (type *fetch, type *dest, int pe), \
	     (fetch, dest, pe), *fetch = pshmem_ctx_##name##_atomic_fetch_inc(ctx, dest, pe);) \
	PAIR(void, name##_atomic_fetch_add_nbi, (type *fetch, type *dest, type value, int pe), \
	     (fetch, dest, value, pe), \
	     *fetch = pshmem_ctx_##name##_atomic_fetch_add(ctx, dest, value, pe);)
YASMIN_SHMEM_INTEGERS(INTEGER)

#define BIT(name, type, op) \
	PAIR(type, name##_atomic_fetch_##op, (type *dest, type value, int pe), (dest, value, pe), \
	     return __atomic_fetch_##op(AT(#name "_atomic_fetch_" #op, dest), value, ORDER);) \
	PAIR(void, name##_atomic_##op, (type *dest, type value, int pe), (dest, value, pe), \
	     __atomic_fetch_##op(AT(#name "_atomic_" #op, dest), value, ORDER);) \
	PAIR(void, name##_atomic_fetch_##op##_nbi, \
	     (type *fetch, type *dest, type value, int pe), (fetch, dest, value, pe), \
	     *fetch = pshmem_ctx_##name##_atomic_fetch_##op(ctx, dest, value, pe);)
#define BITWISE(name, type) BIT(name, type, and) BIT(name, type, or) BIT(name, type, xor)
YASMIN_SHMEM_BITWISE(BITWISE)

/* Deprecated names. */
#define OLD_EXTENDED(name, type) \
	PUBLIC(type, name##_fetch, const type *source, int pe) \
	{ \
		return pshmem_##name##_atomic_fetch(source, pe); \
	} \
	PUBLIC(void, name##_set, type *dest, type value, int pe) \
	{ \
		pshmem_##name##_atomic_set(dest, value, pe); \
	} \
	PUBLIC(type, name##_swap, type *dest, type value, int pe) \
	{ \
		return pshmem_##name##_atomic_swap(dest, value, pe); \
	}
#define OLD_INTEGERS(X) X(int, int) X(long, long) X(longlong, long long)
YASMIN_SHMEM_REALS(OLD_EXTENDED)
OLD_INTEGERS(OLD_EXTENDED)
#define OLD(name, type) \
	PUBLIC(type, name##_cswap, type *dest, type cond, type value, int pe) \
	{ \
		return pshmem_##name##_atomic_compare_swap(dest, cond, value, pe); \
	} \
	PUBLIC(type, name##_finc, type *dest, int pe) \
	{ \
		return pshmem_##name##_atomic_fetch_inc(dest, pe); \
	} \
	PUBLIC(void, name##_inc, type *dest, int pe) \
	{ \
		pshmem_##name##_atomic_inc(dest, pe); \
	} \
	PUBLIC(type, name##_fadd, type *dest, type value, int pe) \
	{ \
		return pshmem_##name##_atomic_fetch_add(dest, value, pe); \
	} \
	PUBLIC(void, name##_add, type *dest, type value, int pe) \
	{ \
		pshmem_##name##_atomic_add(dest, value, pe); \
	}
OLD_INTEGERS(OLD)
