// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * One end of a channel in shared memory, by ring.c; the other end is crates/ring (tests/kernel.rs).
 *
 *   exchange MEMFD CLASS BYTES SEED     sends BYTES on direction 1, receives BYTES on direction 0
 *
 * There is no TCP beside the ring: a parked direction waits until it is offered again. Both ends park now
 * and then. Exits with 1 at the first wrong byte, 2 at a breach.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../ring.h"

static u64 random_state;

static u64 below(u64 bound)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (random_state * 0x2545f4914f6cdd1dull >> 32) % bound;
}

static u8 byte_at(u64 place)
{
	return (place * 0x9e3779b97f4a7c15ull) >> 56;
}

static void breach(const char *where)
{
	fprintf(stderr, "exchange: breach: %s\n", where);
	exit(2);
}

static bool send_some(struct ring_sender *s, u64 *sent, u64 total)
{
	static u8 data[1 << 16];
	struct ring_write write;
	u32 len;

	if (*sent == total)
		return false;
	len = 1 + below(sizeof(data));
	if (len > total - *sent)
		len = total - *sent;
	switch (yasmin_ring_room(s, len, &write)) {
	case RING_BROKEN:
		breach("room");
	case RING_RING:
		break;
	default:
		return false;
	}
	if (len > write.room_bytes)
		len = write.room_bytes;
	for (u32 i = 0; i < len; i++)
		data[i] = byte_at(*sent + i);
	yasmin_ring_fill(s, &write, 0, data, len);
	switch (yasmin_ring_publish(s, &write, len, 0)) {
	case RING_BROKEN:
		breach("publish");
	case RING_RETRY:
		return true;
	default:
		*sent += len;
	}
	if (below(64) == 0 && yasmin_ring_sender_park(s) == RING_BROKEN)
		breach("park");
	return true;
}

static bool receive_some(struct ring_receiver *r, u64 *received, u64 total, u8 class)
{
	static u8 data[1 << 16];
	u64 bytes;
	u32 len;

	if (*received == total)
		return false;
	switch (yasmin_ring_look(r, 0, &bytes)) {
	case RING_BROKEN:
	case RING_TCP_UP_TO:
		breach("look");
	case RING_TCP:
		if (!yasmin_ring_offer(r, WIRE_MIN_PAGED_CLASS + below(class)))
			breach("offer");
		return true;
	case RING_RING:
		break;
	default:
		if (below(1024) == 0)
			yasmin_ring_park(r);
		return false;
	}
	len = yasmin_ring_peek(r, 0, data, 1 + below(sizeof(data)));
	for (u32 i = 0; i < len; i++) {
		if (data[i] != byte_at(*received + i)) {
			fprintf(stderr, "exchange: wrong byte at %llu\n", (unsigned long long)(*received + i));
			exit(1);
		}
	}
	yasmin_ring_consume(r, len);
	*received += len;
	return true;
}

int main(int argc, char **argv)
{
	static void *pages[2][1 << (WIRE_MAX_CLASS - WIRE_MIN_PAGED_CLASS)];
	struct ring_receiver r;
	struct ring_sender s;
	u64 total, sent = 0, received = 0;
	u8 *base, class;

	if (argc != 5)
		return 3;
	class = atoi(argv[2]);
	total = strtoull(argv[3], NULL, 0);
	random_state = strtoull(argv[4], NULL, 0) | 1;
	base = mmap(NULL, WIRE_PAGE_BYTES + 2 * wire_class_bytes(class), PROT_READ | PROT_WRITE, MAP_SHARED,
		    atoi(argv[1]), 0);
	if (base == MAP_FAILED)
		return 3;
	for (int ring = 0; ring < 2; ring++)
		for (u32 i = 0; i < wire_class_pages(class); i++)
			pages[ring][i] = base + WIRE_PAGE_BYTES * (1 + ring * wire_class_pages(class) + i);
	yasmin_ring_sender_init(&s, (void *)(base + WIRE_BLOCK_OFFSET + WIRE_BLOCK_STRIDE), pages[1], class, false);
	yasmin_ring_receiver_init(&r, (void *)(base + WIRE_BLOCK_OFFSET), pages[0], class, false);
	while (sent < total || received < total) {
		bool moved = send_some(&s, &sent, total);

		if (!receive_some(&r, &received, total, class) && !moved)
			sched_yield();
	}
	return 0;
}
