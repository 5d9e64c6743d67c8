// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A peer that lies: speaks the protocol of spec/wire.md section 10 from user space, in a guest that has not
 * loaded the module, with the higher domain number.
 *
 *   hostile PEER-DOMID PORT CASE
 *
 * Lies: references (grants that do not exist), class, event-port, word-state, word-back, word-far, index (of
 * the control queue), noise (random messages), again (one id twice), silent (connects, and dies); a channel
 * again that was never kept (again-unknown), is in use (again-open, and drop-open), was left as it is
 * (again-dirty), is taken twice (again-twice), with other rings (again-class). Insists on the answers that it
 * gets; what came of it in the other kernel is looked at there.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xenevtchn.h>
#include <xengnttab.h>
#include <xenstore.h>

#include "../../../kmod/wire.h"

#define CLASS 3
#define PAGES (1 + 2 * (1 << (CLASS - WIRE_MIN_PAGED_CLASS)))

static struct xs_handle *store;
static struct wire_control *control;
static xenevtchn_handle *events;
static evtchn_port_t control_port, data_port;
static uint32_t produced, consumed, peer, self, answer_flags;
static uint8_t *pages;
static uint32_t refs[PAGES], indirect_ref;

static void die(const char *what)
{
	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	exit(1);
}

static char *read_path(const char *format, uint32_t a, uint32_t b)
{
	char path[64];
	unsigned int len;
	char *value = NULL;

	snprintf(path, sizeof(path), format, a, b);
	for (int tries = 0; tries < 500 && !value; tries++) {
		value = xs_read(store, XBT_NULL, path, &len);
		if (!value || !*value) {
			free(value);
			value = NULL;
			usleep(10000);
		}
	}
	if (!value)
		die(path);
	return value;
}

/* Announces itself as a module would, and joins the control page that the peer then offers. */
static void join(void)
{
	xengnttab_handle *grants = xengnttab_open(NULL, 0);
	unsigned long long theirs, ours, mine = getpid() + 0x1000;
	char path[64], text[64];
	uint32_t ref, port;

	store = xs_open(0);
	events = xenevtchn_open(NULL, 0);
	if (!store || !events || !grants)
		die("Xen's devices");
	self = atoi(read_path("domid", 0, 0));
	snprintf(path, sizeof(path), "/yasmin/%u/version", self);
	snprintf(text, sizeof(text), "%u %llx", WIRE_VERSION, mine);
	if (!xs_write(store, XBT_NULL, path, text, strlen(text)))
		die(path);
	do {
		usleep(10000);
		sscanf(read_path("/yasmin/%u/to/%u", peer, self), "%llx %llx %u %u", &theirs, &ours, &ref, &port);
	} while (ours != mine);
	control = xengnttab_map_grant_ref(grants, peer, ref, PROT_READ | PROT_WRITE);
	if (!control)
		die("control page");
	control_port = xenevtchn_bind_interdomain(events, peer, port);
	consumed = control->consumed[0].index;
}

static void send_message(struct wire_message message)
{
	for (int tries = 0; produced - __atomic_load_n(&control->consumed[1].index, __ATOMIC_ACQUIRE) >= 32; tries++) {
		if (tries > 500)
			die("the peer reads no messages");
		usleep(10000);
	}
	control->slots[1][produced % WIRE_CONTROL_SLOTS] = message;
	__atomic_store_n(&control->produced[1].index, ++produced, __ATOMIC_SEQ_CST);
	xenevtchn_notify(events, control_port);
}

/* The next message about this id; 0 after a second without. */
static int answer(uint32_t id)
{
	for (int tries = 0; tries < 200; tries++) {
		while (__atomic_load_n(&control->produced[0].index, __ATOMIC_ACQUIRE) != consumed) {
			struct wire_message message = control->slots[0][consumed % WIRE_CONTROL_SLOTS];

			__atomic_store_n(&control->consumed[0].index, ++consumed, __ATOMIC_SEQ_CST);
			xenevtchn_notify(events, control_port);
			answer_flags = message.flags;
			if (message.id == id)
				return message.kind;
		}
		usleep(5000);
	}
	return 0;
}

static struct wire_block *block(int direction)
{
	return (void *)(pages + WIRE_BLOCK_OFFSET + direction * WIRE_BLOCK_STRIDE);
}

/* Grants a channel as an honest connector does. */
static struct wire_message channel(uint32_t id, uint32_t port)
{
	xengntshr_handle *shared = xengntshr_open(NULL, 0);
	uint32_t *list;

	pages = xengntshr_share_pages(shared, peer, PAGES, refs, 1);
	list = xengntshr_share_pages(shared, peer, 1, &indirect_ref, 1);
	if (!pages || !list)
		die("grants");
	memset(pages, 0, PAGES * WIRE_PAGE_BYTES);
	memcpy(list, refs, sizeof(refs));
	for (int i = 0; i < 2; i++)
		block(i)->word = wire_word(0, CLASS, WIRE_PARKED);
	data_port = xenevtchn_bind_unbound_port(events, peer);
	return (struct wire_message){
		.kind = WIRE_CONNECT, .role = WIRE_FROM_CONNECTOR, .type = WIRE_STREAM, .class = CLASS, .id = id,
		.connector_port = 40000 + id, .acceptor_port = port, .indirect_ref = indirect_ref,
		.event_port = data_port,
	};
}

