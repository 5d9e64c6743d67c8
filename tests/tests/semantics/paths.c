/*
 * A connection over a way that remembers connections, and forgets those on which it sees nothing.
 *
 *   paths listen SECONDS
 *   paths connect ADDRESS PORT SECONDS
 *   paths cut ADDRESS PORT SECONDS
 *   paths drain ADDRESS PORT SECONDS
 *
 * So long, both ends exchange messages awake; then one of them sleeps, as bytes by TCP need. To be
 * cut, the connector has a user time-out of two seconds. It says when it may be, goes on, and says
 * how that ended. To drain, it receives awake what the listener sends for some seconds and longer,
 * and says when the way may be cut.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Awake: a receive that does not wait, again and again. */
static int next(int s)
{
	unsigned char c;
	for (;;) {
		ssize_t n = recv(s, &c, 1, MSG_DONTWAIT);
		if (n == 1)
			return c;
		if (n == 0)
			return -1;
		if (errno != EAGAIN)
			die("recv");
		sched_yield();
	}
}

static void put(int s, unsigned char c)
{
	if (send(s, &c, 1, MSG_NOSIGNAL) != 1)
		die("send");
}

/* Until the way is cut, and what the connection ends with. */
static void until_cut(int s)
{
	unsigned char c = 'p';
	printf("cut\n");
	for (;;) {
		if (send(s, &c, 1, MSG_NOSIGNAL) != 1)
			break;
		ssize_t n;
		while ((n = recv(s, &c, 1, MSG_DONTWAIT)) < 0 && errno == EAGAIN)
			sched_yield();
		if (n != 1)
			break;
	}
	printf("%s\n", strerrorname_np(errno));
	exit(0);
}

enum { POURED = 40000, BEFORE_CUT = 1000, NAP_US = 100 };

static void pour(int s)
{
	for (int i = 0; i < POURED; i++) {
		put(s, 'w');
		usleep(NAP_US);
	}
}

static void drain(int s)
{
	put(s, 'd');
	for (int i = 0; i < POURED; i++) {
		if (i == BEFORE_CUT)
			printf("cut\n");
		if (next(s) != 'w')
			die("another byte");
	}
	printf("drained\n");
	exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	struct timeval most = {.tv_sec = 10};
	int s = socket(AF_INET, SOCK_STREAM, 0), c;
	char byte;
	setvbuf(stdout, 0, _IOLBF, 0);
	if (argc == 3) {
		if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 1))
			die("listen");
		getsockname(s, (struct sockaddr *)&at, &len);
		printf("port %d\n", ntohs(at.sin_port));
		int a = accept(s, 0, 0);
		while ((c = next(a)) == 'p')
			put(a, c);
		if (c == 'd')
			pour(a);
		/* The connector sleeps by now. */
		usleep(200000);
		put(a, 'e');
		setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
		if (recv(a, &byte, 1, 0) != 1)
			die("the listener's last recv");
		return 0;
	}
	inet_pton(AF_INET, argv[2], &at.sin_addr);
	at.sin_port = htons(atoi(argv[3]));
	if (connect(s, (struct sockaddr *)&at, sizeof at))
		die("connect");
	int ms = 2000, is_cut = !strcmp(argv[1], "cut");
	if (is_cut && setsockopt(s, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms))
		die("TCP_USER_TIMEOUT");
	for (double end = now() + atof(argv[4]); now() < end;) {
		put(s, 'p');
		if (next(s) != 'p')
			die("another byte");
	}
	if (is_cut)
		until_cut(s);
	if (!strcmp(argv[1], "drain"))
		drain(s);
	put(s, 'e');
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
	if (recv(s, &byte, 1, 0) != 1)
		die("the last recv");
	put(s, 'f');
	printf("arrived\n");
	return 0;
}
