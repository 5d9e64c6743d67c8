// SPDX-License-Identifier: GPL-2.0
/*
 * Who is there. dom0's tool yasmin-directory makes /yasmin/DOMID for each guest, which that guest owns and
 * the others read. We write there
 *
 *   /yasmin/OURS/version      "VERSION NONCE"                       we are here; NONCE: this load of ours
 *   /yasmin/OURS/to/THEIRS    "OUR-NONCE THEIR-NONCE REF PORT"      the lower offers the control channel
 *
 * and a watch tells when anything changes. What others write is a hint whom to talk to; Xen itself says
 * whether a grant or an event channel is for us.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <xen/xenbus.h>

#include "yasmin.h"

#define ROOT "/yasmin"

static unsigned int self;
static u64 nonce;
static bool announced;

domid_t yasmin_directory_self(void)
{
	return self;
}

static void scan_domains(struct work_struct *work);
static DECLARE_DELAYED_WORK(scan_work, scan_domains);

/* At most one scan each 10 ms, however often somebody writes. */
static void queue_scan(struct xenbus_watch *watch, const char *path, const char *token)
{
	queue_delayed_work(yasmin_peer_queue, &scan_work, msecs_to_jiffies(10));
}

static struct xenbus_watch watch = { .node = ROOT, .callback = queue_scan };

static void announce_self(void)
{
	char path[32];
	int err;

	if (announced)
		return;
	snprintf(path, sizeof(path), ROOT "/%u", self);
	if (!xenbus_exists(XBT_NIL, path, ""))
		return;
	err = xenbus_printf(XBT_NIL, path, "version", "%u %llx", WIRE_VERSION, nonce);
	if (err)
		pr_warn("yasmin: cannot write %s: %d\n", path, err);
	announced = !err;
}

/* The nonce of a domain's module, 0 if there is none that we can speak to. */
static u64 read_nonce(unsigned int domid)
{
	unsigned int version;
	u64 theirs;
	char path[32];

	snprintf(path, sizeof(path), ROOT "/%u", domid);
	if (xenbus_scanf(XBT_NIL, path, "version", "%u %llx", &version, &theirs) != 2)
		return 0;
	return version == WIRE_VERSION ? theirs : 0;
}

static void offer_control(struct peer *peer)
{
	char path[32], name[16];
	int err = yasmin_peer_offer(peer);

	if (!err) {
		snprintf(path, sizeof(path), ROOT "/%u/to", self);
		snprintf(name, sizeof(name), "%u", peer->domid);
		err = xenbus_printf(XBT_NIL, path, name, "%llx %llx %u %u", nonce, peer->nonce,
				    peer->area.refs[0], peer->bell.port);
	}
	if (err)
		pr_warn("yasmin: no control channel to domain %u: %d\n", peer->domid, err);
}

static void join_control(struct peer *peer)
{
	unsigned int ref, port;
	char path[32], name[16];
	u64 theirs, ours;
	int err;

	snprintf(path, sizeof(path), ROOT "/%u/to", peer->domid);
	snprintf(name, sizeof(name), "%u", self);
	if (xenbus_scanf(XBT_NIL, path, name, "%llx %llx %u %u", &theirs, &ours, &ref, &port) != 4 ||
	    theirs != peer->nonce || ours != nonce)
		return;
	err = yasmin_peer_join(peer, ref, port);
	if (err)
		pr_warn("yasmin: cannot join the control channel of domain %u: %d\n", peer->domid, err);
}

/* Whether the peer is as the directory has it; otherwise it is ended. */
static bool check_current(struct peer *peer, u64 theirs)
{
	char path[48];

	if (peer->nonce == theirs && !peer->gone)
		return true;
	if (peer->lower) {
		snprintf(path, sizeof(path), ROOT "/%u/to", self);
		xenbus_rm(XBT_NIL, path, "");
	}
	yasmin_peer_end(peer);
	return false;
}

static void look_at_domain(unsigned int domid)
{
	u64 theirs = read_nonce(domid);
	struct peer *peer = yasmin_peer_find(domid);

	if (peer) {
		bool same = check_current(peer, theirs);

		if (same && !peer->up && !peer->lower)
			join_control(peer);
		yasmin_peer_put(peer);
		if (same)
			return;
	}
	if (!theirs)
		return;
	peer = yasmin_peer_create(domid, theirs, self < domid);
	if (!peer)
		return;
	if (peer->lower)
		offer_control(peer);
	else
		join_control(peer);
}

struct missing {
	char **names;
	unsigned int count;
	struct peer *peer;
};

static void find_missing(struct peer *peer, void *data)
{
	struct missing *missing = data;
	unsigned int i, domid;

	for (i = 0; i < missing->count; i++)
		if (!kstrtouint(missing->names[i], 10, &domid) && domid == peer->domid)
			return;
	missing->peer = peer;
}

static void scan_domains(struct work_struct *work)
{
	struct missing missing = {};
	unsigned int i, domid;

	announce_self();
	missing.names = xenbus_directory(XBT_NIL, ROOT, "", &missing.count);
	if (IS_ERR(missing.names))
		missing.names = NULL;
	for (i = 0; i < missing.count; i++)
		if (!kstrtouint(missing.names[i], 10, &domid) && domid != self && domid < DOMID_FIRST_RESERVED)
			look_at_domain(domid);
	do {
		missing.peer = NULL;
		yasmin_peer_for_each(find_missing, &missing);
		if (missing.peer)
			yasmin_peer_end(missing.peer);
	} while (missing.peer);
	kfree(missing.names);
}

int yasmin_directory_start(void)
{
	int err;

	if (xenbus_scanf(XBT_NIL, "domid", "", "%u", &self) != 1)
		return -ENODEV;
	do {
		nonce = get_random_u64();
	} while (!nonce);
	err = register_xenbus_watch(&watch);
	if (!err)
		queue_delayed_work(yasmin_peer_queue, &scan_work, 0);
	return err;
}

static void find_any(struct peer *peer, void *data)
{
	struct peer **found = data;

	*found = peer;
}

void yasmin_directory_stop(void)
{
	struct peer *peer;
	char path[32];

	unregister_xenbus_watch(&watch);
	cancel_delayed_work_sync(&scan_work);
	snprintf(path, sizeof(path), ROOT "/%u", self);
	if (announced) {
		xenbus_rm(XBT_NIL, path, "version");
		xenbus_rm(XBT_NIL, path, "to");
	}
	do {
		peer = NULL;
		yasmin_peer_for_each(find_any, &peer);
		if (peer)
			yasmin_peer_end(peer);
	} while (peer);
}
