/*
 * One receive takes what one send sent: TCP on loopback shows it as a whole, and programs rely on it.
 *
 *   whole
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM = 200, TRIPS = 100, MOST = 65536 };

static const int sizes[] = { 900, 1100, 2000, 4000, 5000, 9000, 15000, 17000, 30000 };
static char bytes[MOST];

static _Noreturn void die(const char *what, long a)
{
	printf("%s: %ld, %s\n", what, a, strerror(errno));
	exit(1);
}

/* The other process: says with a byte each how much it got. */
static void answers(int fd, int size)
{
	for (int i = 0; i < WARM + TRIPS; i++) {
		int wanted = i < WARM ? 1 : size;
		ssize_t n = recv(fd, bytes, MOST, 0);

		if (n != wanted) {
			printf("%zd of %d bytes, of message %d\n", n, wanted, i - WARM);
			exit(1);
		}
		if (send(fd, bytes, 1, 0) != 1)
			die("answer", i);
	}
	exit(0);
}

static void asks(int size)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, status, fd;

	if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	if (!fork())
		answers(accept(listener, NULL, NULL), size);
	close(listener);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (void *)&at, sizeof(at)))
		die("connect", 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int i = 0; i < WARM + TRIPS; i++) {
		int wanted = i < WARM ? 1 : size;

		if (send(fd, bytes, wanted, MSG_NOSIGNAL) != wanted || recv(fd, bytes, 1, 0) != 1)
			break;
	}
	wait(&status);
	if (status)
		exit(1);
	close(fd);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		asks(sizes[i]);
	puts("all there");
	return 0;
}
