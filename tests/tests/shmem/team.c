/* Teams and contexts: who is in which, by which number, and what goes where by their contexts. */
#include "check.h"

static long word;

int main(void)
{
	shmem_team_t even, again, row, column, none;
	shmem_team_config_t config = { .num_contexts = 3 };
	shmem_ctx_t ctx;

	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes();
	CHECK(shmem_team_my_pe(SHMEM_TEAM_WORLD) == me && shmem_team_n_pes(SHMEM_TEAM_WORLD) == n);
	CHECK(shmem_team_my_pe(SHMEM_TEAM_SHARED) == me && shmem_team_n_pes(SHMEM_TEAM_SHARED) == n);
	CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1);
	CHECK(shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1);

	int evens = (n + 1) / 2;
	CHECK(!shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, evens, &config,
					SHMEM_TEAM_NUM_CONTEXTS, &even));
	if (me % 2) {
		CHECK(even == SHMEM_TEAM_INVALID);
	} else {
		CHECK(shmem_team_my_pe(even) == me / 2 && shmem_team_n_pes(even) == evens);
		shmem_team_config_t found = { 0 };
		CHECK(!shmem_team_get_config(even, SHMEM_TEAM_NUM_CONTEXTS, &found));
		CHECK(found.num_contexts == 3);
		for (int pe = 0; pe < n; pe++)
			CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, pe, even) ==
			      (pe % 2 ? -1 : pe / 2));
		for (int pe = 0; pe < evens; pe++)
			CHECK(shmem_team_translate_pe(even, pe, SHMEM_TEAM_WORLD) == 2 * pe);
		CHECK(shmem_team_translate_pe(even, evens, SHMEM_TEAM_WORLD) == -1);
		/* A team of a team. */
		CHECK(!shmem_team_split_strided(even, evens - 1, -1, evens, NULL, 0, &again));
		CHECK(shmem_team_my_pe(again) == evens - 1 - me / 2);
		CHECK(shmem_team_translate_pe(again, 0, SHMEM_TEAM_WORLD) == 2 * (evens - 1));
		CHECK(!shmem_team_sync(again) && !shmem_team_sync(even));
		/* By a context, PEs have the team's numbers. */
		shmem_team_t of;
		CHECK(!shmem_team_create_ctx(again, SHMEM_CTX_SERIALIZED, &ctx));
		CHECK(!shmem_ctx_get_team(ctx, &of) && of == again);
		shmem_ctx_long_p(ctx, &word, 100 + me, evens - 1 - me / 2);
		shmem_ctx_fence(ctx);
		CHECK(word == 100 + me);
		CHECK(shmem_team_ptr(again, &word, evens - 1 - me / 2) == &word);
		CHECK(!shmem_team_ptr(again, &word, evens));
		CHECK(shmem_ctx_long_atomic_fetch_add(ctx, &word, 1, evens - 1 - me / 2) == 100 + me);
		shmem_ctx_destroy(ctx);
		shmem_team_destroy(again);
	}
	CHECK(!shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &none) && none == SHMEM_TEAM_WORLD);
	CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &none) && none == SHMEM_TEAM_INVALID);
	CHECK(shmem_team_create_ctx(SHMEM_TEAM_INVALID, 0, &ctx) && ctx == SHMEM_CTX_INVALID);
	CHECK(shmem_ctx_create(1 << 20, &ctx));

	CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &none));
	CHECK(none == SHMEM_TEAM_INVALID);
	CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, -1, 1, 1, NULL, 0, &none));
	CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, 1, 2, NULL, 0, &none));
	CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &none));
	shmem_team_destroy(SHMEM_TEAM_INVALID);

	/* More often than there are teams at a time. */
	for (int i = 0; i < 150; i++) {
		CHECK(!shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &row, NULL, 0, &column));
		CHECK(shmem_team_my_pe(row) == me % 2 && shmem_team_my_pe(column) == me / 2);
		CHECK(shmem_team_n_pes(row) == (me / 2 * 2 + 1 < n ? 2 : 1));
		CHECK(shmem_team_n_pes(column) == (n - me % 2 + 1) / 2);
		CHECK(shmem_team_translate_pe(row, 0, SHMEM_TEAM_WORLD) == me / 2 * 2);
		long sum = -1, *from = &word;
		word = me;
		shmem_barrier_all();
		static long total;
		CHECK(!shmem_long_sum_reduce(row, &total, from, 1));
		sum = total;
		CHECK(sum == (me / 2 * 2 + 1 < n ? me / 2 * 4 + 1 : me));
		shmem_team_destroy(row);
		shmem_team_destroy(column);
	}
	/* When there are no more, all are told. */
	shmem_team_t many[100];
	int made = 0;
	while (made < 100 &&
	       !shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &many[made]))
		made++;
	CHECK(made >= 60 && made < 100 && many[made] == SHMEM_TEAM_INVALID);
	while (made)
		shmem_team_destroy(many[--made]);
	shmem_finalize();
	return 0;
}
