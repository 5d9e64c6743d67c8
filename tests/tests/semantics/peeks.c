/*
 * A peek that waits for more than there is: MSG_PEEK with MSG_WAITALL, or SO_RCVLOWAT.
 *
 *   peeks          prints a line for each way it ends
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/uio.h>

#include "peer.h"

static int s;
static pthread_t waiter;

enum how { MORE, IN_TWO, END, TIME, SIGNAL, HOWS };
static const char *names[] = { "more", "in two", "the end", "the time", "a signal" };

static void *later(void *how)
{
	usleep(100000);
	switch ((enum how)(long)how) {
	case MORE:
		send(s, "fghijklmnopqrst", 15, 0);
		break;
	case IN_TWO:
		send(s, "fgh", 3, 0);
		usleep(100000);
		send(s, "ijklmnopqrst", 12, 0);
		break;
	case END:
		send(s, "fgh", 3, 0);
		shutdown(s, SHUT_WR);
		break;
	case SIGNAL:
		pthread_kill(waiter, SIGUSR1);
		break;
	default:
		break;
	}
	return NULL;
}

static void handler(int signal)
{
	(void)signal;
}

/* `wanted` of the 20 bytes; 5 are there. In one piece, or in two. */
static void peek(enum how how, int flags, size_t wanted, int low_water, int two)
{
	char bytes[21] = { 0 }, again[21] = { 0 };
	struct iovec parts[2] = { { bytes, two ? 3 : wanted }, { bytes + 3, wanted - 3 } };
	struct msghdr msg = { .msg_iov = parts, .msg_iovlen = two ? 2 : 1 };
	struct timeval time = { .tv_usec = 200000 };
	pthread_t thread;
	ssize_t n, rest;
	int error;

	s = echoing_peer();
	for (int i = 0; i < 50; i++)
		if (send(s, bytes, 20, 0) != 20 || recv(s, bytes, 20, MSG_WAITALL) != 20)
			die("warm", i);
	memset(bytes, 0, sizeof(bytes));
	if (how == TIME)
		setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
	if (send(s, "abcde", 5, 0) != 5 || recv(s, bytes, 5, MSG_PEEK) < 1)
		die("send", 0);
	if (low_water)
		setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof(low_water));
	waiter = pthread_self();
	pthread_create(&thread, NULL, later, (void *)(long)how);
	n = recvmsg(s, &msg, MSG_PEEK | flags);
	error = n < 0 ? errno : 0;
	pthread_join(thread, NULL);
	if (how == TIME || how == SIGNAL)
		send(s, "fghijklmnopqrst", 15, 0);
	for (size_t want = how == END ? 8 : 20, got = 0; got < want; got += rest) {
		rest = recv(s, again + got, want - got, 0);
		if (rest <= 0)
			die("the rest", got);
	}
	printf("%s, flags %x, %zu, low water %d, two %d: %zd %s %d, then %s\n", names[how], flags, wanted,
	       low_water, two, n, bytes, error, again);
	close(s);
}

int main(void)
{
	struct sigaction action = { .sa_handler = handler };

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGUSR1, &action, NULL);
	for (enum how how = MORE; how < HOWS; how++)
		for (int two = 0; two < 2; two++) {
			peek(how, MSG_WAITALL, 20, 0, two);
			peek(how, MSG_WAITALL | MSG_DONTWAIT, 20, 0, two);
			peek(how, 0, 20, 8, two);
			peek(how, 0, 20, 0, two);
			peek(how, MSG_WAITALL, 4, 0, two);
		}
	return 0;
}
