/*
 * What a send that waits for room comes to: with each set of flags, where there was room or none, by each
 * thing that can happen while it waits.
 *
 *   sends          prints a line for each case
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

enum event { READ, FIN, RESET, CLOSE, TIME, SIGNAL, RESTARTING_SIGNAL, SHUT_DOWN, READ_AND_SIGNAL, EVENTS };

static const char *names[] = {
	"the peer reads", "FIN", "a reset", "the peer closes", "the time", "a signal", "a restarting signal", "shut down",
	"the peer reads, and a signal",
};

enum { WARM = 60, LEN = 20, MUCH = 8 << 20 };

static int s, peer;
static unsigned pipes;
static pthread_t waiter;
static char bytes[MUCH], got[MUCH];
static size_t received;

static void handler(int signal)
{
	if (signal == SIGPIPE)
		pipes++;
}

static void reads(size_t most)
{
	while (received < most) {
		ssize_t n = recv(peer, got + received, most - received, 0);

		if (n <= 0)
			break;
		received += n;
	}
}

static void closes(int with_reset)
{
	struct linger none = { .l_onoff = 1 };

	if (with_reset)
		setsockopt(peer, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(peer);
	peer = -1;
}

static void *happens(void *event)
{
	until_it_sleeps();
	switch ((enum event)(long)event) {
	case FIN:
		shutdown(peer, SHUT_WR);
		break;
	case RESET:
		closes(1);
		break;
	case CLOSE:
		closes(0);
		break;
	case SIGNAL:
	case RESTARTING_SIGNAL:
		pthread_kill(waiter, SIGUSR1);
		break;
	case SHUT_DOWN:
		shutdown(s, SHUT_WR);
		break;
	case READ_AND_SIGNAL:
		reads(300000);
		until_it_sleeps();
		pthread_kill(waiter, SIGUSR1);
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
		reads(MUCH);
	return NULL;
}

static void connects(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, small = 65536;
	char byte[LEN] = { 0 };

	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	s = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	if (connect(s, (void *)&at, sizeof(at)))
		die("connect", 0);
	peer = accept(listener, NULL, NULL);
	close(listener);
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int i = 0; i < WARM; i++)
		if (send(s, byte, LEN, 0) != LEN || recv(peer, byte, LEN, MSG_WAITALL) != LEN ||
		    send(peer, byte, LEN, 0) != LEN || recv(s, byte, LEN, MSG_WAITALL) != LEN)
			die("warm", i);
}

static const char *amount(ssize_t n, size_t whole)
{
	return n < 0 ? "none" : n == 0 ? "zero" : (size_t)n == whole ? "all" : "some";
}

static void sends(enum event event, int flags, int is_full, int in_pieces)
{
	struct timeval time = { .tv_usec = 50000 };
	struct sigaction action = { .sa_handler = handler,
				    .sa_flags = event == RESTARTING_SIGNAL ? SA_RESTART : 0 };
	size_t there = 0, len = MUCH / 2;
	pthread_t thread;
	int error, error_after = 0;
	socklen_t size = sizeof(error_after);
	ssize_t n, after;

	connects();
	received = 0;
	pipes = 0;
	/* Until no byte more fits for a while. */
	for (int quiet = 0; is_full && quiet < 10;) {
		ssize_t more = send(s, bytes + there, MUCH / 4 - there, MSG_DONTWAIT);

		there += more > 0 ? more : 0;
		quiet = more > 0 ? 0 : quiet + 1;
		usleep(2000);
	}
	if (event == TIME)
		setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGPIPE, &action, NULL);
	waiter = pthread_self();
	waiter_tid = syscall(SYS_gettid);
	pthread_create(&thread, NULL, happens, (void *)(long)event);
	if (in_pieces) {
		struct iovec pieces[2] = { { bytes + there, 1000 }, { bytes + there + 1000, len - 1000 } };
		struct msghdr msg = { .msg_iov = pieces, .msg_iovlen = 2 };

		n = sendmsg(s, &msg, flags);
	} else {
		n = send(s, bytes + there, len, flags);
	}
	error = n < 0 ? errno : 0;
	shutdown(s, SHUT_WR);
	pthread_join(thread, NULL);
	getsockopt(s, SOL_SOCKET, SO_ERROR, &error_after, &size);
	after = send(s, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (peer >= 0 && (received != there + (n > 0 ? n : 0) || memcmp(bytes, got, received)))
		printf("%zu of %zd bytes arrived; ", received, there + (n > 0 ? n : 0));
	printf("%s, flags %x, full %d, in pieces %d: %s, %s, %u SIGPIPE; SO_ERROR %d, then %s\n", names[event], flags,
	       is_full, in_pieces, amount(n, len), error ? strerrorname_np(error) : "fine", pipes, error_after,
	       after < 0 ? strerrorname_np(errno) : "sent");
	close(s);
	if (peer >= 0)
		close(peer);
}

int main(void)
{
	static const int flags[] = { 0, MSG_NOSIGNAL, MSG_DONTWAIT, MSG_MORE };

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < MUCH; i++)
		bytes[i] = i * 167 + (i >> 8) * 13 + (i >> 16);
	for (enum event event = READ; event < EVENTS; event++)
		for (int which = 0; which < 4; which++)
			for (int is_full = 0; is_full < 2; is_full++)
				for (int in_pieces = 0; in_pieces < 2; in_pieces++)
					sends(event, flags[which], is_full, in_pieces);
	return 0;
}
