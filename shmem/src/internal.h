/*
 * What the parts of the library have in common.
 *
 * The segment of a job, at one address in all of its processing elements (PEs):
 *
 *   ┌─────────┬──────────────────────────┬───────────────┬───────────────┬───
 *   │ control │ teams: TEAMS for each PE │ area of PE 0  │ area of PE 1  │ ...
 *   └─────────┴──────────────────────────┴───────────────┴───────────────┴───
 *                                         globals │ heap
 *
 * Areas are of one size. A symmetric object of this PE has the same offset in every area, so that of
 * another PE is at a fixed distance. The globals of the program are mapped twice: where the
 * program was linked to, and in the area, the same pages. So all PEs reach them as they do the heap,
 * with exact atomics and without a message.
 *
 * Everything that a PE does to another one's memory is done when the call returns: what is "non-
 * blocking" is complete at once, and quiet and fence are fences of the processor.
 */
#ifndef INTERNAL_H
#define INTERNAL_H

#define YASMIN_SHMEM_LIBRARY
#define _GNU_SOURCE
#include <shmem.h>
#include <stdbool.h>
#include <yasmin.h>

/* A program's own `job` or `fail` is none of ours. */
#pragma GCC visibility push(hidden)

/* Teams whose first member a PE can be at a time. Two of PE 0's are there from the start. */
#define TEAMS 64

/* The most that shmem_align gives. */
#define MOST_ALIGNMENT (2ul << 20)

struct control {
	uint64_t ready; /* MAGIC when all below is there */
	uint64_t pes, data_bytes, heap_bytes;
	uint64_t attached; /* how many PEs are */
};

/* Where the members of a team meet. Counts who arrived, and never goes back: a late one of an old
 * team cannot miss its end. */
struct meeting {
	uint64_t arrived;
	uint64_t base; /* "arrived" when this team began */
	uint64_t pad[6];
	uint64_t told[]; /* a word of each member, for the others */
};

struct yasmin_shmem_team {
	int size, me;
	int *pes; /* numbers in the world */
	struct meeting *meeting;
	int slot; /* of its first member's meetings */
	int num_contexts;
};

struct yasmin_shmem_ctx {
	struct yasmin_shmem_team *team;
	long options;
};

extern struct job {
	bool is_up, is_finalized;
	int me, pes, thread_level;
	char *base; /* the segment's own bytes */
	size_t areas_at, area_bytes, data_bytes, heap_bytes, meeting_bytes;
	char *own; /* this PE's area */
	char *data, *heap; /* where this PE's globals are linked to, and its heap */
	int exit_fd; /* oshrun listens there for shmem_global_exit; -1: nobody does */
	unsigned spins; /* looks before a wait gives way */
	bool debug;
} job;

/* Says what is wrong and ends this PE; oshrun ends the others. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);

/* The calls that need a library that is up. */
static inline void check_up(const char *call)
{
	if (__builtin_expect(!job.is_up, 0))
		fail("%s before shmem_init or behind shmem_finalize", call);
}

/* Where `len` bytes at this PE's symmetric `at` are in PE `pe`; NULL: they are not symmetric. */
static inline void *symmetric(const void *at, size_t len, int pe)
{
	size_t offset = (size_t)((const char *)at - job.heap);
	if (__builtin_expect(offset <= job.heap_bytes && len <= job.heap_bytes - offset, 1))
		offset += job.data_bytes;
	else if ((offset = (size_t)((const char *)at - job.data)) > job.data_bytes ||
		 len > job.data_bytes - offset)
		return NULL;
	return job.base + job.areas_at + (size_t)pe * job.area_bytes + offset;
}

__attribute__((noreturn)) void fail_remote(const char *call, const void *at, size_t len, int pe);

/* The same of what a program gives: it must be. */
static inline void *remote(const char *call, const void *at, size_t len, int pe)
{
	void *there = pe >= 0 && pe < job.pes ? symmetric(at, len, pe) : NULL;
	if (__builtin_expect(!there, 0))
		fail_remote(call, at, len, pe);
	return there;
}

/* `nelems` of `size` bytes; what does not fit in memory is no length either. */
static inline size_t bytes_of(size_t nelems, size_t size)
{
	size_t bytes;
	return __builtin_mul_overflow(nelems, size, &bytes) ? SIZE_MAX : bytes;
}

struct yasmin_shmem_team *team_of(const char *call, shmem_team_t team);
int world_pe(const char *call, shmem_ctx_t ctx, int pe);

/* One more look in vain: spins a moment, gives way, then naps, longer and longer up to a
 * millisecond. Starts from 0. */
void look_again(unsigned *looks);

/* Who takes part in a collective call: a team, or an active set with its pSync. */
struct set {
	int size, me;
	const int *pes; /* NULL: start and stride */
	int start, stride;
	struct meeting *meeting; /* NULL: psync */
	long *psync;
};
struct set set_of_team(struct yasmin_shmem_team *team);
struct set set_of_active(const char *call, int start, int log_stride, int size, long *psync);
void set_sync(const struct set *set);
static inline int set_pe(const struct set *set, int rank)
{
	return set->pes ? set->pes[rank] : set->start + rank * set->stride;
}
/* Tells the others a number, not before all have come; set_heard gives that of a member, until the
 * next set_sync; set_forget follows that one. */
void set_tell(const struct set *set, uint64_t number);
uint64_t set_heard(const struct set *set, int rank);
void set_forget(const struct set *set);

void data_find(void);
/* `at`: where this PE's area is in the segment. */
void data_share(const yasmin_segment *segment, uint64_t at);
void heap_begin(void);
void team_begin(void);
struct meeting *meeting_at(int pe, int slot);

#pragma GCC visibility pop

/* Begins a function with both of its names. */
#define PUBLIC(result, name, ...) \
	__attribute__((weak, alias("pshmem_" #name))) result shmem_##name(__VA_ARGS__); \
	result pshmem_##name(__VA_ARGS__)
/* An old name of a function. */
#define OLD_NAME(result, old, name, ...) \
	__attribute__((weak, alias("pshmem_" #name))) result old(__VA_ARGS__);

#endif
