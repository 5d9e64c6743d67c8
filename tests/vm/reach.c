// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * reach ADDRESS COMMAND: runs a shell command in another domain of the lab, through the agent there (agent.c
 * says how they speak). Its output is written to ours, and its exit status is ours.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 7000, SECONDS = 3600, LOST = 255 };

static int get(int from, void *data, size_t len_bytes)
{
	for (size_t at = 0; at < len_bytes;) {
		ssize_t n = read(from, (char *)data + at, len_bytes - at);

		if (n <= 0)
			return 0;
		at += n;
	}
	return 1;
}

static int put(int to, const void *data, size_t len_bytes)
{
	for (size_t at = 0; at < len_bytes;) {
		ssize_t n = write(to, (const char *)data + at, len_bytes - at);

		if (n <= 0)
			return 0;
		at += n;
	}
	return 1;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int agent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char head[32], part[4096];
	uint8_t type[5];

	if (argc != 3 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: reach ADDRESS COMMAND\n");
		return LOST;
	}
	if (connect(agent, (struct sockaddr *)&address, sizeof(address))) {
		perror(argv[1]);
		return LOST;
	}
	snprintf(head, sizeof(head), "%zu %d\n", strlen(argv[2]), SECONDS);
	if (!put(agent, head, strlen(head)) || !put(agent, argv[2], strlen(argv[2])))
		return LOST;
	shutdown(agent, SHUT_WR);
	while (get(agent, type, sizeof(type))) {
		uint32_t len_bytes = type[1] | type[2] << 8 | type[3] << 16 | (uint32_t)type[4] << 24;

		if (type[0] == 2) {
			uint8_t code[4];

			return get(agent, code, sizeof(code)) ? code[0] : LOST;
		}
		while (len_bytes) {
			uint32_t most = len_bytes < sizeof(part) ? len_bytes : sizeof(part);

			if (!get(agent, part, most) || !put(1, part, most))
				return LOST;
			len_bytes -= most;
		}
	}
	fprintf(stderr, "%s: its agent went away\n", argv[1]);
	return LOST;
}
