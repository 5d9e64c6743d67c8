/*
 * Several connections with bytes in the ring and others behind them by TCP, and a pipe. Each wait has room for
 * all of them.
 *
 *   crowded           prints a line for each wait: how many events it told of, and whether of the pipe
 */
#include <sys/epoll.h>

#include "pair.h"

enum { CONNECTIONS = 4, EVENTS = CONNECTIONS + 1, MUCH = 900, WAITS = 100 };

int main(void)
{
	static char much[MUCH];
	struct epoll_event event = { .events = EPOLLIN }, told[EVENTS];
	int ends[CONNECTIONS][2], pipes[2], set = epoll_create1(0);

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < CONNECTIONS; i++) {
		connects(ends[i]);
		talks_until(ends[i], 2 * (i + 1));
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
