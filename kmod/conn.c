// SPDX-License-Identifier: GPL-2.0
/*
 * A connection's life. The connector grants all pages, and takes them back when the acceptor says that it
 * uses them no more (REFUSED, RELEASE) or is gone; so a closed socket's connection stays in peer->own until
 * then. The acceptor lets go when its socket closes or the connection is reset. What both keep of a
 * connection that ended well, the next one begins with (spare.c).
 *
 *   connector   connects    ─── CONNECT ──▶ accepts                                   acceptor
 *               established ◀── ACCEPTED ──
 *               closes      ── SHUTDOWN ──▶ reads what is left
 *               freed       ◀── RELEASE ─── closes
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <xen/events.h>

#include "trace.h"
#include "yasmin.h"

/* What a socket's buffer size is if nobody set it. */
#define VSOCK_BUFFER_BYTES (256 * 1024)
/* So many events in a row with nothing new are a storm. */
#define IDLE_EVENTS_MAX 64

struct sums yasmin_sums;

/* What it has done counts among what is over. */
void yasmin_conn_account(struct conn *conn)
{
	atomic64_add(conn->sent_bytes, &yasmin_sums.copied_in);
	atomic64_add(conn->received_bytes, &yasmin_sums.copied_out);
	atomic64_add(conn->bells, &yasmin_sums.bells);
	atomic64_add(conn->events, &yasmin_sums.events);
	conn->sent_bytes = conn->received_bytes = conn->sends = conn->receives = conn->bells = conn->events = 0;
}

static void free_conn(struct kref *ref)
{
	struct conn *conn = container_of(ref, struct conn, ref);

	if (conn->connector && conn->kept) {
		yasmin_spare_put(conn);
		return;
	}
	yasmin_bell_end(&conn->bell, conn);
	yasmin_conn_account(conn);
	/* The acceptor knows nothing by this name any more. */
	if (conn->connector && conn->id)
		xa_erase(&conn->peer->own, conn->id);
	yasmin_area_grant_end(&conn->indirect);
	if (conn->area.mapped)
		yasmin_area_unmap(&conn->area);
	else
		yasmin_area_grant_end(&conn->area);
	yasmin_peer_put(conn->peer);
	atomic_long_dec(&yasmin_totals.conns);
	kfree(conn);
}

void yasmin_conn_put(struct conn *conn)
{
	kref_put(&conn->ref, free_conn);
}

struct conn *yasmin_conn_create(struct peer *peer, bool connector, u8 class)
{
	struct conn *conn = kzalloc(sizeof(*conn), GFP_KERNEL);

	if (!conn)
		return NULL;
	kref_init(&conn->ref);
	kref_get(&peer->ref);
	conn->peer = peer;
	conn->connector = connector;
	conn->class = class;
	spin_lock_init(&conn->lock);
	atomic_long_inc(&yasmin_totals.conns);
	return conn;
}

/* Both directions over the area's pages, from the start: direction 0 is the connector's to send on. */
void yasmin_conn_lay_out(struct conn *conn)
{
	unsigned int ring = wire_class_pages(conn->class), out = conn->connector ? 0 : 1;
	u8 *header = conn->area.addresses[0];
	struct wire_block *blocks[2] = {
		(void *)(header + WIRE_BLOCK_OFFSET),
		(void *)(header + WIRE_BLOCK_OFFSET + WIRE_BLOCK_STRIDE),
	};
	void **rings[2] = { conn->area.addresses + 1, conn->area.addresses + 1 + ring };

	/* The acceptor uses them only after CONNECT. */
	if (conn->connector) {
		yasmin_ring_block_init(blocks[0], conn->class);
		yasmin_ring_block_init(blocks[1], conn->class);
	}
	yasmin_ring_sender_init(&conn->tx, blocks[out], rings[out], conn->class, true);
	yasmin_ring_receiver_init(&conn->rx, blocks[!out], rings[!out], conn->class, true);
}

/* A channel that was kept, with nothing of its last connection. */
void yasmin_conn_begin(struct conn *conn)
{
	conn->established = conn->dead = false;
	conn->vain_lingers = conn->vain_looks = conn->room_wanted = conn->idle_events = 0;
	yasmin_conn_lay_out(conn);
}

irqreturn_t yasmin_conn_interrupt(int irq, void *data)
{
	struct conn *conn = data;
	struct sock *sk;

	spin_lock(&conn->lock);
	conn->events++;
	trace_yasmin_event(conn->peer->domid, conn->id, conn->connector);
	sk = conn->sk;
	if (sk) {
		conn->idle_events = yasmin_ring_receiver_stirs(&conn->rx) || yasmin_ring_sender_stirs(&conn->tx) ?
				    0 : conn->idle_events + 1;
		sk->sk_data_ready(sk);
		sk->sk_write_space(sk);
	} else {
		conn->idle_events++;
	}
	spin_unlock(&conn->lock);
	xen_irq_lateeoi(irq, conn->idle_events > IDLE_EVENTS_MAX ? XEN_EOI_FLAG_SPURIOUS : 0);
	return IRQ_HANDLED;
}

