// SPDX-License-Identifier: GPL-2.0
/* What AF_VSOCK asks of a transport. It calls everything but `allow` and `get_local_cid` under lock_sock. */
#include "yasmin.h"

static int transport_init(struct vsock_sock *vsk, struct vsock_sock *parent)
{
	vsk->trans = NULL;
	return 0;
}

static void transport_destruct(struct vsock_sock *vsk)
{
	yasmin_conn_close(vsk);
}

static void transport_release(struct vsock_sock *vsk)
{
	yasmin_conn_close(vsk);
	sock_set_flag(sk_vsock(vsk), SOCK_DONE);
	vsock_remove_sock(vsk);
}

static int transport_cancel(struct vsock_sock *vsk)
{
	yasmin_conn_cancel(vsk);
	return 0;
}

static int transport_shutdown(struct vsock_sock *vsk, int mode)
{
	struct conn *conn = vsk->trans;

	if (!conn || !conn->established || conn->dead)
		return 0;
	return yasmin_conn_send(conn, WIRE_SHUTDOWN, mode & SHUTDOWN_MASK);
}

static bool transport_is_active(struct vsock_sock *vsk)
{
	struct conn *conn = vsk->trans;

	return conn && conn->established;
}

static bool transport_allow(u32 cid, u32 port)
{
	return cid >= WIRE_CID_BASE && cid - WIRE_CID_BASE < DOMID_FIRST_RESERVED;
}

static bool transport_seqpacket_allow(u32 cid)
{
	return true;
}

/* The core waits for as much as is asked for, piece by piece, whatever the ring holds. */
static u64 transport_rcvhiwat(struct vsock_sock *vsk)
{
	return S64_MAX;
}

static u32 transport_local_cid(void)
{
	return WIRE_CID_BASE + yasmin_directory_self();
}

/* The ring's own word says who sleeps: nothing else is to be told. */
static int recv_nothing(struct vsock_sock *vsk, size_t target, struct vsock_transport_recv_notify_data *data)
{
	return 0;
}

static int recv_nothing_after(struct vsock_sock *vsk, size_t target, ssize_t copied, bool read,
			      struct vsock_transport_recv_notify_data *data)
{
	return 0;
}

static int send_nothing(struct vsock_sock *vsk, struct vsock_transport_send_notify_data *data)
{
	return 0;
}

static int send_nothing_after(struct vsock_sock *vsk, ssize_t written,
			      struct vsock_transport_send_notify_data *data)
{
	return 0;
}

struct vsock_transport yasmin_transport = {
	.module = THIS_MODULE,

	.init = transport_init,
	.destruct = transport_destruct,
	.release = transport_release,
	.connect = yasmin_conn_connect,
	.cancel_pkt = transport_cancel,
	.shutdown = transport_shutdown,
	.get_local_cid = transport_local_cid,

	.stream_enqueue = yasmin_stream_enqueue,
	.stream_dequeue = yasmin_stream_dequeue,
	.stream_has_data = yasmin_stream_has_data,
	.stream_has_space = yasmin_stream_has_space,
	.stream_rcvhiwat = transport_rcvhiwat,
	.stream_is_active = transport_is_active,
	.stream_allow = transport_allow,

	.seqpacket_enqueue = yasmin_seqpacket_enqueue,
	.seqpacket_dequeue = yasmin_seqpacket_dequeue,
	.seqpacket_has_data = yasmin_seqpacket_has_data,
	.seqpacket_allow = transport_seqpacket_allow,

	.notify_poll_in = yasmin_stream_poll_in,
	.notify_poll_out = yasmin_stream_poll_out,
	.notify_recv_init = recv_nothing,
	.notify_recv_pre_block = yasmin_stream_linger_receive,
	.notify_recv_pre_dequeue = recv_nothing,
	.notify_recv_post_dequeue = recv_nothing_after,
	.notify_send_init = send_nothing,
	.notify_send_pre_block = yasmin_stream_linger_send,
	.notify_send_pre_enqueue = send_nothing,
	.notify_send_post_enqueue = send_nothing_after,
};
