// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ring.c one step at a time: reads steps as lines, answers "result value word tcp_position head" each.
 * vectors.py feeds it spec/vectors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ring.h"

static struct wire_block block;
static struct ring_sender s;
static struct ring_receiver r;
static struct ring_write granted;
static void *pages[1 << (WIRE_MAX_CLASS - WIRE_MIN_PAGED_CLASS)];

static void setup(u8 max_class, u64 start, bool bell)
{
	static u8 *memory;

	/* Nothing that was there before counts. */
	free(memory);
	memory = malloc(wire_class_bytes(max_class));
	memset(memory, 0xa5, wire_class_bytes(max_class));
	pages[0] = memory;
	for (u32 i = 1; i < wire_class_pages(max_class); i++)
		pages[i] = memory + i * WIRE_PAGE_BYTES;
	memset(&block, 0xa5, sizeof(block));
	yasmin_ring_block_init(&block, bell ? max_class : 0);
	yasmin_ring_sender_init(&s, &block, pages, max_class, bell);
	yasmin_ring_receiver_init(&r, &block, pages, max_class, bell);
	block.word = wire_word(start, bell ? max_class : 0, WIRE_PARKED);
	block.head = start;
	block.wake = start;
	s.tail = s.head_seen = r.head = r.tail_seen = start;
	r.word_seen = block.word;
}

static const char *name(enum ring_answer answer)
{
	static const char *const names[] = {
		[RING_TCP] = "tcp", [RING_RING] = "ring", [RING_FULL] = "full",
		[RING_TCP_UP_TO] = "tcp_up_to", [RING_DONE] = "done", [RING_RING_BELL] = "bell",
		[RING_RETRY] = "retry", [RING_MOVED] = "moved",
	};

	if (answer == RING_BROKEN)
		return "broken";
	if (answer == RING_EMPTY)
		return r.phase == WIRE_OFFERED ? "empty_offered" : "empty_open";
	return names[answer];
}

static u32 hex(const char *text, u8 *to)
{
	u32 len = strlen(text) / 2, byte;

	for (u32 i = 0; i < len; i++) {
		sscanf(text + 2 * i, "%2x", &byte);
		to[i] = byte;
	}
	return len;
}

int main(void)
{
	static char line[1 << 16], text[1 << 16];
	static u8 data[1 << 15];
	char op[32];
	unsigned long long a, b, c;
	u64 value;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		const char *result = "";
		enum ring_answer answer;

		a = b = c = value = 0;
		text[0] = 0;
		if (sscanf(line, "%31s %llu %llu %llu", op, &a, &b, &c) < 1)
			return 1;
		if (!strcmp(op, "new")) {
			setup(a, b, c);
		} else if (!strcmp(op, "sender_room")) {
			answer = yasmin_ring_room(&s, a, &granted);
			result = name(answer);
			value = answer == RING_RING ? granted.room_bytes : 0;
		} else if (!strcmp(op, "sender_fill")) {
			sscanf(line, "%*s %*s %65535s", text);
			yasmin_ring_fill(&s, &granted, a, data, hex(text, data));
		} else if (!strcmp(op, "sender_publish")) {
			result = name(yasmin_ring_publish(&s, &granted, a, b));
		} else if (!strcmp(op, "sender_park") || !strcmp(op, "sender_park_for_good")) {
			answer = yasmin_ring_sender_park(&s);
			result = answer == RING_BROKEN ? "broken" : answer == RING_RING ? "open" : "not_open";
			if (op[11] && answer != RING_BROKEN) {
				s.never = true;
				result = "done";
			}
		} else if (!strcmp(op, "sender_unread")) {
			answer = yasmin_ring_unread(&s, &value);
			result = answer == RING_BROKEN ? "broken" : "bytes";
			value = answer == RING_BROKEN ? 0 : value;
		} else if (!strcmp(op, "sender_ask_wake")) {
			result = name(yasmin_ring_ask_wake(&s, a));
		} else if (!strcmp(op, "receiver_look")) {
			answer = yasmin_ring_look(&r, a, &value);
			result = name(answer);
			value = answer == RING_RING || answer == RING_TCP_UP_TO ? value : 0;
		} else if (!strcmp(op, "receiver_peek")) {
			u32 len = yasmin_ring_peek(&r, a, data, b);

			for (u32 i = 0; i < len; i++)
				sprintf(text + 2 * i, "%02x", data[i]);
			result = text;
		} else if (!strcmp(op, "receiver_consume")) {
			result = yasmin_ring_consume(&r, a) ? "bell" : "";
		} else if (!strcmp(op, "receiver_took_tcp")) {
			yasmin_ring_took_tcp(&r, a);
		} else if (!strcmp(op, "receiver_park")) {
			result = yasmin_ring_park(&r) == RING_DONE ? "parked" : "moved";
		} else if (!strcmp(op, "receiver_offer")) {
			result = yasmin_ring_offer(&r, a) ? "true" : "false";
		} else if (!strcmp(op, "receiver_never_offer")) {
			r.never = true;
		} else if (!strcmp(op, "hostile")) {
			block.word = a;
			block.tcp_position = b;
			block.head = c;
		} else {
			return 1;
		}
		printf("%s %llu %llu %llu %llu\n", *result ? result : "-", (unsigned long long)value,
		       (unsigned long long)block.word, (unsigned long long)block.tcp_position,
		       (unsigned long long)block.head);
	}
	return 0;
}
