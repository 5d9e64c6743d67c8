// SPDX-License-Identifier: GPL-2.0
/*
 * Messages in a ring: a 32-bit word (length, end of record) and the bytes, published at once. A sender waits
 * until there is room for the whole message, so one that gives up leaves nothing behind. The word is the
 * peer's: it is copied out and checked each time that it is used.
 */
#include <linux/uio.h>

#include "yasmin.h"

static u32 max_message_bytes(const struct conn *conn)
{
	return wire_class_bytes(conn->class) - WIRE_MESSAGE_WORD_BYTES;
}

/* The next message's word; 0 if there is none. A word that no honest sender wrote is a breach. */
static u32 peek_word(struct conn *conn)
{
	u32 peer_word, len, unread = yasmin_ring_unread_bytes(&conn->rx);

	if (!unread)
		return 0;
	if (yasmin_ring_peek(&conn->rx, 0, &peer_word, WIRE_MESSAGE_WORD_BYTES) != WIRE_MESSAGE_WORD_BYTES)
		goto breach;
	len = peer_word & WIRE_MESSAGE_LEN;
	if (!len || peer_word & WIRE_MESSAGE_RESERVED || len > unread - WIRE_MESSAGE_WORD_BYTES)
		goto breach;
	return peer_word;
breach:
	yasmin_conn_breach(conn, conn->sk);
	return 0;
}

/* Length of the next message; parks if there is none. */
u32 yasmin_seqpacket_has_data(struct vsock_sock *vsk)
{
	struct conn *conn = yasmin_conn_usable(vsk);

	if (!conn || !yasmin_stream_look(conn, 1))
		return 0;
	return peek_word(conn) & WIRE_MESSAGE_LEN;
}

/* All of the message, or nothing yet: then yasmin_stream_has_space answers for what it needs. */
int yasmin_seqpacket_enqueue(struct vsock_sock *vsk, struct msghdr *msg, size_t len)
{
	struct conn *conn = yasmin_conn_usable(vsk);
	struct ring_write write;
	enum ring_answer answer;
	struct ring_span to;
	u32 word = len, end = len + WIRE_MESSAGE_WORD_BYTES, filled = WIRE_MESSAGE_WORD_BYTES;

	if (!conn)
		return -ENOTCONN;
	if (len > max_message_bytes(conn))
		return -EMSGSIZE;
	answer = yasmin_ring_room(&conn->tx, end, &write);
	if (answer == RING_BROKEN)
		goto breach;
	if (write.room_bytes < end) {
		conn->room_wanted = end;
		return 0;
	}
	conn->room_wanted = 0;
	if (msg->msg_flags & MSG_EOR)
		word |= WIRE_MESSAGE_EOR;
	yasmin_ring_fill(&conn->tx, &write, 0, &word, WIRE_MESSAGE_WORD_BYTES);
	while ((to = yasmin_ring_write_span(&conn->tx, &write, filled, end - filled)).len_bytes) {
		if (copy_from_iter(to.at, to.len_bytes, &msg->msg_iter) != to.len_bytes)
			return -EFAULT;
		filled += to.len_bytes;
	}
	answer = yasmin_ring_publish(&conn->tx, &write, end, 0);
	if (answer == RING_BROKEN)
		goto breach;
	if (answer == RING_RING_BELL)
		yasmin_conn_ring(conn);
	conn->sends++;
	conn->sent_bytes += len;
	return len;
breach:
	yasmin_conn_breach(conn, conn->sk);
	return -ECONNRESET;
}

/*
 * One message, as much of it as the program takes; its length in any case. A message that the program has
 * no memory for is dropped, as other transports do.
 */
ssize_t yasmin_seqpacket_dequeue(struct vsock_sock *vsk, struct msghdr *msg, int flags)
{
	struct conn *conn = yasmin_conn_usable(vsk);
	u32 word, len, skip = WIRE_MESSAGE_WORD_BYTES;
	ssize_t result;

	if (!conn)
		return -ENOTCONN;
	word = peek_word(conn);
	result = len = word & WIRE_MESSAGE_LEN;
	while (len && msg_data_left(msg)) {
		struct ring_span from = yasmin_ring_read_span(&conn->rx, skip, len);
		u32 wanted = min_t(size_t, from.len_bytes, msg_data_left(msg));

		if (copy_to_iter(from.at, wanted, &msg->msg_iter) != wanted) {
			result = -EFAULT;
			break;
		}
		skip += wanted;
		len -= wanted;
	}
	if (word & WIRE_MESSAGE_EOR)
		msg->msg_flags |= MSG_EOR;
	if (!word || flags & MSG_PEEK)
		return result;
	if (yasmin_ring_consume(&conn->rx, WIRE_MESSAGE_WORD_BYTES + (word & WIRE_MESSAGE_LEN)))
		yasmin_conn_ring(conn);
	conn->receives++;
	conn->received_bytes += max_t(ssize_t, result, 0);
	return result;
}
