/*
 * A program that is linked with a liburing (uring_object.c) that it sets up for its files, and talks.
 *
 *   uring refused     it cannot: its connection has a ring
 *   uring allowed     it can, and the library knows nothing of what it asks for there
 */
#include "peer.h"

int io_uring_queue_init_params(unsigned entries, void *ring, void *params);

int main(int argc, char **argv)
{
	char shape[256] = { 0 };
	int fd, ret, is_refused = argc > 1 && !strcmp(argv[1], "refused");

	ret = io_uring_queue_init_params(8, NULL, shape);
	if (is_refused ? ret != -ENOSYS : ret < 0)
		die("set up", ret);
	fd = echoing_peer();
	for (int i = 0; i < 3000; i++) {
		char sent[64], got[64];

		memset(sent, i, sizeof(sent));
		if (send(fd, sent, sizeof(sent), 0) != sizeof(sent))
			die("send", i);
		if (recv(fd, got, sizeof(got), MSG_WAITALL) != sizeof(got) || memcmp(sent, got, sizeof(got)))
			die("echo", i);
	}
	puts("all there");
	return 0;
}
