// SPDX-License-Identifier: GPL-2.0
/*
 * Messages over the control channel: two queues in one page, an event for each message. A message is
 * copied out, /then/ checked and used. What the queue has no room for waits here, up to a bound.
 */
#include <linux/slab.h>
#include <xen/events.h>

#include "trace.h"
#include "yasmin.h"

/* A step of work: enough to be worth an event, few enough to let others in. */
#define BATCH 64
/* More than that waiting for a peer, and it has stopped to read: honest ones never get there. */
#define WAITING_MAX 8192

struct waiting {
	struct list_head link;
	struct wire_message message;
};

irqreturn_t yasmin_control_interrupt(int irq, void *data)
{
	struct peer *peer = data;

	/* yasmin_control_work answers the event. */
	queue_work(yasmin_peer_queue, &peer->work);
	return IRQ_HANDLED;
}

/* Puts a message into the queue if there is room. Under send_lock. */
static bool put_message(struct peer *peer, const struct wire_message *message)
{
	int out = peer->lower ? 0 : 1;
	struct wire_control *control = peer->control;
	u32 peer_consumed = virt_load_acquire(&control->consumed[out].index);

	if (peer->produced - peer_consumed >= WIRE_CONTROL_SLOTS) {
		/* The wish, /then/ another look: pairs with yasmin_control_work. */
		WRITE_ONCE(control->produced[out].waits, 1);
		virt_mb();
		peer_consumed = virt_load_acquire(&control->consumed[out].index);
		if (peer->produced - peer_consumed >= WIRE_CONTROL_SLOTS)
			return false;
	}
	control->slots[out][peer->produced % WIRE_CONTROL_SLOTS] = *message;
	peer->produced++;
	/* The message, /then/ the index: pairs with take_message. */
	virt_store_release(&control->produced[out].index, peer->produced);
	return true;
}

/* Sends what waits. Under send_lock. */
static void send_waiting(struct peer *peer)
{
	struct waiting *first;
	bool any = false;

	while ((first = list_first_entry_or_null(&peer->waiting, struct waiting, link))) {
		if (!put_message(peer, &first->message))
			break;
		list_del(&first->link);
		peer->waiting_count--;
		kfree(first);
		any = true;
	}
	if (list_empty(&peer->waiting))
		WRITE_ONCE(peer->control->produced[peer->lower ? 0 : 1].waits, 0);
	if (any)
		yasmin_bell_ring(&peer->bell);
}

int yasmin_control_send(struct peer *peer, const struct wire_message *message)
{
	struct waiting *waiting;
	int err = 0;

	trace_yasmin_message(peer->domid, true, message->kind, message->role, message->id);
	mutex_lock(&peer->send_lock);
	if (peer->gone || !peer->up) {
		err = -EHOSTUNREACH;
	} else if (list_empty(&peer->waiting) && put_message(peer, message)) {
		yasmin_bell_ring(&peer->bell);
	} else if (peer->waiting_count >= WAITING_MAX) {
		err = -ENOBUFS;
	} else {
		waiting = kmalloc(sizeof(*waiting), GFP_KERNEL);
		if (waiting) {
			waiting->message = *message;
			list_add_tail(&waiting->link, &peer->waiting);
			peer->waiting_count++;
		} else {
			err = -ENOMEM;
		}
	}
	mutex_unlock(&peer->send_lock);
	return err;
}

/* Copies the next message out: 1; none: 0; a queue that cannot be: -EPROTO. */
static int take_message(struct peer *peer, struct wire_message *message)
{
	int in = peer->lower ? 1 : 0;
	struct wire_control *control = peer->control;
	u32 peer_produced = virt_load_acquire(&control->produced[in].index);
	u32 pending = peer_produced - peer->consumed;

	if (pending > WIRE_CONTROL_SLOTS)
		return -EPROTO;
	if (!pending)
		return 0;
	*message = control->slots[in][peer->consumed % WIRE_CONTROL_SLOTS];
	/* The compiler may not go back to the page for a field. */
	barrier();
	peer->consumed++;
	/* The message is out, /then/ its slot is free: pairs with put_message. */
	virt_store_release(&control->consumed[in].index, peer->consumed);
	return 1;
}

/* Takes in a bounded number of messages; alone for its peer. */
void yasmin_control_work(struct work_struct *work)
{
	struct peer *peer = container_of(work, struct peer, work);
	struct wire_message message;
	unsigned int count;
	int some = 0;

	if (!peer->up || peer->gone)
		return;
	mutex_lock(&peer->send_lock);
	send_waiting(peer);
	mutex_unlock(&peer->send_lock);

	for (count = 0; count < BATCH; count++) {
		some = take_message(peer, &message);
		if (some <= 0)
			break;
		trace_yasmin_message(peer->domid, false, message.kind, message.role, message.id);
		yasmin_conn_handle(peer, &message);
	}
	if (count) {
		/* The free slots, /then/ whether it waits for them: pairs with put_message. */
		virt_mb();
		if (READ_ONCE(peer->control->produced[peer->lower ? 1 : 0].waits))
			yasmin_bell_ring(&peer->bell);
	}
	if (some < 0) {
		/* For good: without the answer to its event no more come. */
		pr_warn_ratelimited("yasmin: domain %u broke its control channel\n", peer->domid);
		atomic_long_inc(&yasmin_totals.breaches);
		mutex_lock(&peer->send_lock);
		peer->gone = true;
		mutex_unlock(&peer->send_lock);
		yasmin_conn_peer_gone(peer);
		return;
	}
	peer->idle_events = count ? 0 : peer->idle_events + 1;
	if (count == BATCH) {
		queue_work(yasmin_peer_queue, work);
		return;
	}
	xen_irq_lateeoi(peer->bell.irq, peer->idle_events > 64 ? XEN_EOI_FLAG_SPURIOUS : 0);
}
