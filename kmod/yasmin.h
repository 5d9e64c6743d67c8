/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's own types. Who holds what:
 *
 *   socket ── vsk->trans ──▶ conn ──▶ peer ◀── list of peers (peer.c)
 *                             ▲        │
 *                             └────────┘ own[id]: we connected; theirs[id]: they did
 *                                        spare: ours, without a socket (spare.c)
 *
 * Lock order: lock_sock(listener), lock_sock(child), peers_mutex, peer->send_lock, the tables'
 * locks or peer->spare_lock, conn->lock (taken in interrupts too). The data path runs under lock_sock alone.
 */
#ifndef YASMIN_H
#define YASMIN_H

#include <linux/atomic.h>
#include <linux/interrupt.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/af_vsock.h>
#include <xen/grant_table.h>
#include <xen/interface/event_channel.h>

#include "ring.h"

/* Pages that we share with a peer: ours and granted, or its and mapped. */
struct area {
	unsigned int count;
	bool mapped;
	struct page **pages;
	void **addresses;
	grant_ref_t *refs;		/* granted: ours. mapped: the peer's, as read once */
	grant_handle_t *handles;	/* mapped */
};

/* An event channel, bound to a handler. */
struct bell {
	int irq;			/* 0: none */
	evtchn_port_t port;
};

struct peer {
	struct list_head link;
	struct kref ref;
	domid_t domid;
	u64 nonce;			/* which load of the peer's module */
	bool lower;			/* we have the lower number: queue 0 is ours, so is the page */
	bool up;			/* the control channel stands */
	bool gone;

	struct area area;
	struct wire_control *control;	/* the peer writes it at will: indices are kept here */
	struct bell bell;
	struct work_struct work;
	u32 consumed;			/* of the incoming queue; by `work` alone */
	unsigned int idle_events;

	struct mutex send_lock;		/* guards the next three */
	u32 produced;
	struct list_head waiting;	/* messages for which the queue had no room */
	unsigned int waiting_count;

	struct xarray own;
	struct xarray theirs;
	atomic_t theirs_count;
	u32 next_id;			/* of `own`, where ids stay reserved while their channels live */
	unsigned int kept;		/* of `theirs`, without a socket; under its lock */

	spinlock_t spare_lock;		/* guards the next three */
	struct list_head spare;		/* connections that are over, the last one first */
	unsigned int spare_count;
	bool spare_ends;
	struct delayed_work spare_work;
};

struct conn {
	struct kref ref;
	struct peer *peer;
	u32 id;				/* the connector's name for it */
	bool connector;
	bool established;
	bool dead;			/* reset: the area is not touched again; under lock_sock */
	u8 class;

	spinlock_t lock;		/* sk against the interrupt; taken with interrupts off */
	struct sock *sk;		/* NULL once the socket has let go */

	struct area area;
	struct area indirect;		/* connector: the pages that list the grants, one or two */
	struct bell bell;
	struct ring_sender tx;
	struct ring_receiver rx;

	unsigned int vain_lingers;	/* in a row; under lock_sock */
	unsigned int vain_looks;	/* likewise */

	/*
	 * The channel outlives its connection. Connector: the acceptor keeps it; with the last reference.
	 * Acceptor: it has no socket; under the table's lock.
	 */
	bool kept;
	bool may_keep;			/* acceptor: the connector likes it to */
	bool dropped;			/* connector: it is the acceptor's to let go */
	struct list_head spare;
	unsigned long since;		/* jiffies */

	/* seqpacket: room that a message waits for, 0: none does */
	u32 room_wanted;

	/* for people: debugfs */
	u64 sent_bytes, received_bytes;
	u64 sends, receives, bells, events;
	unsigned int idle_events;
};

/* What should be back at the same figures when all connections are closed. */
struct totals {
	atomic_long_t granted_pages, mapped_pages, conns, kept, peers, bells, breaches;
};
extern struct totals yasmin_totals;

/* What connections that are over have done: bytes copied once by us, bells that we rang, events that came. */
struct sums {
	atomic64_t copied_in, copied_out, bells, events;
};
extern struct sums yasmin_sums;

extern unsigned int yasmin_ring_pages, yasmin_max_connections, yasmin_kept_channels, yasmin_linger_us;

/* area.c: grants. */
int yasmin_area_grant(struct area *area, domid_t domid, unsigned int count);
void yasmin_area_grant_end(struct area *area);
int yasmin_area_map(struct area *area, domid_t domid, const grant_ref_t *refs, unsigned int count);
void yasmin_area_unmap(struct area *area);
void yasmin_area_stop(void);
int yasmin_area_copy_refs(domid_t domid, const grant_ref_t *indirect, grant_ref_t *refs, unsigned int count);

