/*
 * What a receive that waits comes to: with each set of flags, with none or some of its bytes there, by
 * each thing that can happen while it waits.
 *
 *   receives          prints a line for each case
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sleeper.h"

enum event {
	MORE, FIN, RESET, TIME, SIGNAL, RESTARTING_SIGNAL, SHUT_DOWN, MORE_AND_FIN, MORE_AND_RESET, MORE_AND_SIGNAL, EVENTS
};

static const char *names[] = {
	"more", "FIN", "a reset", "the time", "a signal", "a restarting signal", "shut down", "more and FIN",
	"more and a reset", "more and a signal",
};

enum { WARM = 60, LEN = 20, ROOM = 64 };

static int s, peer;
static pthread_t waiter;

static void handler(int signal)
{
	(void)signal;
}

static void sends(const char *bytes)
{
	if (send(peer, bytes, strlen(bytes), MSG_NOSIGNAL) != (ssize_t)strlen(bytes))
		die("send", 0);
	until_it_sleeps();
}

static void resets(void)
{
	struct linger none = { .l_onoff = 1 };

	setsockopt(peer, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(peer);
	peer = -1;
}

static void *happens(void *event)
{
	until_it_sleeps();
	switch ((enum event)(long)event) {
	case MORE:
		sends("fghijklmnopqrst");
		break;
	case RESET:
		resets();
		break;
	case SIGNAL:
	case RESTARTING_SIGNAL:
		pthread_kill(waiter, SIGUSR1);
		until_it_sleeps();
		sends("fghijklmnopqrst");
		break;
	case SHUT_DOWN:
		shutdown(s, SHUT_RD);
		break;
	case MORE_AND_FIN:
		sends("fgh");
		break;
	case MORE_AND_RESET:
		sends("fgh");
		resets();
		break;
	case MORE_AND_SIGNAL:
		sends("fgh");
		pthread_kill(waiter, SIGUSR1);
		until_it_sleeps();
		sends("ijklmnopqrst");
		break;
	case TIME:
		/* The call has 50 ms. */
		usleep(100000);
		break;
	default:
		break;
	}
	until_it_sleeps();
	if (peer >= 0)
		shutdown(peer, SHUT_WR);
	return NULL;
}

static void connects(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	char bytes[LEN] = { 0 };

	if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (void *)&at, sizeof(at)))
		die("connect", 0);
	peer = accept(listener, NULL, NULL);
	close(listener);
	setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int i = 0; i < WARM; i++)
		if (send(s, bytes, LEN, 0) != LEN || recv(peer, bytes, LEN, MSG_WAITALL) != LEN ||
		    send(peer, bytes, LEN, 0) != LEN || recv(s, bytes, LEN, MSG_WAITALL) != LEN)
			die("warm", i);
}

/* Twenty bytes are asked for in two pieces. */
static void receive(enum event event, int flags, int there, int low_water)
{
	char bytes[ROOM] = { 0 }, rest[ROOM] = { 0 };
	struct iovec pieces[2] = { { bytes, 3 }, { bytes + 3, LEN - 3 } };
	struct msghdr msg = { .msg_iov = pieces, .msg_iovlen = 2 };
	struct timeval time = { .tv_usec = 50000 };
	struct sigaction action = { .sa_handler = handler,
				    .sa_flags = event == RESTARTING_SIGNAL ? SA_RESTART : 0 };
	int error, length = 0;
	pthread_t thread;
	ssize_t n, more;

	connects();
	if (there && send(peer, "abcde", there, 0) != there)
		die("send", there);
	if (event == TIME)
		setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
	if (low_water)
		setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof(low_water));
	sigaction(SIGUSR1, &action, NULL);
	waiter = pthread_self();
	waiter_tid = syscall(SYS_gettid);
	pthread_create(&thread, NULL, happens, (void *)(long)event);
	n = recvmsg(s, &msg, flags);
	error = n < 0 ? errno : 0;
	pthread_join(thread, NULL);
	while ((more = recv(s, rest + length, ROOM - 1 - length, MSG_DONTWAIT)) > 0)
		length += more;
	printf("%s, flags %x, %d there, low water %d: %zd '%s', %s; then '%s', %s\n", names[event], flags, there,
	       low_water, n, bytes, error ? strerrorname_np(error) : "fine", rest,
	       more ? strerrorname_np(errno) : "the end");
	close(s);
	if (peer >= 0)
		close(peer);
}

int main(void)
{
	static const int flags[] = { MSG_WAITALL, MSG_PEEK, MSG_TRUNC };

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (enum event event = MORE; event < EVENTS; event++)
		for (int set = 0; set < 8; set++)
			for (int there = 0; there <= 5; there += 5)
				for (int low_water = 0; low_water <= 8; low_water += 8)
					receive(event, (set & 1 ? flags[0] : 0) | (set & 2 ? flags[1] : 0) |
							       (set & 4 ? flags[2] : 0),
						there, low_water);
	return 0;
}
