// SPDX-License-Identifier: GPL-2.0
/*
 * Channels that outlive their connection. To make pages, grant and map them costs more than the rest of a
 * connect, so a channel whose connection ended well is kept by both sides for the next one of that pair of
 * domains. The connector decides: it takes one of its spare channels, or drops it; the acceptor keeps it
 * mapped meanwhile, and may only ask for it to be dropped.
 *
 *   connector                                             acceptor
 *               ◀── RELEASE, kept ───                     its socket closed: no socket, still in the table
 *   yasmin_spare_put
 *   yasmin_spare_take  ─── CONNECT, again ──▶                    yasmin_spare_join
 *   or: drop    ─── DROP ────────────▶                    unmaps
 *   freed       ◀── RELEASE ──────────
 *
 * What is left in the pages is no secret of either side: both have seen it all, and nobody else gets these
 * pages. Positions begin anew (yasmin_ring_block_init, private state), so none of it is read as a new byte.
 */
#include <linux/mm.h>
#include <linux/shrinker.h>
#include <linux/version.h>

#include "yasmin.h"

/* What nobody has used for so long is dropped. */
#define KEPT_FOR (10 * HZ)

static atomic_long_t kept_pages;

static void count_kept(struct conn *conn, int by)
{
	atomic_long_add(by, &yasmin_totals.kept);
	atomic_long_sub(by, &yasmin_totals.conns);
	atomic_long_add(by * (long)conn->area.count, &kept_pages);
}

/* ---- the connector's ---- */

/* Gives a channel that the peer keeps back: freed when the peer has answered. With the one reference. */
static void drop_channel(struct conn *conn)
{
	conn->kept = false;
	conn->dropped = true;
	/* Its place in the table is reserved. */
	xa_store(&conn->peer->own, conn->id, conn, GFP_KERNEL);
	if (yasmin_conn_send(conn, WIRE_DROP, 0) && yasmin_conn_unlist(conn))
		yasmin_conn_put(conn);
}

/* Takes the oldest that has been spare since `until` or earlier. */
static struct conn *take_oldest(struct peer *peer, unsigned long until)
{
	struct conn *conn;

	spin_lock(&peer->spare_lock);
	conn = list_empty(&peer->spare) ? NULL : list_last_entry(&peer->spare, struct conn, spare);
	if (conn && time_after(conn->since, until)) {
		queue_delayed_work(yasmin_peer_queue, &peer->spare_work, conn->since - until);
		conn = NULL;
	}
	if (conn) {
		list_del(&conn->spare);
		peer->spare_count--;
	}
	spin_unlock(&peer->spare_lock);
	if (conn)
		count_kept(conn, -1);
	return conn;
}

void yasmin_spare_expire(struct work_struct *work)
{
	struct peer *peer = container_of(to_delayed_work(work), struct peer, spare_work);
	unsigned long until = jiffies - KEPT_FOR;
	struct conn *conn;

	while ((conn = take_oldest(peer, until)))
		drop_channel(conn);
}

/* Drops all that is spare. */
void yasmin_spare_trim(struct peer *peer)
{
	unsigned long until = jiffies;
	struct conn *conn;

	while ((conn = take_oldest(peer, until)))
		drop_channel(conn);
}

/*
 * Takes over a connection that nobody refers to any more and whose channel the acceptor keeps; the newest
 * first, whose pages are the likeliest to be in a cache.
 */
void yasmin_spare_put(struct conn *conn)
{
	struct peer *peer = conn->peer;
	bool kept;

	kref_init(&conn->ref);
	yasmin_conn_account(conn);
	spin_lock(&peer->spare_lock);
	kept = !peer->spare_ends && peer->spare_count < READ_ONCE(yasmin_kept_channels);
	if (kept) {
		count_kept(conn, 1);
		conn->since = jiffies;
		list_add(&conn->spare, &peer->spare);
		peer->spare_count++;
		queue_delayed_work(yasmin_peer_queue, &peer->spare_work, KEPT_FOR);
	}
	spin_unlock(&peer->spare_lock);
	if (!kept)
		drop_channel(conn);
}

/* A spare channel of that class, as good as new; NULL if there is none. Its name is its old one. */
struct conn *yasmin_spare_take(struct peer *peer, u8 class)
{
	struct conn *conn, *found = NULL;

