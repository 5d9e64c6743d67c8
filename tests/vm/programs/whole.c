// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A message whose sender gives up leaves nothing behind.
 *
 *   whole listen PORT
 *   whole connect CID PORT
 *
 * The connector fills the ring with messages of 10000 bytes, waits in vain for room for one of 20000, gives
 * up and shuts down; only then the acceptor reads. Both print how many messages there were.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <linux/vm_sockets.h>

#define SMALL 10000
#define LARGE 20000

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int acceptor(struct sockaddr_vm *address, char *data)
{
	int listener = socket(AF_VSOCK, SOCK_SEQPACKET, 0), fd, count = 0;
	struct pollfd wait = { .events = POLLRDHUP };
	ssize_t n;

	if (bind(listener, (void *)address, sizeof(*address)) || listen(listener, 1))
		die("listen");
	printf("listening\n");
	fflush(stdout);
	fd = wait.fd = accept(listener, NULL, NULL);
	if (fd < 0 || poll(&wait, 1, -1) != 1)
		die("accept");
	while ((n = recv(fd, data, LARGE, 0)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			if (n != SMALL || data[i] != 1) {
				fprintf(stderr, "whole: message %d has %zd bytes\n", count, n);
				return 1;
			}
		count++;
	}
	if (n < 0)
		die("recv");
	printf("messages %d\n", count);
	return 0;
}

static int connector(struct sockaddr_vm *address, char *data)
{
	int fd = socket(AF_VSOCK, SOCK_SEQPACKET, 0), count = 0;
	struct timeval patience = { .tv_usec = 50000 };

	if (connect(fd, (void *)address, sizeof(*address)))
		die("connect");
	memset(data, 1, SMALL);
	while (send(fd, data, SMALL, MSG_DONTWAIT) == SMALL)
		count++;
	memset(data, 2, LARGE);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (send(fd, data, LARGE, 0) >= 0) {
		fprintf(stderr, "whole: there was room\n");
		return 1;
	}
	if (shutdown(fd, SHUT_WR))
		die("shutdown");
	printf("messages %d\n", count);
	/* Until the acceptor has read and closed: a close would not wait. */
	return recv(fd, data, 1, 0) != 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_vm address = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY };
	char *data = malloc(LARGE);

	if (argc < 3)
		return 2;
	address.svm_port = atoi(argv[argc - 1]);
	if (!strcmp(argv[1], "listen"))
		return acceptor(&address, data);
	address.svm_cid = atoi(argv[2]);
	return connector(&address, data);
}
