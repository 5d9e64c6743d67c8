// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * See ring.h. virt_* and sync_* as all drivers between guests: a guest with one CPU patches the lock prefix
 * out of cmpxchg, and smp_* are plain where the kernel is for one CPU, but the peer runs on another all the
 * same.
 */
#include "ring.h"

#ifdef __KERNEL__
#include <asm/sync_bitops.h>
#include <linux/atomic.h>
#include <linux/minmax.h>
#include <linux/string.h>
#endif

/* A TCP position this far ahead of what was read is a lie: more than any window holds. */
#define TCP_AHEAD_MAX (1ull << 40)

struct parts {
	u64 tail;
	u8 class;
	u8 state;
};

static bool decode_word(u64 word, bool bell, struct parts *parts)
{
	parts->tail = word >> WIRE_TAIL_SHIFT;
	parts->class = word >> WIRE_CLASS_SHIFT & WIRE_CLASS_MASK;
	parts->state = word & WIRE_STATE_MASK;
	return parts->state != WIRE_INVALID && parts->class <= (bell ? WIRE_BELL_MAX_CLASS : WIRE_MAX_CLASS);
}

static bool exchange_word(u64 *at, u64 from, u64 to)
{
	return sync_cmpxchg(at, from, to) == from;
}

static struct ring_span find_span(void *const *pages, u64 position, u8 class, u32 len_bytes)
{
	u32 size = wire_class_bytes(class), at = position & (size - 1);
	u32 in_page = at & (WIRE_PAGE_BYTES - 1);
	u32 page = at >> WIRE_PAGE_SHIFT, last = (size - 1) >> WIRE_PAGE_SHIFT;
	u32 piece = min(size, (u32)WIRE_PAGE_BYTES) - in_page;
	u8 *from = (u8 *)pages[page] + in_page;

	for (; piece < len_bytes && page < last; page++, piece += WIRE_PAGE_BYTES)
		if ((u8 *)pages[page + 1] != (u8 *)pages[page] + WIRE_PAGE_BYTES)
			break;
	return (struct ring_span){ .at = from, .len_bytes = min(len_bytes, piece) };
}

/* A direction with a bell begins: what was in its block before is void. Nobody uses it yet, or any more. */
void yasmin_ring_block_init(struct wire_block *block, u8 class)
{
	*block = (struct wire_block){ .word = wire_word(0, class, WIRE_PARKED) };
}

/* ---- the sender ---- */

void yasmin_ring_sender_init(struct ring_sender *s, struct wire_block *block, void *const *pages, u8 class,
			     bool bell)
{
	*s = (struct ring_sender){
		.block = block, .pages = pages, .max_class = class, .bell = bell, .class = bell ? class : 0,
	};
}

static enum ring_answer break_sender(struct ring_sender *s)
{
	s->broken = true;
	return RING_BROKEN;
}

/* Loads the word once and checks all that must hold. */
static bool load_word(struct ring_sender *s, u64 *word, struct parts *parts)
{
	bool follows;

	if (s->broken)
		return false;
	*word = virt_load_acquire(&s->block->word);
	follows = decode_word(*word, s->bell, parts) && parts->tail == s->tail && parts->class <= s->max_class;
	if (parts->state == WIRE_OPEN)
		follows = follows && s->open && parts->class == s->class;
	if (s->bell)
		follows = follows && parts->state != WIRE_OFFERED && parts->class == s->class;
	if (!follows) {
		break_sender(s);
		return false;
	}
	/* Seen parked or offered once, it does not count as opened any more. */
	if (parts->state != WIRE_OPEN)
		s->open = false;
	return true;
}

/* Loads the peer's head: bytes in flight, 0 to the ring's size. */
static bool look_at_head(struct ring_sender *s, u64 tail, u64 *used)
{
	u64 head = virt_load_acquire(&s->block->head) & WIRE_POSITION_MASK;

	/* Neither backwards nor past the tail. */
	if (wire_since(head, s->head_seen) > wire_since(tail, s->head_seen)) {
		break_sender(s);
		return false;
	}
	s->head_seen = head;
	*used = wire_since(tail, head);
	return true;
}