	spin_lock(&peer->spare_lock);
	list_for_each_entry(conn, &peer->spare, spare)
		if (conn->class == class) {
			found = conn;
			break;
		}
	if (found) {
		list_del(&found->spare);
		peer->spare_count--;
	}
	spin_unlock(&peer->spare_lock);
	if (!found)
		return NULL;
	count_kept(found, -1);
	found->kept = false;
	yasmin_conn_begin(found);
	return found;
}

/* The peer is gone, and no connection of its is left: what is spare is freed, and no more is kept. */
void yasmin_spare_end(struct peer *peer)
{
	struct conn *conn;

	spin_lock(&peer->spare_lock);
	peer->spare_ends = true;
	spin_unlock(&peer->spare_lock);
	cancel_delayed_work_sync(&peer->spare_work);
	while ((conn = take_oldest(peer, jiffies))) {
		conn->kept = false;
		yasmin_conn_put(conn);
	}
}

/* ---- the acceptor's ---- */

/*
 * The socket has let go, and all went well: whether the channel stays mapped for the next connection. Not where
 * it would take the place of other ones: it counts as a connection.
 */
bool yasmin_spare_keep(struct conn *conn)
{
	struct peer *peer = conn->peer;
	bool kept;

	if (conn->connector || !conn->may_keep)
		return false;
	yasmin_conn_account(conn);
	xa_lock(&peer->theirs);
	kept = xa_load(&peer->theirs, conn->id) == conn && peer->kept < READ_ONCE(yasmin_kept_channels) &&
	       atomic_read(&peer->theirs_count) <= READ_ONCE(yasmin_max_connections) / 2;
	if (kept) {
		/* From here on it is the peer's to use again. */
		conn->kept = true;
		peer->kept++;
		count_kept(conn, 1);
	}
	xa_unlock(&peer->theirs);
	return kept;
}

/* It leaves the table, or is used again. Under the table's lock. */
void yasmin_spare_unkeep(struct conn *conn)
{
	if (conn->connector || !conn->kept)
		return;
	conn->kept = false;
	conn->peer->kept--;
	count_kept(conn, -1);
}

/* The kept channel that a CONNECT names; NULL if that is none. The reference stays the table's. */
struct conn *yasmin_spare_join(struct peer *peer, const struct wire_message *connect)
{
	struct conn *conn;

	xa_lock(&peer->theirs);
	conn = xa_load(&peer->theirs, connect->id);
	if (conn && conn->kept && conn->class == connect->class)
		yasmin_spare_unkeep(conn);
	else
		conn = NULL;
	xa_unlock(&peer->theirs);
	if (conn)
		yasmin_conn_begin(conn);
	return conn;
}

/* ---- memory ---- */

static void trim_peer(struct peer *peer, void *data)
{
	struct wire_message tight = { .kind = WIRE_TIGHT };

	yasmin_spare_trim(peer);
	if (READ_ONCE(peer->kept))
		yasmin_control_send(peer, &tight);
}

static void trim_peers(struct work_struct *work)
{
	yasmin_peer_for_each(trim_peer, NULL);
}
static DECLARE_WORK(trim_work, trim_peers);

/* Memory or grants are short: what is kept is given back, soon. */
void yasmin_spare_tight(void)
{
	queue_work(yasmin_peer_queue, &trim_work);
}

static unsigned long count_spares(struct shrinker *shrinker, struct shrink_control *control)
{
	return atomic_long_read(&kept_pages) ?: SHRINK_EMPTY;
}

/* Who wants memory may hold any lock, and pages come back only when the peer has answered. */
static unsigned long refuse_scan(struct shrinker *shrinker, struct shrink_control *control)
{
	yasmin_spare_tight();
	return SHRINK_STOP;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
static struct shrinker *shrinker;

int yasmin_spare_start(void)
{
	shrinker = shrinker_alloc(0, "yasmin");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = count_spares;
	shrinker->scan_objects = refuse_scan;
	shrinker_register(shrinker);
	return 0;
}

static void remove_shrinker(void)
{
	shrinker_free(shrinker);
}
#else
static struct shrinker shrinker = {
	.count_objects = count_spares,
	.scan_objects = refuse_scan,
	.seeks = DEFAULT_SEEKS,
};

int yasmin_spare_start(void)
{
	return register_shrinker(&shrinker, "yasmin");
}

static void remove_shrinker(void)
{
	unregister_shrinker(&shrinker);
}
#endif

void yasmin_spare_stop(void)
{
	remove_shrinker();
	cancel_work_sync(&trim_work);
}
