/*
 * Memory that ends where the program says that it goes on: what fits is told, and a success leaves errno.
 *
 *   edges
 */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/mman.h>

#include "peer.h"

enum { PAGE = 4096, CONNECTIONS = 3 };

/* The last bytes before a page that nobody may touch. */
static void *before_the_edge(size_t bytes)
{
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED || mprotect(pages + PAGE, PAGE, PROT_NONE))
		die("mmap", bytes);
	return pages + PAGE - bytes;
}

static void round_trips(int s)
{
	char bytes[100] = { 0 };

	for (int i = 0; i < 1000; i++)
		if (send(s, bytes, 100, 0) != 100 || recv(s, bytes, 100, MSG_WAITALL) != 100)
			die("a round trip", i);
}

/* Three are ready, the buffer has room for two, the program says four. */
static void events(void)
{
	struct epoll_event *events = before_the_edge(2 * sizeof(*events)), one = { .events = EPOLLIN };
	int set = epoll_create1(0), s[CONNECTIONS], told;
	char byte = 'x';

	for (int i = 0; i < CONNECTIONS; i++) {
		s[i] = echoing_peer();
		round_trips(s[i]);
		one.data.fd = i;
		if (epoll_ctl(set, EPOLL_CTL_ADD, s[i], &one) || send(s[i], &byte, 1, 0) != 1 ||
		    recv(s[i], &byte, 1, MSG_PEEK) != 1)
			die("a connection", i);
	}
	for (int rest = CONNECTIONS; rest > 0; rest -= told) {
		told = epoll_wait(set, events, 4, 1000);
		if (told != (rest < 2 ? rest : 2))
			die("told", told);
		for (int i = 0; i < told; i++)
			if (recv(s[events[i].data.fd], &byte, 1, MSG_DONTWAIT) != 1)
				die("recv", i);
	}
	/* No room at all. */
	if (send(s[0], &byte, 1, 0) != 1 || recv(s[0], &byte, 1, MSG_PEEK) != 1)
		die("one more", 0);
	told = epoll_wait(set, events + 2, 4, 1000);
	if (told != -1 || errno != EFAULT)
		die("no room", told);
	for (int i = 0; i < CONNECTIONS; i++)
		close(s[i]);
	close(set);
}

/* The second message is bad: one goes, and of the other the caller hears nothing. */
static void messages(void)
{
	char bytes[10] = { 0 };
	struct iovec good = { bytes, 10 }, bad = { before_the_edge(0), 10 };
	struct mmsghdr both[2] = { { .msg_hdr = { .msg_iov = &good, .msg_iovlen = 1 } },
				   { .msg_hdr = { .msg_iov = &bad, .msg_iovlen = 1 } } };
	int s = echoing_peer(), n;

	round_trips(s);
	errno = ENOTTY;
	n = sendmmsg(s, both, 2, 0);
	if (n != 1 || errno != ENOTTY)
		die("sendmmsg", n);
	if (send(s, bytes, 10, 0) != 10)
		die("send", 0);
	char twenty[20];
	if (recv(s, twenty, 20, MSG_PEEK | MSG_WAITALL) != 20)
		die("recv", 0);
	errno = ENOTTY;
	n = recvmmsg(s, both, 2, MSG_DONTWAIT, NULL);
	if (n != 1 || errno != ENOTTY)
		die("recvmmsg", n);
	close(s);
}

int main(void)
{
	events();
	messages();
	puts("all there");
	return 0;
}
