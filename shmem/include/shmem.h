/*
 * OpenSHMEM 1.5 for the processes of one machine, on a segment of yasmin: see yasmin-shmem(7).
 * Compile with oshcc or oshc++, run with oshrun. What each call does is in the specification,
 * http://www.openshmem.org; the calls are here in the order of its chapters.
 *
 * Typed calls come from the lists of types below. Every function has a profiling name too.
 */
#ifndef SHMEM_H
#define SHMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHMEM_MAJOR_VERSION 1
#define SHMEM_MINOR_VERSION 5
#define SHMEM_MAX_NAME_LEN 64
#define SHMEM_VENDOR_STRING "YASMIN OpenSHMEM"

#define SHMEM_THREAD_SINGLE 0
#define SHMEM_THREAD_FUNNELED 1
#define SHMEM_THREAD_SERIALIZED 2
#define SHMEM_THREAD_MULTIPLE 3

#define SHMEM_MALLOC_ATOMICS_REMOTE 1l
#define SHMEM_MALLOC_SIGNAL_REMOTE 2l

#define SHMEM_CTX_SERIALIZED 1l
#define SHMEM_CTX_PRIVATE 2l
#define SHMEM_CTX_NOSTORE 4l

#define SHMEM_TEAM_NUM_CONTEXTS 1l

#define SHMEM_SIGNAL_SET 0
#define SHMEM_SIGNAL_ADD 1

#define SHMEM_CMP_EQ 1
#define SHMEM_CMP_NE 2
#define SHMEM_CMP_GT 3
#define SHMEM_CMP_LE 4
#define SHMEM_CMP_LT 5
#define SHMEM_CMP_GE 6

#define SHMEM_SYNC_VALUE 0l
#define SHMEM_SYNC_SIZE 4
#define SHMEM_BCAST_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_BARRIER_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_COLLECT_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALL_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_MIN_WRKDATA_SIZE 1

/* Deprecated names. */
#define _SHMEM_MAJOR_VERSION SHMEM_MAJOR_VERSION
#define _SHMEM_MINOR_VERSION SHMEM_MINOR_VERSION
#define _SHMEM_MAX_NAME_LEN SHMEM_MAX_NAME_LEN
#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING
#define _SHMEM_CMP_EQ SHMEM_CMP_EQ
#define _SHMEM_CMP_NE SHMEM_CMP_NE
#define _SHMEM_CMP_GT SHMEM_CMP_GT
#define _SHMEM_CMP_LE SHMEM_CMP_LE
#define _SHMEM_CMP_LT SHMEM_CMP_LT
#define _SHMEM_CMP_GE SHMEM_CMP_GE
#define _SHMEM_SYNC_VALUE SHMEM_SYNC_VALUE
#define _SHMEM_SYNC_SIZE SHMEM_SYNC_SIZE
#define _SHMEM_BCAST_SYNC_SIZE SHMEM_BCAST_SYNC_SIZE
#define _SHMEM_REDUCE_SYNC_SIZE SHMEM_REDUCE_SYNC_SIZE
#define _SHMEM_BARRIER_SYNC_SIZE SHMEM_BARRIER_SYNC_SIZE
#define _SHMEM_COLLECT_SYNC_SIZE SHMEM_COLLECT_SYNC_SIZE
#define _SHMEM_REDUCE_MIN_WRKDATA_SIZE SHMEM_REDUCE_MIN_WRKDATA_SIZE

typedef struct yasmin_shmem_team *shmem_team_t;
typedef struct yasmin_shmem_ctx *shmem_ctx_t;
typedef struct {
	int num_contexts;
} shmem_team_config_t;

#define SHMEM_TEAM_INVALID ((shmem_team_t)0)
#define SHMEM_TEAM_WORLD ((shmem_team_t)1)
#define SHMEM_TEAM_SHARED ((shmem_team_t)2)
#define SHMEM_CTX_INVALID ((shmem_ctx_t)0)
#define SHMEM_CTX_DEFAULT ((shmem_ctx_t)1)

