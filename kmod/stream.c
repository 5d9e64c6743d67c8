// SPDX-License-Identifier: GPL-2.0
/*
 * Bytes between a program and the rings: one copy in at the sender, one copy out at the receiver. A
 * receiver parks before it sleeps, and is then told once; a sender that finds the ring full asks to be told
 * when half of it is free. All under lock_sock.
 */
#include <linux/ktime.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/uio.h>
#include <asm/xen/hypercall.h>
#include <xen/interface/sched.h>

#include "yasmin.h"

/* After so many in vain, one sleep in so many is preceded by a look. */
#define VAIN_LINGERS_MAX 16

/*
 * So many looks in vain, one after the other, are a program's that does not sleep. Where another task of this
 * guest could run, one look in so many gives way.
 */
#define VAIN_LOOKS_MAX 8

/* So much is published or given back at a time, so that both sides work at once. */
#define CHUNK_BYTES (64u * 1024)

static void reset_conn(struct conn *conn)
{
	yasmin_conn_breach(conn, conn->sk);
}

/* Unread bytes; parks if there are fewer than `target`, so that the next ones ring. */
u32 yasmin_stream_look(struct conn *conn, u32 target)
{
	u64 bytes = 0;
	int tries;

	/* A park that fails has found new bytes; these then count, or the next park succeeds. */
	for (tries = 0; tries < 8; tries++) {
		if (yasmin_ring_look(&conn->rx, 0, &bytes) == RING_BROKEN) {
			reset_conn(conn);
			return 0;
		}
		if (bytes >= target || yasmin_ring_park(&conn->rx) == RING_DONE)
			return bytes;
	}
	/* A sender that publishes byte after byte; whatever there is will do. */
	return bytes;
}

/*
 * A program that looks again and again without ever sleeping, as MPI's ranks do, keeps the processor from a
 * peer that shares it: Xen does not prefer a domain for an event that finds it runnable.
 */
static void give_way(struct conn *conn, bool found)
{
	if (found) {
		conn->vain_looks = 0;
		return;
	}
	if (++conn->vain_looks < VAIN_LOOKS_MAX)
		return;
	if (single_task_running() || conn->vain_looks % VAIN_LOOKS_MAX == 0)
		HYPERVISOR_sched_op(SCHEDOP_yield, NULL);
}

s64 yasmin_stream_has_data(struct vsock_sock *vsk)
{
	struct conn *conn = yasmin_conn_usable(vsk);
	u32 bytes;

	if (!conn)
		return 0;
	bytes = yasmin_stream_look(conn, 1);
	give_way(conn, bytes);
	return bytes;
}

/* Room for bytes; if there is none, the bell will ring when there is. */
static u32 find_room(struct conn *conn, u32 least, struct ring_write *write)
{
	u32 half = wire_class_bytes(conn->class) / 2;
	enum ring_answer answer = yasmin_ring_room(&conn->tx, least, write);

	if (answer != RING_BROKEN && write->room_bytes < least) {
		if (yasmin_ring_ask_wake(&conn->tx, max(half, least)) == RING_BROKEN)
			answer = RING_BROKEN;
		else
			answer = yasmin_ring_room(&conn->tx, least, write);
	}
	if (answer == RING_BROKEN) {
		reset_conn(conn);
		return 0;
	}
	return write->room_bytes >= least ? write->room_bytes : 0;
}

s64 yasmin_stream_has_space(struct vsock_sock *vsk)
{
	struct conn *conn = yasmin_conn_usable(vsk);
	struct ring_write write;
	u32 least = 1;

	if (!conn)
		return 0;
	if (vsk->sk.sk_type == SOCK_SEQPACKET)
		least = max(conn->room_wanted, WIRE_MESSAGE_WORD_BYTES + 1);
	return find_room(conn, least, &write);
}

ssize_t yasmin_stream_enqueue(struct vsock_sock *vsk, struct msghdr *msg, size_t len)
{
	struct conn *conn = yasmin_conn_usable(vsk);
	struct ring_write write;
	size_t done = 0;

	if (!conn)
		return -ENOTCONN;
	while (done < len) {
		u32 wanted = min_t(size_t, len - done, CHUNK_BYTES), filled = 0;
		enum ring_answer answer = yasmin_ring_room(&conn->tx, wanted, &write);
		struct ring_span to;

		if (answer == RING_FULL)
			break;
		if (answer == RING_BROKEN) {
			reset_conn(conn);
			break;
		}
		while ((to = yasmin_ring_write_span(&conn->tx, &write, filled, wanted - filled)).len_bytes) {
			u32 copied = copy_from_iter(to.at, to.len_bytes, &msg->msg_iter);

			filled += copied;
			if (copied < to.len_bytes)
				break;
		}
		if (!filled)
			return done ?: -EFAULT;
		answer = yasmin_ring_publish(&conn->tx, &write, filled, 0);
		if (answer == RING_BROKEN) {
			reset_conn(conn);
			break;
		}
		if (answer == RING_RING_BELL)
			yasmin_conn_ring(conn);
		done += filled;
	}
	conn->sends++;
	conn->sent_bytes += done;
	return done;
}