/* Wakes the peer. Under lock_sock. */
void yasmin_conn_ring(struct conn *conn)
{
	conn->bells++;
	trace_yasmin_bell(conn->peer->domid, conn->id, conn->connector);
	yasmin_bell_ring(&conn->bell);
}

/* The socket's connection, if bytes can go through it. Under lock_sock. */
struct conn *yasmin_conn_usable(struct vsock_sock *vsk)
{
	struct conn *conn = vsk->trans;

	return conn && conn->established && !conn->dead ? conn : NULL;
}

int yasmin_conn_send(struct conn *conn, u8 kind, u32 flags)
{
	struct wire_message message = {
		.kind = kind,
		.role = conn->connector ? WIRE_FROM_CONNECTOR : 0,
		.id = conn->id,
		.flags = flags,
	};

	return yasmin_control_send(conn->peer, &message);
}

static void detach_socket(struct conn *conn)
{
	unsigned long flags;

	spin_lock_irqsave(&conn->lock, flags);
	conn->sk = NULL;
	spin_unlock_irqrestore(&conn->lock, flags);
}

/* Takes the connection out of its peer's table; true for the one who did. */
bool yasmin_conn_unlist(struct conn *conn)
{
	struct xarray *table = conn->connector ? &conn->peer->own : &conn->peer->theirs;
	/* The connector's name for it stays reserved as long as its channel lives. */
	void *instead = conn->connector ? XA_ZERO_ENTRY : NULL;
	bool done;

	xa_lock(table);
	done = __xa_cmpxchg(table, conn->id, conn, instead, GFP_ATOMIC) == conn;
	if (done)
		yasmin_spare_unkeep(conn);
	xa_unlock(table);
	if (done && !conn->connector)
		atomic_dec(&conn->peer->theirs_count);
	return done;
}

/* The acceptor uses nothing of the channel any more, and says so. */
static void release_channel(struct conn *conn)
{
	if (conn->connector || !yasmin_conn_unlist(conn))
		return;
	yasmin_bell_end(&conn->bell, conn);
	yasmin_area_unmap(&conn->area);
	yasmin_conn_send(conn, WIRE_RELEASE, 0);
	yasmin_conn_put(conn);
}

/* Nothing goes through the channel any more. Under lock_sock, with a reference held. */
static void kill_conn(struct conn *conn, struct sock *sk, int error)
{
	if (conn->dead)
		return;
	conn->dead = true;
	sk->sk_err = error;
	vsock_sk(sk)->peer_shutdown = SHUTDOWN_MASK;
	if (sk->sk_state == TCP_SYN_SENT)
		sk->sk_state = TCP_CLOSE;
	sk_error_report(sk);
	sk->sk_state_change(sk);
	release_channel(conn);
}

/* The peer broke the protocol: the connection is reset. Under lock_sock. */
void yasmin_conn_breach(struct conn *conn, struct sock *sk)
{
	if (conn->dead)
		return;
	atomic_long_inc(&yasmin_totals.breaches);
	trace_yasmin_breach(conn->peer->domid, conn->id, conn->connector);
	yasmin_conn_send(conn, WIRE_RESET, 0);
	kill_conn(conn, sk, ECONNRESET);
}

/* Part of the guest's memory that is not taken for more than the smallest rings. */
#define MEMORY_LEFT 16

static bool is_affordable(unsigned int count)
{
	return si_mem_available() > (long)(count + totalram_pages() / MEMORY_LEFT);
}

/* Pages for rings of `class`, or of the largest lower one for which there is memory, and the bell. */
static int make_channel(struct conn *conn)
{
	domid_t domid = conn->peer->domid;
	struct wire_header *header;
	unsigned int count, i;
	int err;

	while (1) {
		count = 1 + 2 * wire_class_pages(conn->class);
		err = conn->class > WIRE_MIN_PAGED_CLASS && !is_affordable(count) ? -ENOMEM : 0;
		if (!err)
			err = yasmin_area_grant(&conn->indirect, domid, DIV_ROUND_UP(count, WIRE_INDIRECT_REFS));
		if (!err)
			err = yasmin_area_grant(&conn->area, domid, count);
		if (!err)
			break;
		yasmin_area_grant_end(&conn->indirect);
		yasmin_spare_tight();
		if (conn->class == WIRE_MIN_PAGED_CLASS)
			/* As AF_VSOCK's programs know it. */
			return err == -ENOSPC ? -ENOBUFS : err;
		conn->class--;
	}
	header = conn->area.addresses[0];
	*header = (struct wire_header){ .magic = "YASMINCH", .version = WIRE_VERSION, .max_class = conn->class };
	yasmin_conn_lay_out(conn);
	for (i = 0; i < conn->indirect.count; i++) {
		unsigned int done = i * WIRE_INDIRECT_REFS;

		memcpy(conn->indirect.addresses[i], conn->area.refs + done,
		       min_t(unsigned int, count - done, WIRE_INDIRECT_REFS) * sizeof(grant_ref_t));
	}
	return yasmin_bell_offer(&conn->bell, domid, yasmin_conn_interrupt, conn);
}

