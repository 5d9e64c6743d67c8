// SPDX-License-Identifier: GPL-2.0
/*
 * The domains that run the module, and the control channel with each. The domain with the lower number
 * grants the page and offers the event channel; the other joins. Created and ended by directory.c alone,
 * one at a time.
 */
#include <linux/random.h>
#include <linux/slab.h>

#include "yasmin.h"

static LIST_HEAD(peers);
static DEFINE_MUTEX(peers_mutex);
struct workqueue_struct *yasmin_peer_queue;

static void free_peer(struct kref *ref)
{
	struct peer *peer = container_of(ref, struct peer, ref);

	xa_destroy(&peer->own);
	xa_destroy(&peer->theirs);
	atomic_long_dec(&yasmin_totals.peers);
	kfree(peer);
}

void yasmin_peer_put(struct peer *peer)
{
	kref_put(&peer->ref, free_peer);
}

/* With a reference for the caller; NULL if there is none, or its channel does not stand yet. */
struct peer *yasmin_peer_find(domid_t domid)
{
	struct peer *peer, *found = NULL;

	mutex_lock(&peers_mutex);
	list_for_each_entry(peer, &peers, link)
		if (peer->domid == domid)
			found = peer;
	if (found)
		kref_get(&found->ref);
	mutex_unlock(&peers_mutex);
	return found;
}

void yasmin_peer_for_each(void (*visit)(struct peer *peer, void *data), void *data)
{
	struct peer *peer;

	mutex_lock(&peers_mutex);
	list_for_each_entry(peer, &peers, link)
		visit(peer, data);
	mutex_unlock(&peers_mutex);
}

struct peer *yasmin_peer_create(domid_t domid, u64 nonce, bool lower)
{
	struct peer *peer = kzalloc(sizeof(*peer), GFP_KERNEL);

	if (!peer)
		return NULL;
	kref_init(&peer->ref);
	peer->domid = domid;
	peer->nonce = nonce;
	peer->lower = lower;
	mutex_init(&peer->send_lock);
	INIT_LIST_HEAD(&peer->waiting);
	INIT_WORK(&peer->work, yasmin_control_work);
	xa_init_flags(&peer->own, XA_FLAGS_ALLOC1);
	xa_init(&peer->theirs);
	spin_lock_init(&peer->spare_lock);
	INIT_LIST_HEAD(&peer->spare);
	INIT_DELAYED_WORK(&peer->spare_work, yasmin_spare_expire);
	atomic_long_inc(&yasmin_totals.peers);
	mutex_lock(&peers_mutex);
	list_add_tail(&peer->link, &peers);
	mutex_unlock(&peers_mutex);
	return peer;
}

/* The lower one: page and event channel. */
int yasmin_peer_offer(struct peer *peer)
{
	int err = yasmin_area_grant(&peer->area, peer->domid, 1);

	if (err)
		return err;
	peer->control = peer->area.addresses[0];
	memcpy(peer->control->magic, "YASMINCT", 8);
	peer->control->version = WIRE_VERSION;
	err = yasmin_bell_offer(&peer->bell, peer->domid, yasmin_control_interrupt, peer);
	if (err) {
		yasmin_area_grant_end(&peer->area);
		return err;
	}
	WRITE_ONCE(peer->up, true);
	return 0;
}

/* The higher one. */
int yasmin_peer_join(struct peer *peer, grant_ref_t ref, evtchn_port_t port)
{
	int err = yasmin_area_map(&peer->area, peer->domid, &ref, 1);

	if (err)
		return err;
	peer->control = peer->area.addresses[0];
	err = yasmin_bell_bind(&peer->bell, peer->domid, port, yasmin_control_interrupt, peer);
	if (err) {
		yasmin_area_unmap(&peer->area);
		return err;
	}
	WRITE_ONCE(peer->up, true);
	/* What was sent before we joined. */
	queue_work(yasmin_peer_queue, &peer->work);
	return 0;
}

/* The peer went, or we go: all its connections are reset, everything shared is given back. */
void yasmin_peer_end(struct peer *peer)
{
	struct list_head *at, *next;

	mutex_lock(&peers_mutex);
	list_del(&peer->link);
	mutex_unlock(&peers_mutex);

	mutex_lock(&peer->send_lock);
	peer->gone = true;
	list_for_each_safe(at, next, &peer->waiting)
		kfree(at);
	INIT_LIST_HEAD(&peer->waiting);
	mutex_unlock(&peer->send_lock);

	yasmin_bell_end(&peer->bell, peer);
	cancel_work_sync(&peer->work);
	yasmin_conn_peer_gone(peer);
	if (peer->area.mapped)
		yasmin_area_unmap(&peer->area);
	else
		yasmin_area_grant_end(&peer->area);
	yasmin_peer_put(peer);
}
