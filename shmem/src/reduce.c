/* Reductions. Each PE reduces its part of the elements, from all sources in the order of the members,
 * and writes the result to all: so all have the very same bits. A block is read from all before it is
 * written to any, and nobody else reads it, so source and dest may be the same. */
#include "internal.h"

#include <string.h>

#define BLOCK 64ul

#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))
#define XOR(a, b) ((a) ^ (b))
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((b) > (a) ? (b) : (a))
#define SUM(a, b) ((a) + (b))
#define PROD(a, b) ((a) * (b))

#define REDUCE(name, type, word, OP) \
	static void name##_##word(const char *call, struct set set, type *dest, \
				  const type *source, size_t count) \
	{ \
		size_t all = bytes_of(count, sizeof(type)); \
		size_t share = (count + (size_t)set.size - 1) / (size_t)set.size; \
		size_t at = share * (size_t)set.me, end = at + share < count ? at + share : count; \
		remote(call, dest, all, job.me); \
		remote(call, source, all, job.me); \
		set_sync(&set); \
		for (; at < end; at += BLOCK) { \
			size_t n = end - at < BLOCK ? end - at : BLOCK; \
			type block[BLOCK]; \
			memcpy(block, (type *)symmetric(source, all, set_pe(&set, 0)) + at, \
			       n * sizeof(type)); \
			for (int rank = 1; rank < set.size; rank++) { \
				const type *theirs = \
					(type *)symmetric(source, all, set_pe(&set, rank)) + at; \
				for (size_t i = 0; i < n; i++) \
					block[i] = (type)OP(block[i], theirs[i]); \
			} \
			for (int rank = 0; rank < set.size; rank++) \
				memcpy((type *)symmetric(dest, all, set_pe(&set, rank)) + at, block, \
				       n * sizeof(type)); \
		} \
		set_sync(&set); \
	}
#define FOR_TEAM(name, type, word, OP) \
	REDUCE(name, type, word, OP) \
	PUBLIC(int, name##_##word##_reduce, shmem_team_t team, type *dest, const type *source, \
	       size_t nreduce) \
	{ \
		const char *call = "shmem_" #name "_" #word "_reduce"; \
		if (team == SHMEM_TEAM_INVALID) \
			return -1; \
		name##_##word(call, set_of_team(team_of(call, team)), dest, source, nreduce); \
		return 0; \
	}
#define FOR_ACTIVE(name, type, word) \
	PUBLIC(void, name##_##word##_to_all, type *dest, const type *source, int nreduce, \
	       YASMIN_SHMEM_ACTIVE, type *pWrk, long *pSync) \
	{ \
		const char *call = "shmem_" #name "_" #word "_to_all"; \
		(void)pWrk; \
		name##_##word(call, set_of_active(call, PE_start, logPE_stride, PE_size, pSync), \
			      dest, source, nreduce < 0 ? 0 : (size_t)nreduce); \
	}

#define BITS(name, type) \
	FOR_TEAM(name, type, and, AND) FOR_TEAM(name, type, or, OR) FOR_TEAM(name, type, xor, XOR)
#define SUMS(name, type) FOR_TEAM(name, type, sum, SUM) FOR_TEAM(name, type, prod, PROD)
#define NUMBERS(name, type) \
	FOR_TEAM(name, type, min, MIN) FOR_TEAM(name, type, max, MAX) SUMS(name, type)
YASMIN_SHMEM_REDUCED_BITS(BITS)
YASMIN_SHMEM_RMA(NUMBERS)
YASMIN_SHMEM_COMPLEX(SUMS)

/* Types whose bits only active sets reduce. */
#define ACTIVE_BITS_ALONE(name, type) \
	REDUCE(name, type, and, AND) REDUCE(name, type, or, OR) REDUCE(name, type, xor, XOR)
YASMIN_SHMEM_TO_ALL_INTEGERS(ACTIVE_BITS_ALONE)
#define ACTIVE_BITS(name, type) \
	FOR_ACTIVE(name, type, and) FOR_ACTIVE(name, type, or) FOR_ACTIVE(name, type, xor)
#define ACTIVE_SUMS(name, type) FOR_ACTIVE(name, type, sum) FOR_ACTIVE(name, type, prod)
#define ACTIVE_NUMBERS(name, type) \
	FOR_ACTIVE(name, type, min) FOR_ACTIVE(name, type, max) ACTIVE_SUMS(name, type)
YASMIN_SHMEM_TO_ALL_INTEGERS(ACTIVE_BITS)
YASMIN_SHMEM_TO_ALL_INTEGERS(ACTIVE_NUMBERS)
YASMIN_SHMEM_TO_ALL_REALS(ACTIVE_NUMBERS)
YASMIN_SHMEM_COMPLEX(ACTIVE_SUMS)