/* MSG_TRUNC as on TCP: bytes are passed over, or with MSG_PEEK counted, and none is copied. */
ssize_t yasmin_stream_dequeue(struct vsock_sock *vsk, struct msghdr *msg, size_t len, int flags)
{
	struct conn *conn = yasmin_conn_usable(vsk);
	u32 skip = 0;
	size_t done = 0;
	u64 bytes;

	if (!conn)
		return -ENOTCONN;
	if (yasmin_ring_look(&conn->rx, 0, &bytes) == RING_BROKEN) {
		reset_conn(conn);
		return -ECONNRESET;
	}
	len = min_t(u64, len, bytes);
	while (done < len) {
		struct ring_span from = yasmin_ring_read_span(&conn->rx, skip, min_t(size_t, len - done, CHUNK_BYTES));
		u32 copied = from.len_bytes;

		if (!(flags & MSG_TRUNC))
			copied = copy_to_iter(from.at, from.len_bytes, &msg->msg_iter);
		done += copied;
		skip += copied;
		if (copied < from.len_bytes)
			break;
		if (!(flags & MSG_PEEK) && skip >= CHUNK_BYTES) {
			if (yasmin_ring_consume(&conn->rx, skip))
				yasmin_conn_ring(conn);
			skip = 0;
		}
	}
	if (!(flags & MSG_PEEK) && skip && yasmin_ring_consume(&conn->rx, skip))
		yasmin_conn_ring(conn);
	conn->receives++;
	if (!(flags & MSG_TRUNC))
		conn->received_bytes += done;
	return done ?: (len ? -EFAULT : 0);
}

/*
 * Before a program sleeps: looks on for a moment, and gives the processor to whoever else wants it, the peer
 * perhaps. To sleep and be woken costs more than most peers take to answer. Not while anybody in this guest
 * waits for the processor or for the socket; rarely where it was in vain the last times.
 */
static bool linger_for(struct conn *conn, struct sock *sk, bool sends)
{
	u64 until_ns, us = READ_ONCE(yasmin_linger_us);

	if (!us || (conn->vain_lingers >= VAIN_LINGERS_MAX && ++conn->vain_lingers % VAIN_LINGERS_MAX))
		return false;
	until_ns = ktime_get_ns() + us * NSEC_PER_USEC;
	while (single_task_running() && !signal_pending(current) && !wq_has_sleeper(&sk->sk_lock.wq)) {
		HYPERVISOR_sched_op(SCHEDOP_yield, NULL);
		if (sends ? yasmin_ring_sender_stirs(&conn->tx) : yasmin_ring_receiver_stirs(&conn->rx)) {
			conn->vain_lingers = 0;
			return true;
		}
		if (ktime_get_ns() >= until_ns)
			break;
	}
	conn->vain_lingers++;
	return false;
}

/* The direction is parked already, so that nothing is missed. */
int yasmin_stream_linger_receive(struct vsock_sock *vsk, size_t target, struct vsock_transport_recv_notify_data *data)
{
	struct conn *conn = yasmin_conn_usable(vsk);

	if (conn && linger_for(conn, sk_vsock(vsk), false))
		__set_current_state(TASK_RUNNING);
	return 0;
}

/* Needs no bell while it looks; asks for it again, and so looks once more, if that was in vain. */
int yasmin_stream_linger_send(struct vsock_sock *vsk, struct vsock_transport_send_notify_data *data)
{
	struct conn *conn = yasmin_conn_usable(vsk);
	struct sock *sk = sk_vsock(vsk);

	if (!conn || !READ_ONCE(yasmin_linger_us))
		return 0;
	yasmin_ring_ask_no_wake(&conn->tx);
	/* The core sleeps until its own wait entry was woken: so that one is. */
	if (linger_for(conn, sk, true) || yasmin_stream_has_space(vsk))
		sk->sk_write_space(sk);
	return 0;
}

/* Always parked: who is told by events at the edge hears of each arrival, as on TCP. */
int yasmin_stream_poll_in(struct vsock_sock *vsk, size_t target, bool *ready)
{
	struct conn *conn = yasmin_conn_usable(vsk);
	u32 bytes;

	*ready = false;
	if (!conn)
		return 0;
	if (vsk->sk.sk_type == SOCK_SEQPACKET) {
		*ready = yasmin_seqpacket_has_data(vsk) > 0;
		if (*ready)
			yasmin_ring_park(&conn->rx);
		return 0;
	}
	target = min_t(size_t, target, wire_class_bytes(conn->class));
	bytes = yasmin_stream_look(conn, U32_MAX);
	*ready = bytes >= max_t(size_t, target, 1);
	give_way(conn, *ready);
	return 0;
}

int yasmin_stream_poll_out(struct vsock_sock *vsk, size_t target, bool *ready)
{
	*ready = yasmin_stream_has_space(vsk) > 0;
	return 0;
}
