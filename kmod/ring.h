/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A direction's two ends (spec/wire.md sections 4, 5 and 9): where bytes go, never how anybody sleeps.
 * With `bell`, the receiver sleeps on a doorbell (section 9); without, on TCP (section 5). The only code
 * that touches what the peer writes; it loads each shared word once for a step, checks it, and breaks the
 * ring for good otherwise. No kernel calls: builds in user space, where it runs the same vectors as
 * crates/ring. One caller at a time for a sender, and for a receiver.
 */
#ifndef YASMIN_RING_H
#define YASMIN_RING_H

#include "wire.h"

#ifdef __KERNEL__
#include <asm/barrier.h>
#include <linux/compiler.h>
#else
#include "test/kernel.h"
#endif

struct ring_sender {
	struct wire_block *block;
	void *const *pages;	/* of the ring; a peer's, so written with ring_* only */
	u8 max_class;		/* fixed at setup */
	bool bell;
	/* From here on private state; zero at first but for `class` with a bell. */
	u8 class;
	bool open, never, retried, broken;
	u64 tail, head_seen;
};

struct ring_receiver {
	struct wire_block *block;
	void *const *pages;
	u8 max_class;
	bool bell;
	u8 class;
	u8 phase;		/* enum wire_state, as last seen */
	bool never, broken;
	u64 head, tail_seen, word_seen, tcp_left;
};

enum ring_answer {
	RING_BROKEN = -1,
	/* where bytes go, or come from */
	RING_TCP = 0,
	RING_RING,
	RING_FULL,
	RING_TCP_UP_TO,
	RING_EMPTY,
	/* what became of a change of the word */
	RING_DONE,
	RING_RING_BELL,		/* done, and the receiver sleeps: ring the bell */
	RING_RETRY,
	RING_MOVED,
};

/* What yasmin_ring_room grants. */
struct ring_write {
	u64 word;
	u64 tail;
	u32 room_bytes;
	u8 class;
	u8 state;
};

/* A piece of memory in one page, or in several that lie one after the other. */
struct ring_span {
	void *at;
	u32 len_bytes;
};

void yasmin_ring_block_init(struct wire_block *block, u8 class);

void yasmin_ring_sender_init(struct ring_sender *s, struct wire_block *block, void *const *pages, u8 class,
			     bool bell);
enum ring_answer yasmin_ring_room(struct ring_sender *s, u32 wanted_bytes, struct ring_write *write);
struct ring_span yasmin_ring_write_span(const struct ring_sender *s, const struct ring_write *write,
					u32 skip_bytes, u32 len_bytes);
void yasmin_ring_fill(const struct ring_sender *s, const struct ring_write *write, u32 skip_bytes,
		      const void *from, u32 len_bytes);
enum ring_answer yasmin_ring_publish(struct ring_sender *s, const struct ring_write *write, u32 len_bytes,
				     u64 tcp_position);
enum ring_answer yasmin_ring_ask_wake(struct ring_sender *s, u32 room_bytes);
void yasmin_ring_ask_no_wake(struct ring_sender *s);

void yasmin_ring_receiver_init(struct ring_receiver *r, struct wire_block *block, void *const *pages, u8 class,
			       bool bell);
enum ring_answer yasmin_ring_look(struct ring_receiver *r, u64 own_tcp_position, u64 *bytes);
struct ring_span yasmin_ring_read_span(const struct ring_receiver *r, u32 skip_bytes, u32 len_bytes);
u32 yasmin_ring_peek(const struct ring_receiver *r, u32 skip_bytes, void *to, u32 len_bytes);
bool yasmin_ring_consume(struct ring_receiver *r, u32 len_bytes);
enum ring_answer yasmin_ring_park(struct ring_receiver *r);

#ifndef __KERNEL__
/* Without a bell. */
enum ring_answer yasmin_ring_sender_park(struct ring_sender *s);
enum ring_answer yasmin_ring_unread(struct ring_sender *s, u64 *unread_bytes);
void yasmin_ring_took_tcp(struct ring_receiver *r, u64 len_bytes);
bool yasmin_ring_offer(struct ring_receiver *r, u8 class);
#endif

static inline u32 yasmin_ring_unread_bytes(const struct ring_receiver *r)
{
	return wire_since(r->tail_seen, r->head);
}

/* Without a lock, as a hint: whether the peer changed something since the last step. */
static inline bool yasmin_ring_receiver_stirs(const struct ring_receiver *r)
{
	return READ_ONCE(r->block->word) != READ_ONCE(r->word_seen);
}

static inline bool yasmin_ring_sender_stirs(const struct ring_sender *s)
{
	return READ_ONCE(s->block->head) != READ_ONCE(s->head_seen);
}

#endif