enum ring_answer yasmin_ring_room(struct ring_sender *s, u32 wanted_bytes, struct ring_write *write)
{
	struct parts parts;
	u64 word, used;
	u32 size;
	bool retried = s->retried;

	if (!load_word(s, &word, &parts))
		return RING_BROKEN;
	size = wire_class_bytes(parts.class);
	*write = (struct ring_write){
		.word = word, .tail = parts.tail, .class = parts.class, .state = parts.state,
	};
	if (!s->bell && parts.state != WIRE_OPEN) {
		s->retried = false;
		if (parts.state == WIRE_PARKED || retried || s->never)
			return RING_TCP;
		/* The receiver offers only what it has drained. */
		if ((virt_load_acquire(&s->block->head) & WIRE_POSITION_MASK) != parts.tail)
			return break_sender(s);
		s->head_seen = parts.tail;
		write->room_bytes = size;
		return RING_RING;
	}
	used = wire_since(parts.tail, s->head_seen);
	if (size - used < wanted_bytes && !look_at_head(s, parts.tail, &used))
		return RING_BROKEN;
	write->room_bytes = size - used;
	return write->room_bytes ? RING_RING : RING_FULL;
}

struct ring_span yasmin_ring_write_span(const struct ring_sender *s, const struct ring_write *write,
					u32 skip_bytes, u32 len_bytes)
{
	u32 room = write->room_bytes > skip_bytes ? write->room_bytes - skip_bytes : 0;

	return find_span(s->pages, write->tail + skip_bytes, write->class, min(len_bytes, room));
}

void yasmin_ring_fill(const struct ring_sender *s, const struct ring_write *write, u32 skip_bytes,
		      const void *from, u32 len_bytes)
{
	struct ring_span to;
	u32 done = 0;

	while ((to = yasmin_ring_write_span(s, write, skip_bytes + done, len_bytes - done)).len_bytes) {
		memcpy(to.at, (const u8 *)from + done, to.len_bytes);
		done += to.len_bytes;
	}
}

enum ring_answer yasmin_ring_publish(struct ring_sender *s, const struct ring_write *write, u32 len_bytes,
				     u64 tcp_position)
{
	struct parts parts;
	u64 word = write->word, next, tail;
	bool sleeps = s->bell && write->state == WIRE_PARKED;

	len_bytes = min(len_bytes, write->room_bytes);
	if (!len_bytes)
		return RING_DONE;
	if (write->state == WIRE_OFFERED) {
		if (s->never)
			return RING_RETRY;
		WRITE_ONCE(s->block->tcp_position, tcp_position);
	}
	tail = (write->tail + len_bytes) & WIRE_POSITION_MASK;
	next = wire_word(tail, write->class, WIRE_OPEN);
	/* The bytes (and the TCP position), /then/ the word: pairs with the load in yasmin_ring_look. */
	if (!exchange_word(&s->block->word, word, next)) {
		if (!load_word(s, &word, &parts))
			return RING_BROKEN;
		/* It was not open, or is not any more; only this end could open it again. */
		if (parts.state == WIRE_OPEN)
			return break_sender(s);
		if (!s->bell) {
			s->retried = true;
			return RING_RETRY;
		}
		/* The receiver went to sleep; nobody but this end wakes it. */
		if (!exchange_word(&s->block->word, word, next))
			return break_sender(s);
		sleeps = true;
	}
	s->tail = tail;
	s->class = write->class;
	s->open = true;
	return sleeps ? RING_RING_BELL : RING_DONE;
}

/*
 * Asks for the bell when `room_bytes` are free, /then/ looks once more: FULL, and the bell will come; or
 * RING, and there is room already. Pairs with yasmin_ring_consume.
 */