/* bell.c: event channels. */
int yasmin_bell_offer(struct bell *bell, domid_t domid, irq_handler_t handler, void *data);
int yasmin_bell_bind(struct bell *bell, domid_t domid, evtchn_port_t port, irq_handler_t handler, void *data);
void yasmin_bell_ring(struct bell *bell);
void yasmin_bell_end(struct bell *bell, void *data);

/* directory.c: who is there. */
int yasmin_directory_start(void);
void yasmin_directory_stop(void);
domid_t yasmin_directory_self(void);

/* peer.c: the peers, and the life of a control channel. */
struct peer *yasmin_peer_find(domid_t domid);
struct peer *yasmin_peer_create(domid_t domid, u64 nonce, bool lower);
int yasmin_peer_offer(struct peer *peer);
int yasmin_peer_join(struct peer *peer, grant_ref_t ref, evtchn_port_t port);
void yasmin_peer_end(struct peer *peer);
void yasmin_peer_put(struct peer *peer);
void yasmin_peer_for_each(void (*visit)(struct peer *peer, void *data), void *data);
extern struct workqueue_struct *yasmin_peer_queue;

/* control.c: messages. */
irqreturn_t yasmin_control_interrupt(int irq, void *data);
void yasmin_control_work(struct work_struct *work);
int yasmin_control_send(struct peer *peer, const struct wire_message *message);

/* conn.c: a connection's life. */
int yasmin_conn_connect(struct vsock_sock *vsk);
void yasmin_conn_close(struct vsock_sock *vsk);
void yasmin_conn_cancel(struct vsock_sock *vsk);
void yasmin_conn_ring(struct conn *conn);
struct conn *yasmin_conn_usable(struct vsock_sock *vsk);
void yasmin_conn_breach(struct conn *conn, struct sock *sk);
int yasmin_conn_send(struct conn *conn, u8 kind, u32 flags);
void yasmin_conn_handle(struct peer *peer, const struct wire_message *message);
void yasmin_conn_peer_gone(struct peer *peer);
struct conn *yasmin_conn_create(struct peer *peer, bool connector, u8 class);
void yasmin_conn_put(struct conn *conn);
void yasmin_conn_lay_out(struct conn *conn);
void yasmin_conn_begin(struct conn *conn);
void yasmin_conn_account(struct conn *conn);
bool yasmin_conn_unlist(struct conn *conn);
irqreturn_t yasmin_conn_interrupt(int irq, void *data);

/* accept.c: the acceptor's side of CONNECT. */
void yasmin_accept_connect(struct peer *peer, const struct wire_message *message);

/* spare.c: channels that outlive their connection. */
int yasmin_spare_start(void);
void yasmin_spare_stop(void);
void yasmin_spare_tight(void);
void yasmin_spare_put(struct conn *conn);
struct conn *yasmin_spare_take(struct peer *peer, u8 class);
void yasmin_spare_trim(struct peer *peer);
void yasmin_spare_expire(struct work_struct *work);
void yasmin_spare_end(struct peer *peer);
bool yasmin_spare_keep(struct conn *conn);
void yasmin_spare_unkeep(struct conn *conn);
struct conn *yasmin_spare_join(struct peer *peer, const struct wire_message *connect);

/* stream.c, seqpacket.c: bytes in and out; all under lock_sock. */
u32 yasmin_stream_look(struct conn *conn, u32 target);
s64 yasmin_stream_has_data(struct vsock_sock *vsk);
s64 yasmin_stream_has_space(struct vsock_sock *vsk);
ssize_t yasmin_stream_enqueue(struct vsock_sock *vsk, struct msghdr *msg, size_t len);
ssize_t yasmin_stream_dequeue(struct vsock_sock *vsk, struct msghdr *msg, size_t len, int flags);
int yasmin_stream_linger_receive(struct vsock_sock *vsk, size_t target, struct vsock_transport_recv_notify_data *data);
int yasmin_stream_linger_send(struct vsock_sock *vsk, struct vsock_transport_send_notify_data *data);
int yasmin_stream_poll_in(struct vsock_sock *vsk, size_t target, bool *ready);
int yasmin_stream_poll_out(struct vsock_sock *vsk, size_t target, bool *ready);
u32 yasmin_seqpacket_has_data(struct vsock_sock *vsk);
int yasmin_seqpacket_enqueue(struct vsock_sock *vsk, struct msghdr *msg, size_t len);
ssize_t yasmin_seqpacket_dequeue(struct vsock_sock *vsk, struct msghdr *msg, int flags);

/* transport.c, stats.c */
extern struct vsock_transport yasmin_transport;
void yasmin_stats_start(void);
void yasmin_stats_stop(void);

#endif
