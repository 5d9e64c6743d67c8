/* Broadcast, collect, all-to-all. Each PE takes what it wants from the others' sources, between
 * a meeting before, when all sources are ready, and one behind, when all have been read. */
#include "internal.h"

#include <string.h>

/* `len` bytes at the source of member `rank`. */
static const char *source_of(const char *call, const struct set *set, int rank, const void *source,
			     size_t len)
{
	return remote(call, source, len, set_pe(set, rank));
}

static void broadcast(const char *call, struct set set, char *dest, const char *source, size_t len,
		      int root, bool to_root)
{
	if (root < 0 || root >= set.size)
		fail("%s: there is no root %d, but 0 to %d", call, root, set.size - 1);
	set_sync(&set);
	if ((set.me != root || to_root) && len)
		memmove(dest, source_of(call, &set, root, source, len), len);
	set_sync(&set);
}

static void collect(const char *call, struct set set, char *dest, const char *source, size_t len)
{
	/* The last call's numbers have been heard by all. */
	set_tell(&set, len);
	set_sync(&set);
	for (int rank = 0; rank < set.size; rank++) {
		size_t theirs = set_heard(&set, rank);
		if (theirs)
			memmove(dest, source_of(call, &set, rank, source, theirs), theirs);
		dest += theirs;
	}
	set_sync(&set);
	set_forget(&set);
}

static void fcollect(const char *call, struct set set, char *dest, const char *source, size_t len)
{
	set_sync(&set);
	for (int rank = 0; rank < set.size && len; rank++, dest += len)
		memmove(dest, source_of(call, &set, rank, source, len), len);
	set_sync(&set);
}

static void alltoall(const char *call, struct set set, char *dest, const char *source, size_t len)
{
	set_sync(&set);
	for (int rank = 0; rank < set.size && len; rank++, dest += len) {
		const char *theirs =
			source_of(call, &set, rank, source, bytes_of((size_t)set.size, len));
		memmove(dest, theirs + (size_t)set.me * len, len);
	}
	set_sync(&set);
}

static void alltoalls(const char *call, struct set set, char *dest, const char *source,
		      ptrdiff_t dst, ptrdiff_t sst, size_t nelems, size_t size)
{
	if (dst < 1 || sst < 1)
		fail("%s: strides %td and %td: they are 1 or more", call, dst, sst);
	size_t last = bytes_of(bytes_of((size_t)set.size, nelems) - 1, (size_t)sst);
	size_t len = nelems ? bytes_of(last == SIZE_MAX ? last : last + 1, size) : 0;
	set_sync(&set);
	for (int rank = 0; rank < set.size && nelems; rank++) {
		const char *theirs = source_of(call, &set, rank, source, len);
		for (size_t i = 0; i < nelems; i++)
			memcpy(dest + ((size_t)rank * nelems + i) * (size_t)dst * size,
			       theirs + ((size_t)set.me * nelems + i) * (size_t)sst * size, size);
	}
	set_sync(&set);
}

#define TEAM(call) \
	if (team == SHMEM_TEAM_INVALID) \
		return -1; \
	struct set set = set_of_team(team_of(call, team))

#define TEAM_CALL(whole, type, kind, size) \
	PUBLIC(int, whole, shmem_team_t team, type *dest, const type *source, size_t nelems) \
	{ \
		TEAM("shmem_" #whole); \
		kind("shmem_" #whole, set, (char *)dest, (const char *)source, \
		     bytes_of(nelems, size)); \
		return 0; \
	}
#define TEAM_CALLS(broadcast_name, collect_name, fcollect_name, alltoall_name, alltoalls_name, \
		   type, size) \
	PUBLIC(int, broadcast_name, shmem_team_t team, type *dest, const type *source, \
	       size_t nelems, int root) \
	{ \
		TEAM("shmem_" #broadcast_name); \
		broadcast("shmem_" #broadcast_name, set, (char *)dest, (const char *)source, \
			  bytes_of(nelems, size), root, true); \
		return 0; \
	} \
	TEAM_CALL(collect_name, type, collect, size) \
	TEAM_CALL(fcollect_name, type, fcollect, size) \
	TEAM_CALL(alltoall_name, type, alltoall, size) \
	PUBLIC(int, alltoalls_name, shmem_team_t team, type *dest, const type *source, \
	       ptrdiff_t dst, ptrdiff_t sst, size_t nelems) \
	{ \
		TEAM("shmem_" #alltoalls_name); \
		alltoalls("shmem_" #alltoalls_name, set, (char *)dest, (const char *)source, dst, \
			  sst, nelems, size); \
		return 0; \
	}
#define FOR_TYPE(name, type) \
	TEAM_CALLS(name##_broadcast, name##_collect, name##_fcollect, name##_alltoall, \
		   name##_alltoalls, type, sizeof(type))
YASMIN_SHMEM_RMA(FOR_TYPE)
TEAM_CALLS(broadcastmem, collectmem, fcollectmem, alltoallmem, alltoallsmem, void, 1)

#define ACTIVE(call) set_of_active(call, PE_start, logPE_stride, PE_size, pSync)
#define ACTIVE_CALL(kind, bits) \
	PUBLIC(void, kind##bits, void *dest, const void *source, size_t nelems, \
	       YASMIN_SHMEM_ACTIVE, long *pSync) \
	{ \
		kind("shmem_" #kind #bits, ACTIVE("shmem_" #kind #bits), dest, source, \
		     bytes_of(nelems, bits / 8)); \
	}
#define FOR_BITS(bits) \
	PUBLIC(void, broadcast##bits, void *dest, const void *source, size_t nelems, int root, \
	       YASMIN_SHMEM_ACTIVE, long *pSync) \
	{ \
		broadcast("shmem_broadcast" #bits, ACTIVE("shmem_broadcast" #bits), dest, source, \
			  bytes_of(nelems, bits / 8), root, false); \
	} \
	ACTIVE_CALL(collect, bits) \
	ACTIVE_CALL(fcollect, bits) \
	ACTIVE_CALL(alltoall, bits) \
	PUBLIC(void, alltoalls##bits, void *dest, const void *source, ptrdiff_t dst, \
	       ptrdiff_t sst, size_t nelems, YASMIN_SHMEM_ACTIVE, long *pSync) \
	{ \
		alltoalls("shmem_alltoalls" #bits, ACTIVE("shmem_alltoalls" #bits), dest, source, \
			  dst, sst, nelems, bits / 8); \
	}
FOR_BITS(32)
FOR_BITS(64)
