/* A peer that echoes. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static _Noreturn void die(const char *what, long a)
{
	printf("%s: %ld, %s\n", what, a, strerror(errno));
	exit(1);
}

/* A connection to a forked child, which echoes until it ends. */
static int echoing_peer(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd, listener = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	if (fork() == 0) {
		char buffer[4096];
		ssize_t n;

		/* Connections that were made before are not this one's. */
		for (fd = 3; fd < listener; fd++)
			close(fd);
		fd = accept(listener, NULL, NULL);
		close(listener);
		while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0)
			if (send(fd, buffer, n, MSG_NOSIGNAL) != n)
				break;
		_exit(0);
	}
	close(listener);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (void *)&at, sizeof(at)))
		die("connect", 0);
	return fd;
}
