/* A peer ends without closing, with bytes unread: the connection is reset. */
#include "pair.h"

enum { ROUNDS = 200, BYTES = 1000, ARRIVE_US = 50000 };

static _Noreturn void is_a_peer(int listener)
{
	char bytes[BYTES];
	int fd = accept(listener, NULL, NULL);

	close(listener);
	for (int i = 0; i < ROUNDS; i++)
		if (recv(fd, bytes, BYTES, MSG_WAITALL) != BYTES || send(fd, bytes, BYTES, 0) != BYTES)
			_exit(1);
	usleep(ARRIVE_US);
	if (recv(fd, bytes, 1, 0) != 1)
		_exit(1);
	_exit(0);
}

int main(void)
{
	for (int turn = 0; turn < 5; turn++) {
		struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t len = sizeof(at);
		int fd, listener = socket(AF_INET, SOCK_STREAM, 0);
		char bytes[BYTES] = { 0 };

		if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
			die("listen", 0);
		if (fork() == 0)
			is_a_peer(listener);
		close(listener);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (void *)&at, sizeof(at)))
			die("connect", 0);
		for (int i = 0; i < ROUNDS; i++)
			if (send(fd, bytes, BYTES, 0) != BYTES || recv(fd, bytes, BYTES, MSG_WAITALL) != BYTES)
				die("a round trip", i);
		if (send(fd, bytes, BYTES, 0) != BYTES)
			die("send", 0);
		ssize_t got = recv(fd, bytes, BYTES, 0);

		if (got != -1 || errno != ECONNRESET)
			die("no reset", got);
		close(fd);
	}
	puts("all there");
	return 0;
}