static u8 choose_class(u64 bytes)
{
	u8 class = WIRE_MIN_PAGED_CLASS;

	while (class < WIRE_BELL_MAX_CLASS && wire_class_bytes(class) < bytes)
		class++;
	return class;
}

/* A connection with a new channel, not yet in a table. */
static struct conn *make_conn(struct peer *peer, u8 class)
{
	struct conn *conn = yasmin_conn_create(peer, true, class);
	int err;

	if (!conn)
		return ERR_PTR(-ENOMEM);
	err = make_channel(conn);
	if (!err)
		err = xa_alloc_cyclic(&peer->own, &conn->id, NULL, xa_limit_32b, &peer->next_id, GFP_KERNEL);
	if (err < 0) {
		conn->id = 0;
		yasmin_conn_put(conn);
		return ERR_PTR(err);
	}
	return conn;
}

/* Under lock_sock, state SYN_SENT. */
int yasmin_conn_connect(struct vsock_sock *vsk)
{
	struct sock *sk = sk_vsock(vsk);
	struct peer *peer = yasmin_peer_find(vsk->remote_addr.svm_cid - WIRE_CID_BASE);
	struct wire_message message;
	struct conn *conn;
	u64 ring_bytes = (u64)READ_ONCE(yasmin_ring_pages) * WIRE_PAGE_BYTES;
	bool again;
	int err = -EHOSTUNREACH;

	yasmin_conn_close(vsk);
	if (!peer)
		return err;
	if (!READ_ONCE(peer->up) || peer->gone)
		goto no_conn;
	/* What the program asked for, if it did. */
	if (vsk->buffer_size != VSOCK_BUFFER_BYTES)
		ring_bytes = vsk->buffer_size;
	conn = yasmin_spare_take(peer, choose_class(ring_bytes));
	again = conn;
	if (!conn)
		conn = make_conn(peer, choose_class(ring_bytes));
	err = PTR_ERR_OR_ZERO(conn);
	if (err)
		goto no_conn;
	spin_lock_irq(&conn->lock);
	conn->sk = sk;
	spin_unlock_irq(&conn->lock);
	/* One reference is the table's, one the socket's. */
	kref_get(&conn->ref);
	xa_store(&peer->own, conn->id, conn, GFP_KERNEL);
	vsk->trans = conn;
	message = (struct wire_message){
		.kind = WIRE_CONNECT,
		.role = WIRE_FROM_CONNECTOR,
		.type = sk->sk_type == SOCK_SEQPACKET ? WIRE_SEQPACKET : WIRE_STREAM,
		.class = conn->class,
		.id = conn->id,
		.connector_port = vsk->local_addr.svm_port,
		.acceptor_port = vsk->remote_addr.svm_port,
		.flags = again ? WIRE_KEEP | WIRE_AGAIN : WIRE_KEEP,
	};
	if (!again) {
		message.indirect_ref = conn->indirect.refs[0];
		message.indirect_more_ref = conn->indirect.count > 1 ? conn->indirect.refs[1] : 0;
		message.event_port = conn->bell.port;
	}
	err = yasmin_control_send(peer, &message);
	if (err) {
		conn->dead = true;
		conn->kept = again;
		if (yasmin_conn_unlist(conn))
			yasmin_conn_put(conn);
		yasmin_conn_close(vsk);
	}
no_conn:
	yasmin_peer_put(peer);
	return err;
}

/* The attempt is given up; the acceptor may have accepted already. */
void yasmin_conn_cancel(struct vsock_sock *vsk)
{
	yasmin_conn_close(vsk);
}

/* The socket lets go of its connection, if it has one. Under lock_sock. */
void yasmin_conn_close(struct vsock_sock *vsk)
{
	struct conn *conn = vsk->trans;
	bool ends_well;

	if (!conn)
		return;
	ends_well = !conn->dead && conn->established;
	vsk->trans = NULL;
	detach_socket(conn);
	if (ends_well)
		yasmin_conn_send(conn, WIRE_SHUTDOWN, WIRE_SHUT_RECEIVE | WIRE_SHUT_SEND);
	else if (!conn->dead)
		yasmin_conn_send(conn, WIRE_RESET, 0);
	conn->dead = true;
	if (ends_well && yasmin_spare_keep(conn))
		yasmin_conn_send(conn, WIRE_RELEASE, WIRE_KEPT);
	else
		release_channel(conn);
	yasmin_conn_put(conn);
}