/* Types: name in the function, and in C. */
#define YASMIN_SHMEM_INTEGERS(YS_X) \
	YS_X(int, int) YS_X(long, long) YS_X(longlong, long long) YS_X(uint, unsigned int) \
	YS_X(ulong, unsigned long) YS_X(ulonglong, unsigned long long) \
	YS_X(int32, int32_t) YS_X(int64, int64_t) YS_X(uint32, uint32_t) YS_X(uint64, uint64_t) \
	YS_X(size, size_t) YS_X(ptrdiff, ptrdiff_t)
#define YASMIN_SHMEM_SMALL(YS_X) \
	YS_X(char, char) YS_X(schar, signed char) YS_X(short, short) YS_X(uchar, unsigned char) \
	YS_X(ushort, unsigned short) YS_X(int8, int8_t) YS_X(int16, int16_t) YS_X(uint8, uint8_t) \
	YS_X(uint16, uint16_t)
#define YASMIN_SHMEM_REALS(YS_X) YS_X(float, float) YS_X(double, double)
#define YASMIN_SHMEM_RMA(YS_X) \
	YASMIN_SHMEM_INTEGERS(YS_X) YASMIN_SHMEM_SMALL(YS_X) YASMIN_SHMEM_REALS(YS_X) \
	YS_X(longdouble, long double)
#define YASMIN_SHMEM_EXTENDED(YS_X) YASMIN_SHMEM_INTEGERS(YS_X) YASMIN_SHMEM_REALS(YS_X)
#define YASMIN_SHMEM_BITWISE(YS_X) \
	YS_X(uint, unsigned int) YS_X(ulong, unsigned long) YS_X(ulonglong, unsigned long long) \
	YS_X(int32, int32_t) YS_X(int64, int64_t) YS_X(uint32, uint32_t) YS_X(uint64, uint64_t)
#define YASMIN_SHMEM_WAITED(YS_X) \
	YASMIN_SHMEM_INTEGERS(YS_X) YS_X(short, short) YS_X(ushort, unsigned short)
#define YASMIN_SHMEM_REDUCED_BITS(YS_X) \
	YASMIN_SHMEM_BITWISE(YS_X) YS_X(uchar, unsigned char) YS_X(ushort, unsigned short) \
	YS_X(int8, int8_t) YS_X(int16, int16_t) YS_X(uint8, uint8_t) YS_X(uint16, uint16_t) YS_X(size, size_t)
#define YASMIN_SHMEM_COMPLEX(YS_X) YS_X(complexd, double _Complex) YS_X(complexf, float _Complex)
#define YASMIN_SHMEM_TO_ALL_INTEGERS(YS_X) \
	YS_X(short, short) YS_X(int, int) YS_X(long, long) YS_X(longlong, long long)
#define YASMIN_SHMEM_TO_ALL_REALS(YS_X) \
	YASMIN_SHMEM_REALS(YS_X) YS_X(longdouble, long double)
#define YASMIN_SHMEM_SIZES(YS_X) YS_X(8, 1) YS_X(16, 2) YS_X(32, 4) YS_X(64, 8) YS_X(128, 16)

/* A function, and its profiling name. */
#define YASMIN_SHMEM_F(result, name, ...) \
	result shmem_##name(__VA_ARGS__); \
	result pshmem_##name(__VA_ARGS__);
