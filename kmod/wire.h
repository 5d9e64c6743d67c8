/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What two domains agree on, bit by bit: spec/wire.md sections 1 to 3, 9 and 10. Little-endian machines
 * only. Nothing but layouts and limits here; also builds in user space.
 */
#ifndef YASMIN_WIRE_H
#define YASMIN_WIRE_H

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/build_bug.h>
#include <linux/stddef.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is little-endian"
#endif

/* A channel's pages (section 1). */
#define WIRE_VERSION		2
#define WIRE_PAGE_BYTES		4096
#define WIRE_PAGE_SHIFT		12
#define WIRE_MIN_PAGED_CLASS	1	/* below, rings lie in the first page */
#define WIRE_MAX_CLASS		9
#define WIRE_BELL_MAX_CLASS	10	/* section 9, where rings have pages */
#define WIRE_BLOCK_OFFSET	1024
#define WIRE_BLOCK_STRIDE	512

struct wire_header {
	u8 magic[8];		/* "YASMINCH" */
	u32 version;
	u32 max_class;
};

struct wire_block {
	u64 word;
	u64 tcp_position;
	u64 tcp_hint;
	u32 sender_cpu;
	u32 class_wanted;
	u64 wake;		/* section 9: head position at which the sender asks for the bell */
	u8 reserved0[88];
	u64 head;
	u32 receiver_cpu;
	u8 reserved1[116];
};

/* Positions and the word (sections 2 and 3). */
#define WIRE_POSITION_MASK	((1ull << 58) - 1)
#define WIRE_TAIL_SHIFT		6
#define WIRE_CLASS_SHIFT	2
#define WIRE_CLASS_MASK		0xf
#define WIRE_STATE_MASK		3

enum wire_state { WIRE_PARKED, WIRE_OFFERED, WIRE_OPEN, WIRE_INVALID };

static inline u32 wire_class_bytes(u8 class)
{
	return class < WIRE_MIN_PAGED_CLASS ? 1024 : (u32)WIRE_PAGE_BYTES << (class - WIRE_MIN_PAGED_CLASS);
}

/* Of a ring that has pages. */
static inline u32 wire_class_pages(u8 class)
{
	return wire_class_bytes(class) >> WIRE_PAGE_SHIFT;
}

static inline u64 wire_since(u64 later, u64 earlier)
{
	return (later - earlier) & WIRE_POSITION_MASK;
}

static inline u64 wire_word(u64 tail, u8 class, enum wire_state state)
{
	return tail << WIRE_TAIL_SHIFT | (u64)class << WIRE_CLASS_SHIFT | state;
}

/* The medium xen (section 10): what a domain grants, and the control channel of a pair of domains. */
#define WIRE_CID_BASE		1000
#define WIRE_CONTROL_SLOTS	32
#define WIRE_INDIRECT_REFS	(WIRE_PAGE_BYTES / 4)

enum wire_message_kind {
	WIRE_CONNECT = 1,	/* connector: here is a channel for a connection to this port */
	WIRE_ACCEPTED,		/* acceptor: the connection stands */
	WIRE_REFUSED,		/* acceptor: it does not, and nothing of the channel is used */
	WIRE_SHUTDOWN,		/* either: no more is sent, no more is received (flags) */
	WIRE_RESET,		/* either: it is over, and what is unread is void */
	WIRE_RELEASE,		/* acceptor: nothing of the channel is used any more */
	WIRE_DROP,		/* connector: the kept channel is not used again */
	WIRE_TIGHT,		/* acceptor: kept channels had better be dropped */
};

#define WIRE_FROM_CONNECTOR	1	/* in role: who sends this message */
#define WIRE_SHUT_RECEIVE	1
#define WIRE_SHUT_SEND		2
#define WIRE_KEEP		1	/* in flags of CONNECT: the acceptor may keep the channel */
#define WIRE_AGAIN		2	/* and: it is the one of that name that was kept */
#define WIRE_KEPT		1	/* in flags of RELEASE and REFUSED: the channel is kept */
#define WIRE_STREAM		1
#define WIRE_SEQPACKET		2

struct wire_message {
	u8 kind;
	u8 role;
	u8 type;		/* CONNECT: stream or seqpacket */
	u8 class;		/* CONNECT: of both rings */
	u32 id;			/* the connector's name for the connection */
	u32 connector_port;	/* CONNECT */
	u32 acceptor_port;	/* CONNECT */
	u32 indirect_ref;	/* CONNECT: grant of the page that lists the grants */
	u32 event_port;		/* CONNECT: the connector's event channel */
	u32 flags;		/* SHUTDOWN, CONNECT, RELEASE, REFUSED */
	u32 indirect_more_ref;	/* CONNECT: of the page with the rest of the list, if one does not hold it */
};

struct wire_queue_index {
	u32 index;
	u32 waits;		/* in produced: the sender asks for an event when there is room */
	u8 reserved[56];
};

/* Queue 0: from the domain with the lower number to the higher; queue 1: back. */
struct wire_control {
	u8 magic[8];		/* "YASMINCT" */
	u32 version;
	u8 reserved0[52];
	struct wire_queue_index produced[2];
	struct wire_queue_index consumed[2];
	u8 reserved1[704];
	struct wire_message slots[2][WIRE_CONTROL_SLOTS];
	u8 reserved2[1024];
};

/* A message in a seqpacket ring: this word, then so many bytes. */
#define WIRE_MESSAGE_WORD_BYTES	4u
#define WIRE_MESSAGE_LEN	0x3fffffffu
#define WIRE_MESSAGE_EOR	0x40000000u
#define WIRE_MESSAGE_RESERVED	0x80000000u

_Static_assert(sizeof(struct wire_header) == 16, "header");
_Static_assert(offsetof(struct wire_header, version) == 8, "header.version");
_Static_assert(offsetof(struct wire_header, max_class) == 12, "header.max_class");
_Static_assert(sizeof(struct wire_block) == 256, "block");
_Static_assert(offsetof(struct wire_block, word) == 0x00, "block.word");
_Static_assert(offsetof(struct wire_block, tcp_position) == 0x08, "block.tcp_position");
_Static_assert(offsetof(struct wire_block, tcp_hint) == 0x10, "block.tcp_hint");
_Static_assert(offsetof(struct wire_block, sender_cpu) == 0x18, "block.sender_cpu");
_Static_assert(offsetof(struct wire_block, class_wanted) == 0x1c, "block.class_wanted");
_Static_assert(offsetof(struct wire_block, wake) == 0x20, "block.wake");
_Static_assert(offsetof(struct wire_block, head) == 0x80, "block.head");
_Static_assert(offsetof(struct wire_block, receiver_cpu) == 0x88, "block.receiver_cpu");
_Static_assert(sizeof(struct wire_message) == 32, "message");
_Static_assert(sizeof(struct wire_control) == WIRE_PAGE_BYTES, "control page");
_Static_assert(offsetof(struct wire_control, produced) == 0x40, "control.produced");
_Static_assert(offsetof(struct wire_control, consumed) == 0xc0, "control.consumed");
_Static_assert(offsetof(struct wire_control, slots) == 0x400, "control.slots");

#endif
