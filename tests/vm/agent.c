// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Runs commands for the lab inside dom0 and the guests. Static; started by init; never leaves the lab,
 * so it asks nobody who he is.
 *
 * A connection is one command: "LENGTH SECONDS\n", LENGTH bytes for sh -c, then the command's input until
 * the peer shuts down. Answered in frames of a type byte and a 32-bit length, little-endian: 1 output,
 * 2 exit status (128 + signal; 124 when SECONDS had passed), the last one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void frame(int to, uint8_t type, const void *data, uint32_t len_bytes)
{
	uint8_t head[5] = { type, len_bytes, len_bytes >> 8, len_bytes >> 16, len_bytes >> 24 };
	const uint8_t *at = data;

	if (send(to, head, 5, MSG_NOSIGNAL | MSG_MORE) != 5)
		return;
	while (len_bytes) {
		ssize_t n = send(to, at, len_bytes, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		at += n;
		len_bytes -= n;
	}
}

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static void serve(int peer)
{
	char head[32], buffer[16384], *command;
	size_t at = 0;
	unsigned int len_bytes, seconds;
	int status = 0, output[2];
	uint32_t code;
	pid_t child;

	while (at < sizeof(head) - 1 && read(peer, head + at, 1) == 1 && head[at] != '\n')
		at++;
	head[at] = 0;
	if (sscanf(head, "%u %u", &len_bytes, &seconds) != 2 || len_bytes > 1 << 20)
		return;
	command = calloc(1, len_bytes + 1);
	for (at = 0; at < len_bytes;) {
		ssize_t n = read(peer, command + at, len_bytes - at);

		if (n <= 0)
			return;
		at += n;
	}
	if (pipe(output))
		return;
	child = fork();
	if (child == 0) {
		setsid();
		dup2(peer, 0);
		dup2(output[1], 1);
		dup2(output[1], 2);
		close(peer);
		close(output[0]);
		close(output[1]);
		signal(SIGCHLD, SIG_DFL);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	close(output[1]);

	/* Until the command has ended and its output is read; what it left in the background is not waited for. */
	time_t end = now_s() + seconds;
	int ended = 0, late = 0;

	while (1) {
		struct pollfd waiting = { .fd = output[0], .events = POLLIN };
		int ready = poll(&waiting, 1, ended ? 0 : 50);

		if (ready > 0) {
			ssize_t n = read(output[0], buffer, sizeof(buffer));

			if (n > 0) {
				frame(peer, 1, buffer, n);
				continue;
			}
			if (!ended)
				waitpid(child, &status, 0);
			break;
		}
		if (ended)
			break;
		ended = waitpid(child, &status, WNOHANG) == child;
		if (!ended && now_s() >= end) {
			late = 1;
			kill(-child, SIGKILL);
		}
	}
	code = late ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	frame(peer, 2, &code, 4);
	shutdown(peer, SHUT_WR);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	address.sin_port = htons(argc > 1 ? atoi(argv[1]) : 7000);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 64)) {
		perror("agent");
		return 1;
	}
	while (1) {
		int peer = accept(listener, NULL, NULL);

		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (peer < 0)
			continue;
		if (fork() == 0) {
			close(listener);
			serve(peer);
			_exit(0);
		}
		close(peer);
	}
}
