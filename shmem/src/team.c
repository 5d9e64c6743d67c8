/* Teams and contexts. A team's members meet in a place of its first member's; which one that is the
 * first member tells the others through the parent's meeting. */
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static struct yasmin_shmem_team world, shared;
/* Which meetings of this PE's are in use. */
static bool taken[TEAMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct meeting *meeting_at(int pe, int slot)
{
	size_t at = ((size_t)pe * TEAMS + (size_t)slot) * job.meeting_bytes;
	return (struct meeting *)(job.base + 4096 + at);
}

static int *numbers(int size)
{
	int *pes = malloc((size_t)size * sizeof(*pes));
	if (!pes)
		fail("no memory for a team of %d", size);
	return pes;
}

void team_begin(void)
{
	int *pes = numbers(job.pes);
	for (int pe = 0; pe < job.pes; pe++)
		pes[pe] = pe;
	world = (struct yasmin_shmem_team){ job.pes, job.me, pes, meeting_at(0, 0), 0, 0 };
	/* All share memory. */
	shared = world;
	shared.meeting = meeting_at(0, shared.slot = 1);
	taken[0] = taken[1] = job.me == 0;
}

struct yasmin_shmem_team *team_of(const char *call, shmem_team_t team)
{
	check_up(call);
	if (team == SHMEM_TEAM_WORLD)
		return &world;
	if (team == SHMEM_TEAM_SHARED)
		return &shared;
	if (team == SHMEM_TEAM_INVALID)
		fail("%s: SHMEM_TEAM_INVALID is no team", call);
	return team;
}

PUBLIC(int, team_my_pe, shmem_team_t team)
{
	return team == SHMEM_TEAM_INVALID ? -1 : team_of("shmem_team_my_pe", team)->me;
}

PUBLIC(int, team_n_pes, shmem_team_t team)
{
	return team == SHMEM_TEAM_INVALID ? -1 : team_of("shmem_team_n_pes", team)->size;
}

PUBLIC(int, team_get_config, shmem_team_t team, long mask, shmem_team_config_t *config)
{
	if (team == SHMEM_TEAM_INVALID || mask & ~SHMEM_TEAM_NUM_CONTEXTS || (mask && !config))
		return -1;
	if (mask & SHMEM_TEAM_NUM_CONTEXTS)
		config->num_contexts = team_of("shmem_team_get_config", team)->num_contexts;
	return 0;
}

static int rank_in(const struct yasmin_shmem_team *team, int pe)
{
	for (int rank = 0; rank < team->size; rank++)
		if (team->pes[rank] == pe)
			return rank;
	return -1;
}

PUBLIC(int, team_translate_pe, shmem_team_t from, int pe, shmem_team_t to)
{
	if (from == SHMEM_TEAM_INVALID || to == SHMEM_TEAM_INVALID)
		return -1;
	struct yasmin_shmem_team *source = team_of("shmem_team_translate_pe", from);
	if (pe < 0 || pe >= source->size)
		return -1;
	return rank_in(team_of("shmem_team_translate_pe", to), source->pes[pe]);
}

/* The number of a free meeting of this PE's, from 1; 0: none is. */
static int take_meeting(void)
{
	int slot = 0;
	pthread_mutex_lock(&lock);
	while (slot < TEAMS && taken[slot])
		slot++;
	if (slot < TEAMS)
		taken[slot] = true;
	pthread_mutex_unlock(&lock);
	if (slot == TEAMS)
		return 0;
	struct meeting *meeting = meeting_at(job.me, slot);
	/* All members of the last team have arrived for the last time. */
	meeting->base = __atomic_load_n(&meeting->arrived, __ATOMIC_ACQUIRE);
	return slot + 1;
}

static void give_meeting(int slot)
{
	pthread_mutex_lock(&lock);
	taken[slot] = false;
	pthread_mutex_unlock(&lock);
}

/* Makes the team of the parent's members `start`, `start + stride` and so on, of which this PE is
 * one unless `size` is 0. All members of the parent call it, for whatever teams of theirs. */
static int make(struct yasmin_shmem_team *parent, int start, int stride, int size,
		const shmem_team_config_t *config, long mask, shmem_team_t *result)
{
	struct set all = set_of_team(parent);
	bool is_first = size && parent->me == start;
	int slot = is_first ? take_meeting() : 0;
	*result = SHMEM_TEAM_INVALID;
	set_sync(&all);
	if (is_first)
		set_tell(&all, (uint64_t)slot);
	set_sync(&all);
	if (size)
		slot = (int)set_heard(&all, start);
	set_sync(&all);
	if (!size)
		return 0;
	if (!slot)
		return ENOSPC;
	struct yasmin_shmem_team *team = malloc(sizeof(*team));
	if (!team)
		fail("no memory for a team");
	team->pes = numbers(size);
	team->size = size;
	team->slot = slot - 1;
	team->num_contexts = mask & SHMEM_TEAM_NUM_CONTEXTS && config ? config->num_contexts : 0;
	for (int rank = 0; rank < size; rank++) {
		team->pes[rank] = parent->pes[start + rank * stride];
		if (start + rank * stride == parent->me)
			team->me = rank;
	}
	team->meeting = meeting_at(team->pes[0], team->slot);
	*result = team;
	return 0;
}

PUBLIC(int, team_split_strided, shmem_team_t from, int start, int stride, int size,
       const shmem_team_config_t *config, long mask, shmem_team_t *team)
{
	*team = SHMEM_TEAM_INVALID;
	if (from == SHMEM_TEAM_INVALID)
		return EINVAL;
	struct yasmin_shmem_team *parent = team_of("shmem_team_split_strided", from);
	long last = (long)start + ((long)size - 1) * stride;
	if (size < 1 || size > parent->size || (!stride && size > 1) || start < 0 ||
	    start >= parent->size || last < 0 || last >= parent->size ||
	    mask & ~SHMEM_TEAM_NUM_CONTEXTS)
		return EINVAL;
	bool is_in = false;
	for (int rank = 0; rank < size; rank++)
		is_in |= start + rank * stride == parent->me;
	return make(parent, start, stride, is_in ? size : 0, config, mask, team);
}

PUBLIC(int, team_split_2d, shmem_team_t from, int xrange, const shmem_team_config_t *xconfig,
       long xmask, shmem_team_t *xteam, const shmem_team_config_t *yconfig, long ymask,
       shmem_team_t *yteam)
{
	*xteam = *yteam = SHMEM_TEAM_INVALID;
	if (from == SHMEM_TEAM_INVALID || xrange < 1 || (xmask | ymask) & ~SHMEM_TEAM_NUM_CONTEXTS)
		return EINVAL;
	struct yasmin_shmem_team *parent = team_of("shmem_team_split_2d", from);
	if (xrange > parent->size)
		xrange = parent->size;
	int row = parent->me / xrange * xrange, column = parent->me % xrange;
	int in_row = parent->size - row < xrange ? parent->size - row : xrange;
	int in_column = (parent->size - column + xrange - 1) / xrange;
	int x = make(parent, row, 1, in_row, xconfig, xmask, xteam);
	int y = make(parent, column, xrange, in_column, yconfig, ymask, yteam);
	return x ? x : y;
}

PUBLIC(void, team_destroy, shmem_team_t handle)
{
	if (handle == SHMEM_TEAM_INVALID)
		return;
	if (handle == SHMEM_TEAM_WORLD || handle == SHMEM_TEAM_SHARED)
		fail("shmem_team_destroy: the world and the shared team stay");
	struct yasmin_shmem_team *team = team_of("shmem_team_destroy", handle);
	struct set all = set_of_team(team);
	set_sync(&all);
	if (!team->me)
		give_meeting(team->slot);
	free(team->pes);
	free(team);
}

PUBLIC(int, team_create_ctx, shmem_team_t team, long options, shmem_ctx_t *ctx)
{
	long known = SHMEM_CTX_SERIALIZED | SHMEM_CTX_PRIVATE | SHMEM_CTX_NOSTORE;
	*ctx = SHMEM_CTX_INVALID;
	if (team == SHMEM_TEAM_INVALID || options & ~known)
		return EINVAL;
	struct yasmin_shmem_ctx *new = malloc(sizeof(*new));
	if (!new)
		return ENOMEM;
	new->team = team_of("shmem_team_create_ctx", team);
	new->options = options;
	*ctx = new;
	return 0;
}

PUBLIC(int, ctx_create, long options, shmem_ctx_t *ctx)
{
	return pshmem_team_create_ctx(SHMEM_TEAM_WORLD, options, ctx);
}

PUBLIC(void, ctx_destroy, shmem_ctx_t ctx)
{
	if (ctx == SHMEM_CTX_DEFAULT)
		fail("shmem_ctx_destroy: the default context stays");
	free(ctx);
}

PUBLIC(int, ctx_get_team, shmem_ctx_t ctx, shmem_team_t *team)
{
	*team = SHMEM_TEAM_INVALID;
	if (ctx == SHMEM_CTX_INVALID)
		return -1;
	struct yasmin_shmem_team *of = ctx == SHMEM_CTX_DEFAULT ? &world : ctx->team;
	*team = of == &world ? SHMEM_TEAM_WORLD : of == &shared ? SHMEM_TEAM_SHARED : of;
	return 0;
}

/* The PE that a context's calls mean. */
int world_pe(const char *call, shmem_ctx_t ctx, int pe)
{
	if (ctx == SHMEM_CTX_DEFAULT)
		return pe;
	if (ctx == SHMEM_CTX_INVALID)
		fail("%s: SHMEM_CTX_INVALID is no context", call);
	if (pe < 0 || pe >= ctx->team->size)
		fail("%s: there is no PE %d in the context's team, but 0 to %d", call, pe,
		     ctx->team->size - 1);
	return ctx->team->pes[pe];
}