/* The same by context. */
#define YASMIN_SHMEM_C(result, name, ...) \
	YASMIN_SHMEM_F(result, name, __VA_ARGS__) \
	YASMIN_SHMEM_F(result, ctx_##name, shmem_ctx_t ctx, __VA_ARGS__)

/* Setup, exit, information. */
YASMIN_SHMEM_F(void, init, void)
YASMIN_SHMEM_F(int, my_pe, void)
YASMIN_SHMEM_F(int, n_pes, void)
YASMIN_SHMEM_F(void, finalize, void)
__attribute__((noreturn)) YASMIN_SHMEM_F(void, global_exit, int status)
YASMIN_SHMEM_F(int, pe_accessible, int pe)
YASMIN_SHMEM_F(int, addr_accessible, const void *addr, int pe)
YASMIN_SHMEM_F(void *, ptr, const void *dest, int pe)
YASMIN_SHMEM_F(void, info_get_version, int *major, int *minor)
YASMIN_SHMEM_F(void, info_get_name, char *name)
void start_pes(int npes);
int _my_pe(void);
int _num_pes(void);

YASMIN_SHMEM_F(int, init_thread, int requested, int *provided)
YASMIN_SHMEM_F(void, query_thread, int *provided)

/* The symmetric heap. */
YASMIN_SHMEM_F(void *, malloc, size_t size)
YASMIN_SHMEM_F(void, free, void *ptr)
YASMIN_SHMEM_F(void *, realloc, void *ptr, size_t size)
YASMIN_SHMEM_F(void *, align, size_t alignment, size_t size)
YASMIN_SHMEM_F(void *, malloc_with_hints, size_t size, long hints)
YASMIN_SHMEM_F(void *, calloc, size_t count, size_t size)
void *shmalloc(size_t size);
void shfree(void *ptr);
void *shrealloc(void *ptr, size_t size);
void *shmemalign(size_t alignment, size_t size);

/* Teams. */
YASMIN_SHMEM_F(int, team_my_pe, shmem_team_t team)
YASMIN_SHMEM_F(int, team_n_pes, shmem_team_t team)
YASMIN_SHMEM_F(int, team_get_config, shmem_team_t team, long mask, shmem_team_config_t *config)
YASMIN_SHMEM_F(int, team_translate_pe, shmem_team_t from, int pe, shmem_team_t to)
YASMIN_SHMEM_F(int, team_split_strided, shmem_team_t parent, int start, int stride, int size,
	       const shmem_team_config_t *config, long mask, shmem_team_t *team)
YASMIN_SHMEM_F(int, team_split_2d, shmem_team_t parent, int xrange,
	       const shmem_team_config_t *xconfig, long xmask, shmem_team_t *xteam,
	       const shmem_team_config_t *yconfig, long ymask, shmem_team_t *yteam)
YASMIN_SHMEM_F(void, team_destroy, shmem_team_t team)
YASMIN_SHMEM_F(void *, team_ptr, shmem_team_t team, const void *dest, int pe)

/* Contexts. */
YASMIN_SHMEM_F(int, ctx_create, long options, shmem_ctx_t *ctx)
YASMIN_SHMEM_F(int, team_create_ctx, shmem_team_t team, long options, shmem_ctx_t *ctx)
YASMIN_SHMEM_F(void, ctx_destroy, shmem_ctx_t ctx)
YASMIN_SHMEM_F(int, ctx_get_team, shmem_ctx_t ctx, shmem_team_t *team)

/* Remote memory access, with and without waiting. */
#define YS_X(name, type) \
	YASMIN_SHMEM_C(void, name##_put, type *dest, const type *source, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, name##_get, type *dest, const type *source, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, name##_put_nbi, type *dest, const type *source, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, name##_get_nbi, type *dest, const type *source, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, name##_p, type *dest, type value, int pe) \
	YASMIN_SHMEM_C(type, name##_g, const type *source, int pe) \
	YASMIN_SHMEM_C(void, name##_iput, type *dest, const type *source, ptrdiff_t dst, \
		       ptrdiff_t sst, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, name##_iget, type *dest, const type *source, ptrdiff_t dst, \
		       ptrdiff_t sst, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, name##_put_signal, type *dest, const type *source, size_t nelems, \
		       uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) \
	YASMIN_SHMEM_C(void, name##_put_signal_nbi, type *dest, const type *source, size_t nelems, \
		       uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) \
	YASMIN_SHMEM_F(int, name##_broadcast, shmem_team_t team, type *dest, const type *source, \
		       size_t nelems, int root) \
	YASMIN_SHMEM_F(int, name##_collect, shmem_team_t team, type *dest, const type *source, \
		       size_t nelems) \
	YASMIN_SHMEM_F(int, name##_fcollect, shmem_team_t team, type *dest, const type *source, \
		       size_t nelems) \
	YASMIN_SHMEM_F(int, name##_alltoall, shmem_team_t team, type *dest, const type *source, \
		       size_t nelems) \
	YASMIN_SHMEM_F(int, name##_alltoalls, shmem_team_t team, type *dest, const type *source, \
		       ptrdiff_t dst, ptrdiff_t sst, size_t nelems)
YASMIN_SHMEM_RMA(YS_X)
#undef YS_X
#define YS_X(bits, bytes) \
	YASMIN_SHMEM_C(void, put##bits, void *dest, const void *source, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, get##bits, void *dest, const void *source, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, put##bits##_nbi, void *dest, const void *source, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, get##bits##_nbi, void *dest, const void *source, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, iput##bits, void *dest, const void *source, ptrdiff_t dst, \
		       ptrdiff_t sst, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, iget##bits, void *dest, const void *source, ptrdiff_t dst, \
		       ptrdiff_t sst, size_t nelems, int pe) \
	YASMIN_SHMEM_C(void, put##bits##_signal, void *dest, const void *source, size_t nelems, \
		       uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) \
	YASMIN_SHMEM_C(void, put##bits##_signal_nbi, void *dest, const void *source, \
		       size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)
YASMIN_SHMEM_SIZES(YS_X)
#undef YS_X
YASMIN_SHMEM_C(void, putmem, void *dest, const void *source, size_t nelems, int pe)
YASMIN_SHMEM_C(void, getmem, void *dest, const void *source, size_t nelems, int pe)
YASMIN_SHMEM_C(void, putmem_nbi, void *dest, const void *source, size_t nelems, int pe)
YASMIN_SHMEM_C(void, getmem_nbi, void *dest, const void *source, size_t nelems, int pe)
YASMIN_SHMEM_C(void, putmem_signal, void *dest, const void *source, size_t nelems,
	       uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)
YASMIN_SHMEM_C(void, putmem_signal_nbi, void *dest, const void *source, size_t nelems,
	       uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)
YASMIN_SHMEM_F(uint64_t, signal_fetch, const uint64_t *sig_addr)

/* Atomics. */
#define YS_X(name, type) \
	YASMIN_SHMEM_C(type, name##_atomic_fetch, const type *source, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_set, type *dest, type value, int pe) \
	YASMIN_SHMEM_C(type, name##_atomic_swap, type *dest, type value, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_fetch_nbi, type *fetch, const type *source, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_swap_nbi, type *fetch, type *dest, type value, int pe)
YASMIN_SHMEM_EXTENDED(YS_X)
#undef YS_X
#define YS_X(name, type) \
	YASMIN_SHMEM_C(type, name##_atomic_compare_swap, type *dest, type cond, type value, int pe) \
	YASMIN_SHMEM_C(type, name##_atomic_fetch_inc, type *dest, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_inc, type *dest, int pe) \
	YASMIN_SHMEM_C(type, name##_atomic_fetch_add, type *dest, type value, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_add, type *dest, type value, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_compare_swap_nbi, type *fetch, type *dest, type cond, \
		       type value, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_fetch_inc_nbi, type *fetch, type *dest, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_fetch_add_nbi, type *fetch, type *dest, type value, int pe)
YASMIN_SHMEM_INTEGERS(YS_X)
#undef YS_X
#define YS_Y(name, type, op) \
	YASMIN_SHMEM_C(type, name##_atomic_fetch_##op, type *dest, type value, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_##op, type *dest, type value, int pe) \
	YASMIN_SHMEM_C(void, name##_atomic_fetch_##op##_nbi, type *fetch, type *dest, type value, \
		       int pe)
#define YS_X(name, type) YS_Y(name, type, and) YS_Y(name, type, or) YS_Y(name, type, xor)
YASMIN_SHMEM_BITWISE(YS_X)
#undef YS_X
#undef YS_Y
/* Deprecated. */
#define YS_X(name, type) \
	YASMIN_SHMEM_F(type, name##_fetch, const type *source, int pe) \
	YASMIN_SHMEM_F(void, name##_set, type *dest, type value, int pe) \
	YASMIN_SHMEM_F(type, name##_swap, type *dest, type value, int pe)
YASMIN_SHMEM_REALS(YS_X)
YS_X(int, int) YS_X(long, long) YS_X(longlong, long long)
#undef YS_X
#define YS_X(name, type) \
	YASMIN_SHMEM_F(type, name##_cswap, type *dest, type cond, type value, int pe) \
	YASMIN_SHMEM_F(type, name##_finc, type *dest, int pe) \
	YASMIN_SHMEM_F(void, name##_inc, type *dest, int pe) \
	YASMIN_SHMEM_F(type, name##_fadd, type *dest, type value, int pe) \
	YASMIN_SHMEM_F(void, name##_add, type *dest, type value, int pe)
YS_X(int, int) YS_X(long, long) YS_X(longlong, long long)
#undef YS_X

/* Collectives; those of active sets are deprecated. */
#define YASMIN_SHMEM_ACTIVE int PE_start, int logPE_stride, int PE_size
YASMIN_SHMEM_F(void, barrier_all, void)
YASMIN_SHMEM_F(void, barrier, YASMIN_SHMEM_ACTIVE, long *pSync)
YASMIN_SHMEM_F(void, sync_all, void)
YASMIN_SHMEM_F(void, sync, YASMIN_SHMEM_ACTIVE, long *pSync)
YASMIN_SHMEM_F(int, team_sync, shmem_team_t team)
YASMIN_SHMEM_F(int, broadcastmem, shmem_team_t team, void *dest, const void *source, size_t nelems,
	       int root)
YASMIN_SHMEM_F(int, collectmem, shmem_team_t team, void *dest, const void *source, size_t nelems)
YASMIN_SHMEM_F(int, fcollectmem, shmem_team_t team, void *dest, const void *source, size_t nelems)
YASMIN_SHMEM_F(int, alltoallmem, shmem_team_t team, void *dest, const void *source, size_t nelems)
YASMIN_SHMEM_F(int, alltoallsmem, shmem_team_t team, void *dest, const void *source, ptrdiff_t dst,
	       ptrdiff_t sst, size_t nelems)
#define YS_X(bits) \
	YASMIN_SHMEM_F(void, broadcast##bits, void *dest, const void *source, size_t nelems, \
		       int root, YASMIN_SHMEM_ACTIVE, long *pSync) \
	YASMIN_SHMEM_F(void, collect##bits, void *dest, const void *source, size_t nelems, \
		       YASMIN_SHMEM_ACTIVE, long *pSync) \
	YASMIN_SHMEM_F(void, fcollect##bits, void *dest, const void *source, size_t nelems, \
		       YASMIN_SHMEM_ACTIVE, long *pSync) \
	YASMIN_SHMEM_F(void, alltoall##bits, void *dest, const void *source, size_t nelems, \
		       YASMIN_SHMEM_ACTIVE, long *pSync) \
	YASMIN_SHMEM_F(void, alltoalls##bits, void *dest, const void *source, ptrdiff_t dst, \
		       ptrdiff_t sst, size_t nelems, YASMIN_SHMEM_ACTIVE, long *pSync)
YS_X(32) YS_X(64)
#undef YS_X
#define YS_Y(name, type, op) \
	YASMIN_SHMEM_F(int, name##_##op##_reduce, shmem_team_t team, type *dest, \
		       const type *source, size_t nreduce)
#define YS_Z(name, type, op) \
	YASMIN_SHMEM_F(void, name##_##op##_to_all, type *dest, const type *source, int nreduce, \
		       YASMIN_SHMEM_ACTIVE, type *pWrk, long *pSync)
#define YS_X(name, type) YS_Y(name, type, and) YS_Y(name, type, or) YS_Y(name, type, xor)
YASMIN_SHMEM_REDUCED_BITS(YS_X)
#undef YS_X
#define YS_X(name, type) YS_Y(name, type, min) YS_Y(name, type, max) YS_Y(name, type, sum) YS_Y(name, type, prod)
YASMIN_SHMEM_RMA(YS_X)
#undef YS_X
#define YS_X(name, type) __extension__ YS_Y(name, type, sum) YS_Y(name, type, prod)
YASMIN_SHMEM_COMPLEX(YS_X)
#undef YS_X
#define YS_X(name, type) YS_Z(name, type, and) YS_Z(name, type, or) YS_Z(name, type, xor)
YASMIN_SHMEM_TO_ALL_INTEGERS(YS_X)
#undef YS_X
#define YS_X(name, type) YS_Z(name, type, min) YS_Z(name, type, max) YS_Z(name, type, sum) YS_Z(name, type, prod)
YASMIN_SHMEM_TO_ALL_INTEGERS(YS_X)
YASMIN_SHMEM_TO_ALL_REALS(YS_X)
#undef YS_X
#define YS_X(name, type) __extension__ YS_Z(name, type, sum) YS_Z(name, type, prod)
YASMIN_SHMEM_COMPLEX(YS_X)
#undef YS_X
#undef YS_Y
#undef YS_Z

/* Waiting for what others write. */
#define YASMIN_SHMEM_SOME(type) \
	type *ivars, size_t nelems, size_t *indices, const int *status, int cmp
#define YASMIN_SHMEM_MANY(type) type *ivars, size_t nelems, const int *status, int cmp
#define YS_X(name, type) \
	YASMIN_SHMEM_F(void, name##_wait_until, type *ivar, int cmp, type value) \
	YASMIN_SHMEM_F(int, name##_test, type *ivar, int cmp, type value) \
	YASMIN_SHMEM_F(void, name##_wait_until_all, YASMIN_SHMEM_MANY(type), type value) \
	YASMIN_SHMEM_F(size_t, name##_wait_until_any, YASMIN_SHMEM_MANY(type), type value) \
	YASMIN_SHMEM_F(size_t, name##_wait_until_some, YASMIN_SHMEM_SOME(type), type value) \
	YASMIN_SHMEM_F(int, name##_test_all, YASMIN_SHMEM_MANY(type), type value) \
	YASMIN_SHMEM_F(size_t, name##_test_any, YASMIN_SHMEM_MANY(type), type value) \
	YASMIN_SHMEM_F(size_t, name##_test_some, YASMIN_SHMEM_SOME(type), type value) \
	YASMIN_SHMEM_F(void, name##_wait_until_all_vector, YASMIN_SHMEM_MANY(type), type *values) \
	YASMIN_SHMEM_F(size_t, name##_wait_until_any_vector, YASMIN_SHMEM_MANY(type), type *values) \
	YASMIN_SHMEM_F(size_t, name##_wait_until_some_vector, YASMIN_SHMEM_SOME(type), type *values) \
	YASMIN_SHMEM_F(int, name##_test_all_vector, YASMIN_SHMEM_MANY(type), type *values) \
	YASMIN_SHMEM_F(size_t, name##_test_any_vector, YASMIN_SHMEM_MANY(type), type *values) \
	YASMIN_SHMEM_F(size_t, name##_test_some_vector, YASMIN_SHMEM_SOME(type), type *values)
YASMIN_SHMEM_WAITED(YS_X)
#undef YS_X
YASMIN_SHMEM_F(uint64_t, signal_wait_until, uint64_t *sig_addr, int cmp, uint64_t value)
/* Deprecated. */
YASMIN_SHMEM_F(void, wait_until, long *ivar, int cmp, long value)
YASMIN_SHMEM_F(void, wait, long *ivar, long value)
#define YS_X(name, type) YASMIN_SHMEM_F(void, name##_wait, type *ivar, type value)
YS_X(short, short) YS_X(int, int) YS_X(long, long) YS_X(longlong, long long)
#undef YS_X

/* Ordering, locks, and what is left of caches. */
YASMIN_SHMEM_F(void, fence, void)
YASMIN_SHMEM_F(void, ctx_fence, shmem_ctx_t ctx)
YASMIN_SHMEM_F(void, quiet, void)
YASMIN_SHMEM_F(void, ctx_quiet, shmem_ctx_t ctx)
YASMIN_SHMEM_F(void, clear_lock, long *lock)
YASMIN_SHMEM_F(void, set_lock, long *lock)
YASMIN_SHMEM_F(int, test_lock, long *lock)
YASMIN_SHMEM_F(void, set_cache_inv, void)
YASMIN_SHMEM_F(void, set_cache_line_inv, void *dest)
YASMIN_SHMEM_F(void, clear_cache_inv, void)
YASMIN_SHMEM_F(void, clear_cache_line_inv, void *dest)
YASMIN_SHMEM_F(void, udcflush, void)
YASMIN_SHMEM_F(void, udcflush_line, void *dest)
YASMIN_SHMEM_F(void, pcontrol, int level, ...)

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && __STDC_VERSION__ >= 201112L && !defined(YASMIN_SHMEM_LIBRARY)
#include <shmem_generic.h>
#endif

#endif