static void establish_socket(struct conn *conn, struct sock *sk)
{
	if (sk->sk_state != TCP_SYN_SENT || conn->dead)
		return;
	conn->established = true;
	sk->sk_state = TCP_ESTABLISHED;
	sk->sk_socket->state = SS_CONNECTED;
	vsock_insert_connected(vsock_sk(sk));
	sk->sk_state_change(sk);
}

/* The connector's entry goes with REFUSED or RELEASE, once; its channel is spare if the acceptor keeps it. */
static void release_entry(struct conn *conn, bool kept)
{
	if (!conn->connector || !yasmin_conn_unlist(conn))
		return;
	conn->kept = kept && !conn->dropped;
	yasmin_conn_put(conn);
}

static struct sock *hold_socket(struct conn *conn)
{
	unsigned long flags;
	struct sock *sk;

	spin_lock_irqsave(&conn->lock, flags);
	sk = conn->sk;
	if (sk)
		sock_hold(sk);
	spin_unlock_irqrestore(&conn->lock, flags);
	return sk;
}

static void handle_for(struct conn *conn, struct sock *sk, const struct wire_message *message)
{
	struct vsock_sock *vsk = vsock_sk(sk);

	switch (message->kind) {
	case WIRE_ACCEPTED:
		if (conn->connector)
			establish_socket(conn, sk);
		break;
	case WIRE_REFUSED:
		if (conn->connector)
			kill_conn(conn, sk, ECONNRESET);
		break;
	case WIRE_RELEASE:
		/* Its end; an honest peer has said SHUTDOWN or RESET before. What it sent is ours to read. */
		if (!conn->connector)
			break;
		if (!conn->established)
			kill_conn(conn, sk, ECONNRESET);
		vsk->peer_shutdown = SHUTDOWN_MASK;
		sk->sk_state_change(sk);
		break;
	case WIRE_SHUTDOWN:
		if (!conn->established)
			break;
		vsk->peer_shutdown |= message->flags & SHUTDOWN_MASK;
		sk->sk_state_change(sk);
		break;
	case WIRE_RESET:
		kill_conn(conn, sk, ECONNRESET);
		break;
	}
}

/* A message that was copied out of the queue. Unknown ones and unknown connections are nothing to us. */
void yasmin_conn_handle(struct peer *peer, const struct wire_message *message)
{
	bool ours = !(message->role & WIRE_FROM_CONNECTOR);
	struct xarray *table = ours ? &peer->own : &peer->theirs;
	struct conn *conn;
	struct sock *sk;

	if (message->kind == WIRE_CONNECT) {
		yasmin_accept_connect(peer, message);
		return;
	}
	if (message->kind == WIRE_TIGHT) {
		yasmin_spare_trim(peer);
		return;
	}
	xa_lock(table);
	conn = xa_load(table, message->id);
	if (conn)
		kref_get(&conn->ref);
	xa_unlock(table);
	if (!conn)
		return;
	sk = hold_socket(conn);
	if (sk) {
		lock_sock(sk);
		if (vsock_sk(sk)->trans == conn)
			handle_for(conn, sk, message);
		release_sock(sk);
		sock_put(sk);
	}
	if (message->kind == WIRE_REFUSED || message->kind == WIRE_RELEASE)
		release_entry(conn, message->flags & WIRE_KEPT);
	/* In this thread alone it is used again. */
	if (message->kind == WIRE_DROP && READ_ONCE(conn->kept))
		release_channel(conn);
	yasmin_conn_put(conn);
}

static void end_all(struct xarray *table)
{
	struct conn *conn;
	unsigned long id;
	struct sock *sk;

	do {
		id = 0;
		xa_lock(table);
		conn = xa_find(table, &id, ULONG_MAX, XA_PRESENT);
		if (conn)
			kref_get(&conn->ref);
		xa_unlock(table);
		if (!conn)
			break;
		sk = hold_socket(conn);
		if (sk) {
			lock_sock(sk);
			if (vsock_sk(sk)->trans == conn)
				kill_conn(conn, sk, ECONNRESET);
			release_sock(sk);
			sock_put(sk);
		}
		release_channel(conn);
		if (yasmin_conn_unlist(conn))
			yasmin_conn_put(conn);
		yasmin_conn_put(conn);
	} while (1);
}

/* The peer went: every connection with it is reset. */
void yasmin_conn_peer_gone(struct peer *peer)
{
	end_all(&peer->own);
	end_all(&peer->theirs);
	yasmin_spare_end(peer);
}
