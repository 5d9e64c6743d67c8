// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/yasmin/connections: a line for each connection and its counters; totals: what must be
 * back at the same figures when all are closed; sums: what closed connections did. For people and tests;
 * root only, as debugfs is.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#define CREATE_TRACE_POINTS
#include "trace.h"
#include "yasmin.h"

static struct dentry *folder;

static void show_table(struct seq_file *file, struct peer *peer, struct xarray *table)
{
	struct conn *conn;
	unsigned long id;

	xa_lock(table);
	xa_for_each(table, id, conn)
		seq_printf(file, "%u %lu %s %s %u %llu %llu %llu %llu %llu %llu\n",
			   WIRE_CID_BASE + peer->domid, id, conn->connector ? "connector" : "acceptor",
			   conn->kept ? "kept" : conn->dead ? "dead" : conn->established ? "established" : "connecting",
			   wire_class_bytes(conn->class), conn->sent_bytes, conn->received_bytes, conn->sends,
			   conn->receives, conn->bells, conn->events);
	xa_unlock(table);
}

static void show_peer(struct peer *peer, void *data)
{
	show_table(data, peer, &peer->own);
	show_table(data, peer, &peer->theirs);
}

static int connections_show(struct seq_file *file, void *data)
{
	seq_puts(file, "peer id role state ring_bytes sent_bytes received_bytes sends receives bells events\n");
	yasmin_peer_for_each(show_peer, file);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(connections);

static void show_one_peer(struct peer *peer, void *data)
{
	seq_printf(data, "%u %s\n", WIRE_CID_BASE + peer->domid,
		   peer->gone ? "gone" : peer->up ? "up" : "waiting");
}

static int peers_show(struct seq_file *file, void *data)
{
	seq_puts(file, "peer state\n");
	yasmin_peer_for_each(show_one_peer, file);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(peers);

static int totals_show(struct seq_file *file, void *data)
{
	seq_printf(file, "granted_pages %ld\nmapped_pages %ld\nconns %ld\nkept %ld\npeers %ld\nbells %ld\nbreaches %ld\n",
		   atomic_long_read(&yasmin_totals.granted_pages), atomic_long_read(&yasmin_totals.mapped_pages),
		   atomic_long_read(&yasmin_totals.conns), atomic_long_read(&yasmin_totals.kept),
		   atomic_long_read(&yasmin_totals.peers), atomic_long_read(&yasmin_totals.bells),
		   atomic_long_read(&yasmin_totals.breaches));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(totals);

static int sums_show(struct seq_file *file, void *data)
{
	seq_printf(file, "copied_in_bytes %lld\ncopied_out_bytes %lld\nbells %lld\nevents %lld\n",
		   atomic64_read(&yasmin_sums.copied_in), atomic64_read(&yasmin_sums.copied_out),
		   atomic64_read(&yasmin_sums.bells), atomic64_read(&yasmin_sums.events));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(sums);

void yasmin_stats_start(void)
{
	folder = debugfs_create_dir("yasmin", NULL);
	debugfs_create_file("connections", 0400, folder, NULL, &connections_fops);
	debugfs_create_file("peers", 0400, folder, NULL, &peers_fops);
	debugfs_create_file("totals", 0400, folder, NULL, &totals_fops);
	debugfs_create_file("sums", 0400, folder, NULL, &sums_fops);
}

void yasmin_stats_stop(void)
{
	debugfs_remove(folder);
}
