/*
 * Messages of lengths about those at which copies change their way, from and to every place within
 * a cache line and about the ends of a page: each byte is there, and none beside them is touched.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM 40000
#define GUARD 64
static unsigned char sent[ROOM] __attribute__((aligned(4096)));
static unsigned char came[ROOM] __attribute__((aligned(4096)));

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void all(int fd, unsigned char *at, size_t len, int sends)
{
	while (len) {
		ssize_t now = sends ? send(fd, at, len, MSG_NOSIGNAL) : recv(fd, at, len, 0);

		if (now <= 0)
			die(sends ? "send" : "recv");
		at += now;
		len -= now;
	}
}

static void there_and_back(int fd, int other, size_t len, size_t from, size_t to)
{
	static unsigned int seed = 1;

	for (size_t at = 0; at < len; at++)
		sent[from + at] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
	memset(came + to - GUARD, 0x5a, len + 2 * GUARD);
	all(fd, sent + from, len, 1);
	all(other, came + to, len, 0);
	if (memcmp(sent + from, came + to, len)) {
		printf("%zu bytes from %zu to %zu differ\n", len, from, to);
		exit(1);
	}
	for (size_t at = 0; at < GUARD; at++) {
		if (came[to - 1 - at] != 0x5a || came[to + len + at] != 0x5a) {
			printf("beside %zu bytes to %zu something was written\n", len, to);
			exit(1);
		}
	}
}

int main(void)
{
	static const size_t lens[] = { 15, 64, 2047, 2048, 2049, 2063, 2064, 2111, 2112, 2113, 2175, 2176, 4096, 4111, 8192, 30001 };
	static const size_t places[] = { GUARD, GUARD + 1, GUARD + 15, GUARD + 16, GUARD + 17, GUARD + 31, 4032, 4095, 4096, 4097, 4112 };
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t name_len = sizeof(name);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), other;

	if (bind(listener, (struct sockaddr *)&name, sizeof(name)) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&name, &name_len))
		die("listen");
	if (connect(fd, (struct sockaddr *)&name, sizeof(name)))
		die("connect");
	other = accept(listener, NULL, NULL);
	if (other < 0)
		die("accept");
	for (size_t len = 0; len < sizeof(lens) / sizeof(*lens); len++)
		for (size_t from = 0; from < sizeof(places) / sizeof(*places); from++)
			for (size_t to = 0; to < sizeof(places) / sizeof(*places); to++)
				there_and_back(fd, other, lens[len], places[from], places[to]);
	printf("all there\n");
	return 0;
}
