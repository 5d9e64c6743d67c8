// SPDX-License-Identifier: GPL-2.0
/* The acceptor's side of CONNECT: from a message of a peer that may lie to a socket in the accept queue. */
#include "yasmin.h"

static void refuse(struct peer *peer, const struct wire_message *connect, u32 flags)
{
	struct wire_message message = { .kind = WIRE_REFUSED, .id = connect->id, .flags = flags };

	yasmin_control_send(peer, &message);
}

/* Maps what the connector granted; the list of grants is copied out once. */
static int map_channel(struct conn *conn, const struct wire_message *connect)
{
	unsigned int count = 1 + 2 * wire_class_pages(conn->class);
	grant_ref_t indirect[] = { connect->indirect_ref, connect->indirect_more_ref };
	grant_ref_t *refs = kvcalloc(count, sizeof(*refs), GFP_KERNEL);
	int err = refs ? yasmin_area_copy_refs(conn->peer->domid, indirect, refs, count) : -ENOMEM;

	if (!err)
		err = yasmin_area_map(&conn->area, conn->peer->domid, refs, count);
	kvfree(refs);
	if (err)
		return err;
	yasmin_conn_lay_out(conn);
	return yasmin_bell_bind(&conn->bell, conn->peer->domid, connect->event_port, yasmin_conn_interrupt, conn);
}

/* Under lock_sock(listener). */
static struct sock *create_child(struct sock *listener, struct conn *conn, const struct wire_message *connect)
{
	struct sock *child = vsock_create_connected(listener);
	struct vsock_sock *vchild;

	if (!child)
		return NULL;
	lock_sock_nested(child, SINGLE_DEPTH_NESTING);
	vchild = vsock_sk(child);
	vsock_addr_init(&vchild->local_addr, WIRE_CID_BASE + yasmin_directory_self(), connect->acceptor_port);
	vsock_addr_init(&vchild->remote_addr, WIRE_CID_BASE + conn->peer->domid, connect->connector_port);
	if (vsock_assign_transport(vchild, vsock_sk(listener)) || vchild->transport != &yasmin_transport) {
		release_sock(child);
		sock_put(child);
		return NULL;
	}
	child->sk_state = TCP_ESTABLISHED;
	vchild->trans = conn;
	/* The socket's reference. */
	kref_get(&conn->ref);
	conn->established = true;
	return child;
}

static bool listens(struct sock *sk, const struct wire_message *connect)
{
	int type = connect->type == WIRE_SEQPACKET ? SOCK_SEQPACKET : SOCK_STREAM;

	return sk->sk_state == TCP_LISTEN && sk->sk_type == type && !sk_acceptq_is_full(sk) &&
	       sk->sk_shutdown != SHUTDOWN_MASK;
}

/* Maps the channel that comes with CONNECT, and takes it into the table, whose reference is the only one. */
static struct conn *take_channel(struct peer *peer, const struct wire_message *connect)
{
	struct conn *conn;
	int err;

	if (atomic_read(&peer->theirs_count) >= READ_ONCE(yasmin_max_connections))
		return NULL;
	conn = yasmin_conn_create(peer, false, connect->class);
	if (!conn)
		return NULL;
	conn->id = connect->id;
	err = map_channel(conn, connect);
	if (err == -ENOMEM)
		yasmin_spare_tight();
	if (err || xa_insert(&peer->theirs, conn->id, conn, GFP_KERNEL)) {
		yasmin_conn_put(conn);
		return NULL;
	}
	atomic_inc(&peer->theirs_count);
	return conn;
}

void yasmin_accept_connect(struct peer *peer, const struct wire_message *connect)
{
	bool again = connect->flags & WIRE_AGAIN;
	struct sock *listener = NULL, *child = NULL;
	struct conn *conn = NULL;
	struct sockaddr_vm address;

	if (!(connect->role & WIRE_FROM_CONNECTOR) || connect->class < WIRE_MIN_PAGED_CLASS ||
	    connect->class > WIRE_BELL_MAX_CLASS ||
	    (connect->type != WIRE_STREAM && connect->type != WIRE_SEQPACKET))
		goto refused;
	if (again)
		conn = yasmin_spare_join(peer, connect);
	/* A name that is taken: an answer would be taken for that connection's. */
	if (!conn && xa_load(&peer->theirs, connect->id))
		return;
	if (!conn && again)
		goto refused;
	vsock_addr_init(&address, WIRE_CID_BASE + yasmin_directory_self(), connect->acceptor_port);
	listener = vsock_find_bound_socket(&address);
	/* Looked at before anything is spent on it, and again under the lock. */
	if (!listener || !listens(listener, connect))
		goto refused;
	if (!conn)
		conn = take_channel(peer, connect);
	if (!conn)
		goto refused;
	conn->may_keep = connect->flags & WIRE_KEEP;

	lock_sock(listener);
	if (listens(listener, connect))
		child = create_child(listener, conn, connect);
	if (!child) {
		release_sock(listener);
		goto refused;
	}
	spin_lock_irq(&conn->lock);
	conn->sk = child;
	spin_unlock_irq(&conn->lock);
	sk_acceptq_added(listener);
	vsock_insert_connected(vsock_sk(child));
	vsock_enqueue_accept(listener, child);
	yasmin_conn_send(conn, WIRE_ACCEPTED, 0);
	release_sock(child);
	listener->sk_data_ready(listener);
	release_sock(listener);
	sock_put(listener);
	return;

refused:
	if (listener)
		sock_put(listener);
	if (!conn) {
		refuse(peer, connect, 0);
	} else if (again && yasmin_spare_keep(conn)) {
		refuse(peer, connect, WIRE_KEPT);
	} else {
		if (yasmin_conn_unlist(conn))
			yasmin_conn_put(conn);
		refuse(peer, connect, 0);
	}
}
