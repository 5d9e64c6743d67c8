/* Put and get: copies, which are done when the call returns. A signal is stored behind its data. */
#include "internal.h"

#include <string.h>

#define DEFAULT SHMEM_CTX_DEFAULT

static inline void put(const char *call, shmem_ctx_t ctx, void *dest, const void *source,
		       size_t len, int pe)
{
	pe = world_pe(call, ctx, pe);
	memmove(remote(call, dest, len, pe), source, len);
}

static inline void get(const char *call, shmem_ctx_t ctx, void *dest, const void *source,
		       size_t len, int pe)
{
	pe = world_pe(call, ctx, pe);
	memmove(dest, remote(call, source, len, pe), len);
}

static void signal_set(const char *call, shmem_ctx_t ctx, uint64_t *at, uint64_t value, int op,
		       int pe)
{
	uint64_t *there = remote(call, at, sizeof(*at), world_pe(call, ctx, pe));
	/* A copy may use stores that are not ordered by themselves. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (op == SHMEM_SIGNAL_SET)
		__atomic_store_n(there, value, __ATOMIC_RELEASE);
	else if (op == SHMEM_SIGNAL_ADD)
		__atomic_fetch_add(there, value, __ATOMIC_RELEASE);
	else
		fail("%s: %d is no signal operation", call, op);
}

/* Bytes from the first to the last of `nelems` elements. */
static size_t span(const char *call, ptrdiff_t stride, size_t nelems, size_t size)
{
	if (stride < 1)
		fail("%s: stride %td: it is 1 or more", call, stride);
	size_t last = bytes_of(nelems - 1, (size_t)stride);
	return last == SIZE_MAX ? last : bytes_of(last + 1, size);
}

static inline void strided(char *dest, const char *source, ptrdiff_t dst, ptrdiff_t sst,
			   size_t nelems, size_t size)
{
	for (size_t i = 0; i < nelems; i++)
		memcpy(dest + i * (size_t)dst * size, source + i * (size_t)sst * size, size);
}

static inline void iput(const char *call, shmem_ctx_t ctx, void *dest, const void *source,
			ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe, size_t size)
{
	if (!nelems)
		return;
	span(call, sst, nelems, size);
	void *there =
		remote(call, dest, span(call, dst, nelems, size), world_pe(call, ctx, pe));
	strided(there, source, dst, sst, nelems, size);
}

static inline void iget(const char *call, shmem_ctx_t ctx, void *dest, const void *source,
			ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe, size_t size)
{
	if (!nelems)
		return;
	span(call, dst, nelems, size);
	const void *there =
		remote(call, source, span(call, sst, nelems, size), world_pe(call, ctx, pe));
	strided(dest, there, dst, sst, nelems, size);
}

/* Each function, and the same by context. */
#define COPY(kind, name, type, size) \
	PUBLIC(void, ctx_##name, shmem_ctx_t ctx, type *dest, const type *source, size_t nelems, \
	       int pe) \
	{ \
		kind("shmem_" #name, ctx, dest, source, bytes_of(nelems, size), pe); \
	} \
	PUBLIC(void, name, type *dest, const type *source, size_t nelems, int pe) \
	{ \
		kind("shmem_" #name, DEFAULT, dest, source, bytes_of(nelems, size), pe); \
	}
#define STRIDED(kind, name, type, size) \
	PUBLIC(void, ctx_##name, shmem_ctx_t ctx, type *dest, const type *source, ptrdiff_t dst, \
	       ptrdiff_t sst, size_t nelems, int pe) \
	{ \
		kind("shmem_" #name, ctx, dest, source, dst, sst, nelems, pe, size); \
	} \
	PUBLIC(void, name, type *dest, const type *source, ptrdiff_t dst, ptrdiff_t sst, \
	       size_t nelems, int pe) \
	{ \
		kind("shmem_" #name, DEFAULT, dest, source, dst, sst, nelems, pe, size); \
	}
#define SIGNALLED(name, type, size) \
	PUBLIC(void, ctx_##name, shmem_ctx_t ctx, type *dest, const type *source, size_t nelems, \
	       uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) \
	{ \
		put("shmem_" #name, ctx, dest, source, bytes_of(nelems, size), pe); \
		signal_set("shmem_" #name, ctx, sig_addr, signal, sig_op, pe); \
	} \
	PUBLIC(void, name, type *dest, const type *source, size_t nelems, uint64_t *sig_addr, \
	       uint64_t signal, int sig_op, int pe) \
	{ \
		pshmem_ctx_##name(DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe); \
	}
#define SINGLE(name, type) \
	PUBLIC(void, ctx_##name##_p, shmem_ctx_t ctx, type *dest, type value, int pe) \
	{ \
		const char *call = "shmem_" #name "_p"; \
		*(volatile type *)remote(call, dest, sizeof(type), world_pe(call, ctx, pe)) = value; \
	} \
	PUBLIC(void, name##_p, type *dest, type value, int pe) \
	{ \
		*(volatile type *)remote("shmem_" #name "_p", dest, sizeof(type), pe) = value; \
	} \
	PUBLIC(type, ctx_##name##_g, shmem_ctx_t ctx, const type *source, int pe) \
	{ \
		const char *call = "shmem_" #name "_g"; \
		return *(volatile type *)remote(call, source, sizeof(type), \
						world_pe(call, ctx, pe)); \
	} \
	PUBLIC(type, name##_g, const type *source, int pe) \
	{ \
		return *(volatile type *)remote("shmem_" #name "_g", source, sizeof(type), pe); \
	}

#define FOR_TYPE(name, type) \
	COPY(put, name##_put, type, sizeof(type)) \
	COPY(get, name##_get, type, sizeof(type)) \
	COPY(put, name##_put_nbi, type, sizeof(type)) \
	COPY(get, name##_get_nbi, type, sizeof(type)) \
	STRIDED(iput, name##_iput, type, sizeof(type)) \
	STRIDED(iget, name##_iget, type, sizeof(type)) \
	SIGNALLED(name##_put_signal, type, sizeof(type)) \
	SIGNALLED(name##_put_signal_nbi, type, sizeof(type)) \
	SINGLE(name, type)
YASMIN_SHMEM_RMA(FOR_TYPE)

#define FOR_BITS(bits, bytes) \
	COPY(put, put##bits, void, bytes) \
	COPY(get, get##bits, void, bytes) \
	COPY(put, put##bits##_nbi, void, bytes) \
	COPY(get, get##bits##_nbi, void, bytes) \
	STRIDED(iput, iput##bits, void, bytes) \
	STRIDED(iget, iget##bits, void, bytes) \
	SIGNALLED(put##bits##_signal, void, bytes) \
	SIGNALLED(put##bits##_signal_nbi, void, bytes)
YASMIN_SHMEM_SIZES(FOR_BITS)

COPY(put, putmem, void, 1)
COPY(get, getmem, void, 1)
COPY(put, putmem_nbi, void, 1)
COPY(get, getmem_nbi, void, 1)
SIGNALLED(putmem_signal, void, 1)
SIGNALLED(putmem_signal_nbi, void, 1)

PUBLIC(uint64_t, signal_fetch, const uint64_t *sig_addr)
{
	remote("shmem_signal_fetch", sig_addr, sizeof(*sig_addr), job.me);
	return __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
}
