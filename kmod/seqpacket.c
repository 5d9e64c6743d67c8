// SPDX-License-Identifier: GPL-2.0
/*
 * Messages in a ring: fragments of a 32-bit word (length, last, end of record) and so many bytes, each
 * published whole. A message is there when its last fragment is. The words are the peer's: each is copied
 * out and checked each time that it is used.
 */
#include <linux/uio.h>

#include "yasmin.h"

#define WORD_BYTES 4u

/* A fragment has a quarter of the ring, or ends its message: so a message is never more than words. */
u32 seqpacket_room_min(const struct conn *conn)
{
	return wire_class_bytes(conn->class) / 4;
}

static u32 longest(const struct conn *conn)
{
	return wire_class_bytes(conn->class) - 8 * WORD_BYTES;
}

/* The fragment's word at `skip`; 0 if no honest sender put it there. */
static u32 fragment(struct conn *conn, u32 skip)
{
	u32 peer_word, len, unread = ring_unread_bytes(&conn->rx);

	if (ring_peek(&conn->rx, skip, &peer_word, WORD_BYTES) != WORD_BYTES)
		return 0;
	len = peer_word & WIRE_FRAGMENT_LEN;
	if (!len || len > longest(conn) || len > unread - skip - WORD_BYTES)
		return 0;
	return peer_word;
}

/* Length of the next message if it is whole; goes on where the last search ended. */
u32 seqpacket_has_data(struct vsock_sock *vsk)
{
	struct conn *conn = conn_usable(vsk);
	int tries;
	u64 bytes;
	u32 word;

	if (!conn)
		return 0;
	for (tries = 0; tries < 8 && !conn->message_whole; tries++) {
		if (ring_look(&conn->rx, 0, &bytes) == RING_BROKEN)
			goto breach;
		while (conn->scanned_bytes < ring_unread_bytes(&conn->rx) && !conn->message_whole) {
			word = fragment(conn, conn->scanned_bytes);
			if (!word)
				goto breach;
			conn->scanned_bytes += WORD_BYTES + (word & WIRE_FRAGMENT_LEN);
			conn->message_bytes += word & WIRE_FRAGMENT_LEN;
			conn->message_whole = word & WIRE_FRAGMENT_LAST;
		}
		if (!conn->message_whole && ring_park(&conn->rx) == RING_DONE)
			break;
	}
	return conn->message_whole ? conn->message_bytes : 0;
breach:
	conn_breach(conn, conn->sk);
	return 0;
}

/* As much of the message as there is room for; all of it is the last fragment. */
int seqpacket_enqueue(struct vsock_sock *vsk, struct msghdr *msg, size_t len)
{
	struct conn *conn = conn_usable(vsk);
	struct ring_write write;
	enum ring_answer answer;
	struct ring_span to;
	u32 word, body, filled = WORD_BYTES;

	if (!conn)
		return -ENOTCONN;
	if (len > longest(conn))
		return -EMSGSIZE;
	answer = ring_room(&conn->tx, seqpacket_room_min(conn), &write);
	if (answer == RING_BROKEN)
		goto breach;
	if (write.room_bytes <= WORD_BYTES)
		return 0;
	body = min_t(size_t, len, write.room_bytes - WORD_BYTES);
	word = body;
	if (body == len)
		word |= WIRE_FRAGMENT_LAST | (msg->msg_flags & MSG_EOR ? WIRE_FRAGMENT_EOR : 0);
	ring_fill(&conn->tx, &write, 0, &word, WORD_BYTES);
	while ((to = ring_write_span(&conn->tx, &write, filled, WORD_BYTES + body - filled)).len_bytes) {
		if (copy_from_iter(to.at, to.len_bytes, &msg->msg_iter) != to.len_bytes)
			return -EFAULT;
		filled += to.len_bytes;
	}
	answer = ring_publish(&conn->tx, &write, filled, 0);
	if (answer == RING_BROKEN)
		goto breach;
	if (answer == RING_RING_BELL)
		conn_ring(conn);
	conn->sends++;
	conn->sent_bytes += body;
	return body;
breach:
	conn_breach(conn, conn->sk);
	return -ECONNRESET;
}

/*
 * One whole message, as much of it as the program takes; its length in any case. A message that the
 * program has no memory for is dropped, as other transports do.
 */
ssize_t seqpacket_dequeue(struct vsock_sock *vsk, struct msghdr *msg, int flags)
{
	struct conn *conn = conn_usable(vsk);
	u32 skip = 0, left, word = 0, end;
	ssize_t result;

	if (!conn)
		return -ENOTCONN;
	if (!conn->message_whole)
		return 0;
	end = conn->scanned_bytes;
	result = conn->message_bytes;
	while (skip < end) {
		word = fragment(conn, skip);
		left = word & WIRE_FRAGMENT_LEN;
		skip += WORD_BYTES;
		/* The words may have changed since the search; they may not lead past its end. */
		if (!word || left > end - skip)
			goto breach;
		while (left && msg_data_left(msg) && result > 0) {
			struct ring_span from = ring_read_span(&conn->rx, skip, left);
			u32 wanted = min_t(size_t, from.len_bytes, msg_data_left(msg));

			if (copy_to_iter(from.at, wanted, &msg->msg_iter) != wanted)
				result = -EFAULT;
			skip += wanted;
			left -= wanted;
		}
		skip += left;
	}
	if (word & WIRE_FRAGMENT_EOR)
		msg->msg_flags |= MSG_EOR;
	if (flags & MSG_PEEK)
		return result;
	conn->scanned_bytes = conn->message_bytes = 0;
	conn->message_whole = false;
	if (ring_consume(&conn->rx, end))
		conn_ring(conn);
	conn->receives++;
	conn->received_bytes += max_t(ssize_t, result, 0);
	return result;
breach:
	conn_breach(conn, conn->sk);
	return -ECONNRESET;
}
