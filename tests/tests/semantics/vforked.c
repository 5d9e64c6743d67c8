/*
 * A child that borrows its parent's memory puts other files at the numbers of the parent's connections, and
 * becomes another program. The parent goes on with all of them.
 *
 *   vforked onto      one connection at the number of another
 *   vforked swap      each at the other's number
 *   vforked lowest    the number is closed, and dup takes it
 *   vforked null      a file at the number
 */
#define _GNU_SOURCE
#include "peer.h"
#include <fcntl.h>
#include <sys/wait.h>

enum { ROUNDS = 10, TRIPS = 500 };

static void trips(int fd, int count)
{
	while (count-- > 0) {
		unsigned char sent[64], got[64];

		memset(sent, count, sizeof(sent));
		if (send(fd, sent, sizeof(sent), MSG_NOSIGNAL) != sizeof(sent))
			die("send", count);
		if (recv(fd, got, sizeof(got), MSG_WAITALL) != sizeof(got) || memcmp(sent, got, sizeof(got)))
			die("echo", count);
	}
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "onto";

	for (int i = 0; i < ROUNDS; i++) {
		int status, one = echoing_peer(), other = echoing_peer();
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		pid_t pid;

		trips(one, TRIPS);
		trips(other, TRIPS);
		if (i % 2) {
			fcntl(one, F_SETFD, FD_CLOEXEC);
			fcntl(other, F_SETFD, FD_CLOEXEC);
		}
		pid = vfork();
		if (pid == 0) {
			if (!strcmp(way, "onto")) {
				dup2(one, other);
			} else if (!strcmp(way, "swap")) {
				dup2(one, 50);
				dup2(other, one);
				dup2(50, other);
			} else if (!strcmp(way, "lowest")) {
				close(one);
				dup(other);
			} else {
				dup2(null, one);
			}
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			die("child", status);
		trips(other, TRIPS);
		trips(one, TRIPS);
		close(one);
		close(other);
		close(null);
	}
	puts("all there");
	return 0;
}
