// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Checked bytes over TCP, both ways at once, by threads of one process (flow.c forks).
 *
 *   stream listen PORT [-n CONNECTIONS]
 *   stream connect ADDRESS PORT [-n CONNECTIONS] [-s BYTES] [-r BYTES] [-e ECHOES] [-c CHUNK]
 *
 * On each of CONNECTIONS at once -s bytes go there and -r back; or ECHOES messages of CHUNK bytes go there and
 * back, one at a time. Each side checks every byte, and that the other ends exactly there. Exits with 1 at the
 * first that is wrong.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (64 << 10)

struct header {
	uint64_t seed, there_bytes, back_bytes, echoes, chunk_bytes;
};

struct half {
	int fd;
	uint64_t seed, bytes;
	pthread_t thread;
};

static void wrong(const char *what, uint64_t at)
{
	fprintf(stderr, "stream: %s at byte %llu: %s\n", what, (unsigned long long)at, strerror(errno));
	exit(1);
}

static void fill(char *to, uint64_t seed, uint64_t at, size_t bytes)
{
	while (bytes) {
		uint64_t word = (at / 8 + 1) * 0x9e3779b97f4a7c15ull ^ seed, skip = at % 8;
		size_t count = 8 - skip < bytes ? 8 - skip : bytes;

		memcpy(to, (char *)&word + skip, count);
		to += count;
		at += count;
		bytes -= count;
	}
}

static void *send_all(void *argument)
{
	struct half *half = argument;
	char *buffer = malloc(BUFFER);
	uint64_t at = 0;

	while (at < half->bytes) {
		/* Pieces of all sizes. */
		size_t most = 1 + (at / 7 * 2654435761u) % BUFFER;
		size_t bytes = half->bytes - at < most ? half->bytes - at : most;
		size_t done = 0;

		fill(buffer, half->seed, at, bytes);
		while (done < bytes) {
			ssize_t n = send(half->fd, buffer + done, bytes - done, MSG_NOSIGNAL);

			if (n <= 0)
				wrong("send", at + done);
			done += n;
		}
		at += bytes;
	}
	shutdown(half->fd, SHUT_WR);
	free(buffer);
	return NULL;
}

static void *receive_all(void *argument)
{
	struct half *half = argument;
	char *buffer = malloc(BUFFER), *wanted = malloc(BUFFER);
	uint64_t at = 0;

	while (1) {
		ssize_t n = recv(half->fd, buffer, BUFFER, 0);

		if (n < 0)
			wrong("recv", at);
		if (n == 0)
			break;
		fill(wanted, half->seed, at, n);
		if (at + n > half->bytes || memcmp(buffer, wanted, n))
			wrong("wrong bytes", at);
		at += n;
	}
	if (at != half->bytes)
		wrong("an early end", at);
	free(buffer);
	free(wanted);
	return NULL;
}

static void exactly(int fd, void *to, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = recv(fd, (char *)to + done, bytes - done, 0);

		if (n <= 0)
			wrong("recv", done);
		done += n;
	}
}

static void echo(int fd, const struct header *header, int asks)
{
	char *buffer = malloc(header->chunk_bytes), *wanted = malloc(header->chunk_bytes);
	uint64_t i;

	for (i = 0; i < header->echoes; i++) {
		fill(wanted, header->seed, i, header->chunk_bytes);
		if (asks && send(fd, wanted, header->chunk_bytes, MSG_NOSIGNAL) != (ssize_t)header->chunk_bytes)
			wrong("send", i);
		exactly(fd, buffer, header->chunk_bytes);
		if (memcmp(buffer, wanted, header->chunk_bytes))
			wrong("a wrong echo", i);
		if (!asks && send(fd, buffer, header->chunk_bytes, MSG_NOSIGNAL) != (ssize_t)header->chunk_bytes)
			wrong("send", i);
	}
	free(buffer);
	free(wanted);
}

static void *serve(void *argument)
{
	int fd = (int)(intptr_t)argument;
	struct header header;

	exactly(fd, &header, sizeof(header));
	if (header.echoes) {
		echo(fd, &header, 0);
	} else {
		struct half out = { .fd = fd, .seed = ~header.seed, .bytes = header.back_bytes };
		struct half in = { .fd = fd, .seed = header.seed, .bytes = header.there_bytes };

		pthread_create(&out.thread, NULL, send_all, &out);
		receive_all(&in);
		pthread_join(out.thread, NULL);
	}
	close(fd);
	return NULL;
}

static struct header ordered;
static struct sockaddr_in address = { .sin_family = AF_INET };

static void *ask(void *argument)
{
	struct header header = ordered;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	header.seed += (uintptr_t)argument * 0x9e3779b9u;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		wrong("connect", 0);
	if (send(fd, &header, sizeof(header), MSG_NOSIGNAL) != sizeof(header))
		wrong("send", 0);
	if (header.echoes) {
		echo(fd, &header, 1);
	} else {
		struct half out = { .fd = fd, .seed = header.seed, .bytes = header.there_bytes };
		struct half in = { .fd = fd, .seed = ~header.seed, .bytes = header.back_bytes };

		pthread_create(&out.thread, NULL, send_all, &out);
		receive_all(&in);
		pthread_join(out.thread, NULL);
	}
	close(fd);
	return NULL;
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	int listens = argc > 2 && !strcmp(argv[1], "listen"), at = listens ? 3 : 4, connections = 1, i;
	pthread_t threads[256];
	double begin = now_s();

	if (argc < at)
		wrong("stream listen PORT | stream connect ADDRESS PORT", 0);
	ordered.seed = 1;
	ordered.chunk_bytes = 1;
	for (; at + 1 < argc; at += 2) {
		uint64_t value = strtoull(argv[at + 1], NULL, 0);

		switch (argv[at][1]) {
		case 'n': connections = value; break;
		case 's': ordered.there_bytes = value; break;
		case 'r': ordered.back_bytes = value; break;
		case 'e': ordered.echoes = value; break;
		case 'c': ordered.chunk_bytes = value; break;
		default: wrong(argv[at], 0);
		}
	}
	if (connections < 1 || connections > 256)
		wrong("-n", connections);
	address.sin_port = htons(atoi(argv[listens ? 2 : 3]));
	if (listens) {
		int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 256))
			wrong("listen", 0);
		for (i = 0; i < connections; i++)
			pthread_create(&threads[i], NULL, serve, (void *)(intptr_t)accept(listener, NULL, NULL));
	} else {
		inet_pton(AF_INET, argv[2], &address.sin_addr);
		for (i = 0; i < connections; i++)
			pthread_create(&threads[i], NULL, ask, (void *)(intptr_t)i);
	}
	for (i = 0; i < connections; i++)
		pthread_join(threads[i], NULL);
	printf("%d connections in %.3f s", connections, now_s() - begin);
	if (ordered.echoes)
		printf(", %.1f us an echo", (now_s() - begin) * 1e6 / ordered.echoes);
	puts("");
	return 0;
}
