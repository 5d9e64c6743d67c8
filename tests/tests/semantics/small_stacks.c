/*
 * A thread with the smallest stack that pthread_attr_setstacksize allows uses a connection in every way:
 * the library's calls fit where libc's do.
 *
 *   small_stacks
 */
#define _GNU_SOURCE
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>

#include "peer.h"

enum { TRIPS = 3000, BYTES = 64, OWN_BYTES = 6000 };

static int s, set;

static int waits(int how)
{
	struct pollfd one = { .fd = s, .events = POLLIN };
	struct epoll_event event;
	fd_set read;

	switch (how) {
	case 0:
		return poll(&one, 1, -1);
	case 1:
		FD_ZERO(&read);
		FD_SET(s, &read);
		return select(s + 1, &read, NULL, NULL, NULL);
	case 2:
		return epoll_wait(set, &event, 1, -1);
	default:
		return 1;
	}
}

static void *talk(void *unused)
{
	char sent[BYTES], got[BYTES];
	struct iovec out = { sent, BYTES }, in = { got, BYTES };
	struct msghdr message = { .msg_iov = &in, .msg_iovlen = 1 };
	volatile char own[OWN_BYTES];
	ssize_t n;

	memset((char *)own, 1, OWN_BYTES);
	for (int trip = 0; trip < TRIPS; trip++) {
		memset(sent, trip, BYTES);
		n = trip % 2 ? writev(s, &out, 1) : send(s, sent, BYTES, MSG_NOSIGNAL);
		if (n != BYTES || waits(trip % 4) != 1)
			die("send", trip);
		n = trip % 3 ? recvmsg(s, &message, MSG_WAITALL) : recv(s, got, BYTES, MSG_WAITALL);
		if (n != BYTES || memcmp(sent, got, BYTES))
			die("recv", trip);
	}
	return unused;
}

int main(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	pthread_attr_t attributes;
	pthread_t thread;

	s = echoing_peer();
	set = epoll_create1(0);
	if (epoll_ctl(set, EPOLL_CTL_ADD, s, &event))
		die("epoll_ctl", 0);
	pthread_attr_init(&attributes);
	if (pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) ||
	    pthread_create(&thread, &attributes, talk, NULL))
		die("thread", 0);
	pthread_join(thread, NULL);
	puts("all there");
	return 0;
}
