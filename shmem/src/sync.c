/* Meetings: of teams, by a count that never goes back; of active sets, in their pSync, which is again
 * what it was when the call returns.
 *
 * pSync: [0] of the first member's counts who arrived, [1] of each says that all have, [2] is what
 * it tells the others. */
#include "internal.h"

struct set set_of_team(struct yasmin_shmem_team *team)
{
	return (struct set){ .size = team->size, .me = team->me, .pes = team->pes,
			     .meeting = team->meeting };
}

struct set set_of_active(const char *call, int start, int log_stride, int size, long *psync)
{
	check_up(call);
	long last = log_stride >= 0 && log_stride < 31 ? start + (long)(size - 1) * (1l << log_stride)
						       : -1;
	if (start < 0 || size < 1 || last < 0 || last >= job.pes)
		fail("%s: PE_start %d, logPE_stride %d and PE_size %d are no active set of %d PEs", call,
		     start, log_stride, size, job.pes);
	struct set set = { .size = size, .start = start, .stride = 1 << log_stride,
			   .psync = psync };
	int from = job.me - start;
	if (from < 0 || from % set.stride || from / set.stride >= size)
		fail("%s: this PE is not in the active set", call);
	set.me = from / set.stride;
	remote(call, psync, SHMEM_SYNC_SIZE * sizeof(long), job.me);
	return set;
}

static long *psync_of(const struct set *set, int rank)
{
	return symmetric(set->psync, SHMEM_SYNC_SIZE * sizeof(long), set_pe(set, rank));
}

static void meet(struct meeting *meeting, uint64_t size)
{
	uint64_t mine = __atomic_fetch_add(&meeting->arrived, 1, __ATOMIC_ACQ_REL) - meeting->base;
	uint64_t last = meeting->base + (mine / size + 1) * size;
	for (unsigned looks = 0; __atomic_load_n(&meeting->arrived, __ATOMIC_ACQUIRE) < last;)
		look_again(&looks);
}

static void meet_active(const struct set *set)
{
	long *own = psync_of(set, set->me), *first = psync_of(set, 0);
	if (__atomic_add_fetch(&first[0], 1, __ATOMIC_ACQ_REL) == set->size) {
		/* Before anybody is let go, who may begin the next round. */
		__atomic_store_n(&first[0], SHMEM_SYNC_VALUE, __ATOMIC_RELAXED);
		for (int rank = 0; rank < set->size; rank++)
			if (rank != set->me)
				__atomic_store_n(&psync_of(set, rank)[1], 1, __ATOMIC_RELEASE);
		return;
	}
	for (unsigned looks = 0; !__atomic_load_n(&own[1], __ATOMIC_ACQUIRE);)
		look_again(&looks);
	__atomic_store_n(&own[1], SHMEM_SYNC_VALUE, __ATOMIC_RELAXED);
}

void set_sync(const struct set *set)
{
	if (set->meeting)
		meet(set->meeting, (uint64_t)set->size);
	else
		meet_active(set);
}

void set_tell(const struct set *set, uint64_t number)
{
	if (set->meeting)
		set->meeting->told[set->me] = number;
	else
		psync_of(set, set->me)[2] = (long)number;
}

uint64_t set_heard(const struct set *set, int rank)
{
	return set->meeting ? set->meeting->told[rank] : (uint64_t)psync_of(set, rank)[2];
}

void set_forget(const struct set *set)
{
	if (!set->meeting)
		psync_of(set, set->me)[2] = SHMEM_SYNC_VALUE;
}

PUBLIC(void, sync_all, void)
{
	struct set world = set_of_team(team_of("shmem_sync_all", SHMEM_TEAM_WORLD));
	set_sync(&world);
}

PUBLIC(void, barrier_all, void)
{
	pshmem_quiet();
	struct set world = set_of_team(team_of("shmem_barrier_all", SHMEM_TEAM_WORLD));
	set_sync(&world);
}

PUBLIC(int, team_sync, shmem_team_t team)
{
	if (team == SHMEM_TEAM_INVALID)
		return -1;
	struct set set = set_of_team(team_of("shmem_team_sync", team));
	set_sync(&set);
	return 0;
}

PUBLIC(void, sync, YASMIN_SHMEM_ACTIVE, long *pSync)
{
	struct set set = set_of_active("shmem_sync", PE_start, logPE_stride, PE_size, pSync);
	set_sync(&set);
}

PUBLIC(void, barrier, YASMIN_SHMEM_ACTIVE, long *pSync)
{
	pshmem_quiet();
	struct set set = set_of_active("shmem_barrier", PE_start, logPE_stride, PE_size, pSync);
	set_sync(&set);
}

/* Stores of others become visible in the order they were made; what a copy did with other kinds of
 * stores comes before, too. */
static void order(const char *call)
{
	check_up(call);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

PUBLIC(void, fence, void)
{
	order("shmem_fence");
}

PUBLIC(void, quiet, void)
{
	order("shmem_quiet");
}

PUBLIC(void, ctx_fence, shmem_ctx_t ctx)
{
	if (ctx != SHMEM_CTX_INVALID)
		order("shmem_ctx_fence");
}

PUBLIC(void, ctx_quiet, shmem_ctx_t ctx)
{
	if (ctx != SHMEM_CTX_INVALID)
		order("shmem_ctx_quiet");
}