static void expect(const char *what, int got, int wanted)
{
	printf("%s: %d\n", what, got);
	if (got != wanted) {
		fprintf(stderr, "hostile: %s: message %d, not %d\n", what, got, wanted);
		exit(1);
	}
}

/* An honest end, after which the peer keeps the channel. */
static void end(struct wire_message message)
{
	message.kind = WIRE_SHUTDOWN;
	message.flags = WIRE_SHUT_RECEIVE | WIRE_SHUT_SEND;
	send_message(message);
	expect("the end", answer(message.id), WIRE_SHUTDOWN);
	expect("and then", answer(message.id), WIRE_RELEASE);
	expect("the channel is kept", answer_flags, WIRE_KEPT);
}

static void again(struct wire_message message, const char *what)
{
	end(message);
	message.flags = WIRE_KEEP | WIRE_AGAIN;
	if (!strcmp(what, "again-class")) {
		message.class++;
		send_message(message);
		expect("with other rings", answer(message.id), 0);
		return;
	}
	/* What the last connection published, or worse, is there still. */
	if (!strcmp(what, "again-dirty")) {
		memset(block(0), 0xa5, sizeof(*block(0)));
		memset(block(1), 0xa5, sizeof(*block(1)));
		send_message(message);
		expect("accepted", answer(message.id), WIRE_ACCEPTED);
		xenevtchn_notify(events, data_port);
		expect(what, answer(message.id), WIRE_RESET);
		expect("and then", answer(message.id), WIRE_RELEASE);
		expect("it is not kept", answer_flags, 0);
		message.flags = WIRE_AGAIN;
		send_message(message);
		expect("again all the same", answer(message.id), WIRE_REFUSED);
		return;
	}
	for (int i = 0; i < 2; i++)
		*block(i) = (struct wire_block){ .word = wire_word(0, CLASS, WIRE_PARKED) };
	send_message(message);
	send_message(message);
	expect("the first", answer(message.id), WIRE_ACCEPTED);
	expect("the second", answer(message.id), 0);
	end(message);
	message.kind = WIRE_DROP;
	send_message(message);
	send_message(message);
	expect("dropped", answer(message.id), WIRE_RELEASE);
	expect("it is not kept", answer_flags, 0);
	expect("dropped twice", answer(message.id), 0);
}

int main(int argc, char **argv)
{
	struct wire_message message;
	const char *what;
	uint32_t id = 7;

	if (argc != 4)
		return 2;
	peer = atoi(argv[1]);
	what = argv[3];
	join();
	message = channel(id, atoi(argv[2]));

	if (!strcmp(what, "references")) {
		message.indirect_ref = 1 << 20;
		send_message(message);
		expect("a grant that does not exist", answer(id), WIRE_REFUSED);
		return 0;
	}
	if (!strcmp(what, "class")) {
		message.class = 200;
		send_message(message);
		expect("class 200", answer(id), WIRE_REFUSED);
		return 0;
	}
	if (!strcmp(what, "event-port")) {
		message.event_port = 9999;
		send_message(message);
		expect("an event channel that does not exist", answer(id), WIRE_REFUSED);
		return 0;
	}
	if (!strcmp(what, "again-unknown")) {
		message.flags = WIRE_KEEP | WIRE_AGAIN;
		send_message(message);
		expect("a channel that was never kept", answer(id), WIRE_REFUSED);
		return 0;
	}
	if (!strcmp(what, "noise")) {
		for (int i = 0; i < 5000; i++) {
			uint8_t *bytes = (uint8_t *)&message;

			for (size_t at = 0; at < sizeof(message); at++)
				bytes[at] = rand();
			message.kind %= 10;
			message.id %= 16;
			send_message(message);
			while (__atomic_load_n(&control->produced[0].index, __ATOMIC_ACQUIRE) != consumed)
				__atomic_store_n(&control->consumed[0].index, ++consumed, __ATOMIC_SEQ_CST);
		}
		return 0;
	}
	message.flags = WIRE_KEEP;
	send_message(message);
	expect("an honest connect", answer(id), WIRE_ACCEPTED);
	if (!strcmp(what, "again-open")) {
		message.flags = WIRE_AGAIN;
		send_message(message);
		expect("a channel in use, again", answer(id), 0);
		return 0;
	}
	if (!strcmp(what, "drop-open")) {
		message.kind = WIRE_DROP;
		send_message(message);
		expect("a channel in use, dropped", answer(id), 0);
		return 0;
	}
	if (!strncmp(what, "again-", 6)) {
		again(message, what);
		return 0;
	}
	if (!strcmp(what, "silent"))
		return 0;
	if (!strcmp(what, "again")) {
		send_message(message);
		expect("the same id again", answer(id), 0);
		return 0;
	}
	if (!strcmp(what, "index")) {
		__atomic_store_n(&control->produced[1].index, produced + 1000, __ATOMIC_SEQ_CST);
		xenevtchn_notify(events, control_port);
		sleep(1);
		return 0;
	}
	if (!strcmp(what, "word-state"))
		block(0)->word = wire_word(10, CLASS, WIRE_OFFERED);
	else if (!strcmp(what, "word-far"))
		block(0)->word = wire_word(1 << 20, CLASS, WIRE_OPEN);
	else if (!strcmp(what, "word-back"))
		block(0)->word = wire_word(WIRE_POSITION_MASK, CLASS, WIRE_OPEN);
	else
		return 2;
	xenevtchn_notify(events, data_port);
	expect(what, answer(id), WIRE_RESET);
	expect("and then", answer(id), WIRE_RELEASE);
	return 0;
}