enum ring_answer yasmin_ring_ask_wake(struct ring_sender *s, u32 room_bytes)
{
	struct parts parts;
	u64 word, used;

	if (!load_word(s, &word, &parts))
		return RING_BROKEN;
	WRITE_ONCE(s->block->wake,
		   (parts.tail - wire_class_bytes(parts.class) + room_bytes) & WIRE_POSITION_MASK);
	virt_mb();
	if (!look_at_head(s, parts.tail, &used))
		return RING_BROKEN;
	return wire_class_bytes(parts.class) - used >= room_bytes ? RING_RING : RING_FULL;
}

/* Takes the wish back: the head is past that. A bell may be under way all the same. */
void yasmin_ring_ask_no_wake(struct ring_sender *s)
{
	WRITE_ONCE(s->block->wake, s->head_seen);
}

/* ---- the receiver ---- */

void yasmin_ring_receiver_init(struct ring_receiver *r, struct wire_block *block, void *const *pages, u8 class,
			       bool bell)
{
	*r = (struct ring_receiver){
		.block = block, .pages = pages, .max_class = class, .bell = bell, .class = bell ? class : 0,
		.word_seen = bell ? wire_word(0, class, WIRE_PARKED) : 0,
	};
}

static bool break_receiver(struct ring_receiver *r)
{
	r->broken = true;
	return false;
}

static bool may_follow(const struct ring_receiver *r, u8 to, bool moved)
{
	if (r->bell)
		/* Only the sender changes it, and only by bytes. */
		return to == WIRE_OPEN && moved;
	switch (r->phase) {
	case WIRE_OFFERED:
		return to == WIRE_PARKED || (to == WIRE_OPEN) == moved;
	case WIRE_OPEN:
		return to != WIRE_OFFERED;
	default:
		/* PARKED stays as it is until this end offers. */
		return false;
	}
}

/* Takes over a word that differs from the last one. */
static bool take_word(struct ring_receiver *r, u64 word, u64 own_tcp_position)
{
	struct parts parts;
	u64 size, left;
	bool moved;

	if (!decode_word(word, r->bell, &parts))
		return break_receiver(r);
	size = wire_class_bytes(parts.class);
	moved = parts.tail != r->tail_seen;
	if (parts.class != r->class || wire_since(parts.tail, r->head) > size ||
	    wire_since(parts.tail, r->tail_seen) > size || !may_follow(r, parts.state, moved))
		return break_receiver(r);
	if (!r->bell && r->phase == WIRE_OFFERED && moved) {
		/* The word is acquired, /then/ the position: pairs with yasmin_ring_publish. */
		left = READ_ONCE(r->block->tcp_position) - own_tcp_position;
		if (left > TCP_AHEAD_MAX)
			return break_receiver(r);
		r->tcp_left = left;
	}
	r->tail_seen = parts.tail;
	WRITE_ONCE(r->word_seen, word);
	r->phase = parts.state;
	return true;
}

enum ring_answer yasmin_ring_look(struct ring_receiver *r, u64 own_tcp_position, u64 *bytes)
{
	u64 word;

	if (r->broken)
		return RING_BROKEN;
	word = virt_load_acquire(&r->block->word);
	if (word != r->word_seen && !take_word(r, word, own_tcp_position))
		return RING_BROKEN;
	if (r->tcp_left) {
		*bytes = r->tcp_left;
		return RING_TCP_UP_TO;
	}
	*bytes = wire_since(r->tail_seen, r->head);
	if (*bytes)
		return RING_RING;
	return r->phase == WIRE_PARKED ? RING_TCP : RING_EMPTY;
}

struct ring_span yasmin_ring_read_span(const struct ring_receiver *r, u32 skip_bytes, u32 len_bytes)
{
	u32 unread = yasmin_ring_unread_bytes(r);

	/* Unread is no more than the ring holds: take_word. */
	unread = unread > skip_bytes ? unread - skip_bytes : 0;
	return find_span(r->pages, r->head + skip_bytes, r->class, min(len_bytes, unread));
}

