/* A connection that was busy talks seldom, and then much again: it has a channel, gives it back, and gets another
   one. Every byte is compared. How the other end waits is the first word: recv, poll, epoll or nonblocking; or peek,
   for all that a message has, which comes in two halves; or copies, where both ends send by a copy of the number. With a second word it stops once the channel is given back, once
   a copy of it was closed, and once it has closed its connection: it says so, and goes on when it is told to. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

#include "pair.h"

enum { MESSAGE = 64 };

static const char *how;

static void awaits(int fd, int set)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };
	struct epoll_event event;

	if (!strcmp(how, "poll") && poll(&one, 1, -1) != 1)
		die("poll", 0);
	if (set >= 0 && epoll_wait(set, &event, 1, -1) != 1)
		die("epoll_wait", 0);
}

static int sends_by(int fd)
{
	return strcmp(how, "copies") ? fd : dup(fd);
}

/* Sends back whatever comes. */
static void *echoes(void *at)
{
	int fd = *(int *)at, out = sends_by(fd), set = -1;
	struct epoll_event event = { .events = EPOLLIN };
	char bytes[4096];
	ssize_t len = 1;

	if (!strcmp(how, "epoll") || !strcmp(how, "nonblocking")) {
		set = epoll_create1(0);
		if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
			die("epoll_ctl", 0);
	}
	if (!strcmp(how, "nonblocking"))
		fcntl(fd, F_SETFL, O_NONBLOCK);
	while (len) {
		awaits(fd, set);
		if (!strcmp(how, "peek"))
			recv(fd, bytes, MESSAGE, MSG_PEEK | MSG_WAITALL);
		len = recv(fd, bytes, sizeof(bytes), 0);
		if (len < 0 && errno == EAGAIN)
			continue;
		if (len < 0 || (len && send(out, bytes, len, 0) != len))
			die("echo", len);
	}
	if (out != fd)
		close(out);
	return NULL;
}

static void trip(int fd, int out, unsigned number, unsigned nap_us)
{
	enum { WORDS = MESSAGE / sizeof(unsigned) };
	unsigned sent[WORDS], got[WORDS];
	int first = strcmp(how, "peek") ? 0 : MESSAGE / 2;

	for (int i = 0; i < WORDS; i++)
		sent[i] = number * WORDS + i;
	if (first && send(out, sent, first, 0) != first)
		die("send", number);
	if (first)
		usleep(nap_us);
	if (send(out, (char *)sent + first, MESSAGE - first, 0) != MESSAGE - first)
		die("send", number);
	if (recv(fd, got, sizeof(got), MSG_WAITALL) != sizeof(got) || memcmp(sent, got, sizeof(sent)))
		die("recv", number);
}

/* Trips until `count` ends here have a ring, so many microseconds one after the other; where the library is not, a few. */
static unsigned talks_at(int fd, int out, unsigned number, unsigned nap_us, int count)
{
	enum { TRIPS = 20, MOST = 20000 };

	for (int i = 0; i < MOST; i++) {
		int is_done = getenv("LD_PRELOAD") ? i % TRIPS == 0 && rings() == count : i == TRIPS;

		if (is_done)
			return number;
		trip(fd, out, number++, nap_us);
		usleep(nap_us);
	}
	die("rings", rings());
}

/* A copy of it comes and goes at the number at which another connection, which lives, got its channel. */
static void copies(int fd)
{
	int others[2], moved;

	connects(others);
	talks_until(others, 2);
	moved = dup(others[0]);
	close(others[0]);
	if (dup2(fd, others[0]) != others[0])
		die("dup2", 0);
	close(others[0]);
	halts("copied");
	close(moved);
	close(others[1]);
}

int main(int argc, char **argv)
{
	enum { ROUNDS = 3, SELDOM_US = 1000 };
	int stops = argc > 2, rounds = stops ? 1 : ROUNDS;
	pthread_t thread;
	unsigned number = 0;
	int ends[2], out;

	how = argv[1];
	opens(ends);
	out = sends_by(ends[0]);
	pthread_create(&thread, NULL, echoes, &ends[1]);
	for (int round = 0; round < rounds; round++) {
		number = talks_at(ends[0], out, number, 0, 2);
		number = talks_at(ends[0], out, number, SELDOM_US, 0);
	}
	if (stops) {
		halts("given back");
		copies(ends[0]);
	}
	shutdown(ends[0], SHUT_WR);
	pthread_join(thread, NULL);
	close(ends[0]);
	close(ends[1]);
	if (out != ends[0])
		close(out);
	if (stops)
		halts("closed");
	printf("all there\n");
	return 0;
}
