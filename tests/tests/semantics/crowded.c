/*
 * Several connections with bytes in the ring and others behind them by TCP, and a pipe. Each wait has room for
 * all of them.
 *
 *   crowded           prints a line for each wait: how many events it told of, and whether of the pipe
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 4, EVENTS = CONNECTIONS + 1, WARM = 60, LEN = 64, MUCH = 900, WAITS = 100 };

static _Noreturn void die(const char *what, long a)
{
	printf("%s: %ld, %s\n", what, a, strerror(errno));
	exit(1);
}

static void connects(int ends[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	char bytes[LEN] = { 0 };

	if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(ends[0], (void *)&at, sizeof(at)))
		die("connect", 0);
	ends[1] = accept(listener, NULL, NULL);
	close(listener);
	for (int end = 0; end < 2; end++)
		setsockopt(ends[end], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int i = 0; i < WARM; i++)
		for (int end = 0; end < 2; end++)
			if (send(ends[end], bytes, LEN, 0) != LEN ||
			    recv(ends[!end], bytes, LEN, MSG_WAITALL) != LEN)
				die("warm", i);
}

int main(void)
{
	static char much[MUCH];
	struct epoll_event event = { .events = EPOLLIN }, told[EVENTS];
	int ends[CONNECTIONS][2], pipes[2], set = epoll_create1(0);

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < CONNECTIONS; i++) {
		connects(ends[i]);
		event.data.fd = ends[i][1];
		if (epoll_ctl(set, EPOLL_CTL_ADD, ends[i][1], &event))
			die("epoll_ctl", i);
	}
	/* Two of these are more than a new channel's ring holds, and each of them is not. */
	for (int i = 0; i < 2 * CONNECTIONS; i++)
		if (send(ends[i / 2][0], much, MUCH, 0) != MUCH)
			die("send", i);
	if (pipe(pipes) || write(pipes[1], much, MUCH) != MUCH)
		die("pipe", 0);
	event.data.fd = pipes[0];
	if (epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event))
		die("epoll_ctl", CONNECTIONS);
	for (int i = 0; i < WAITS; i++) {
		int count = epoll_wait(set, told, EVENTS, 1000), pipe_told = 0;
		char byte;

		for (int at = 0; at < count; at++) {
			pipe_told += told[at].data.fd == pipes[0];
			if (read(told[at].data.fd, &byte, 1) != 1)
				die("read", at);
		}
		printf("wait %d: %d, pipe %d\n", i, count, pipe_told);
	}
	return 0;
}