u32 yasmin_ring_peek(const struct ring_receiver *r, u32 skip_bytes, void *to, u32 len_bytes)
{
	struct ring_span from;
	u32 done = 0;

	while ((from = yasmin_ring_read_span(r, skip_bytes + done, len_bytes - done)).len_bytes) {
		memcpy((u8 *)to + done, from.at, from.len_bytes);
		done += from.len_bytes;
	}
	return done;
}

/* Gives bytes back; with a bell, whether the sender asked for it at a position that they reach. */
bool yasmin_ring_consume(struct ring_receiver *r, u32 len_bytes)
{
	u64 before = r->head, peer_wake;

	r->head = (before + min(len_bytes, yasmin_ring_unread_bytes(r))) & WIRE_POSITION_MASK;
	/* The bytes are out, /then/ the sender may overwrite them: pairs with look_at_head. */
	virt_store_release(&r->block->head, r->head);
	if (!r->bell)
		return false;
	/* The head, /then/ the wish: pairs with yasmin_ring_ask_wake. */
	virt_mb();
	peer_wake = READ_ONCE(r->block->wake);
	return wire_since(r->head, peer_wake) < wire_since(r->head, before);
}

/* Parks the direction as the last look saw it: DONE, or MOVED: look again. */
enum ring_answer yasmin_ring_park(struct ring_receiver *r)
{
	u64 parked = r->word_seen & ~(u64)WIRE_STATE_MASK;

	if (r->phase == WIRE_PARKED)
		return RING_DONE;
	if (!exchange_word(&r->block->word, r->word_seen, parked))
		return RING_MOVED;
	WRITE_ONCE(r->word_seen, parked);
	r->phase = WIRE_PARKED;
	return RING_DONE;
}

#ifndef __KERNEL__
/* ---- without a bell: in user space only, against crates/ring and the specification's vectors ---- */

/* Parks: RING if it was open, TCP if not. */
enum ring_answer yasmin_ring_sender_park(struct ring_sender *s)
{
	struct parts before, after;
	u64 word;

	if (!load_word(s, &word, &before))
		return RING_BROKEN;
	if (before.state != WIRE_PARKED) {
		/* One step that cannot fail: the state becomes PARKED, class and tail stay. */
		__atomic_fetch_and(&s->block->word, ~(u64)WIRE_STATE_MASK, __ATOMIC_ACQ_REL);
		if (!load_word(s, &word, &after))
			return RING_BROKEN;
		/* The receiver may have offered again since; nobody but this end opens. */
		if (after.state == WIRE_OPEN)
			return break_sender(s);
	}
	return before.state == WIRE_OPEN ? RING_RING : RING_TCP;
}

/* Ring bytes that the receiver has not consumed. */
enum ring_answer yasmin_ring_unread(struct ring_sender *s, u64 *unread_bytes)
{
	struct parts parts;
	u64 word;

	if (!load_word(s, &word, &parts) || !look_at_head(s, parts.tail, unread_bytes))
		return RING_BROKEN;
	return RING_DONE;
}

void yasmin_ring_took_tcp(struct ring_receiver *r, u64 len_bytes)
{
	r->tcp_left -= min(len_bytes, r->tcp_left);
}

/* Offers the drained, parked direction. */
bool yasmin_ring_offer(struct ring_receiver *r, u8 class)
{
	u64 word;

	if (r->phase != WIRE_PARKED || r->tcp_left || r->head != r->tail_seen || r->never || r->broken)
		return false;
	class = min(min(class, r->max_class), (u8)WIRE_MAX_CLASS);
	word = wire_word(r->tail_seen, class, WIRE_OFFERED);
	virt_store_release(&r->block->head, r->head);
	/* Nobody but this end moves a parked word. */
	if (!exchange_word(&r->block->word, r->word_seen, word))
		return break_receiver(r);
	r->class = class;
	r->word_seen = word;
	r->phase = WIRE_OFFERED;
	return true;
}
#endif
