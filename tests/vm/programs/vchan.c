// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Xen's own library for shared rings between guests, for comparison.
 *
 *   vchan listen PEER-DOMID RING_BYTES
 *   vchan connect PEER-DOMID CHUNK_BYTES STREAM_BYTES ECHOES [WARM_UP]
 *
 * The connector says what follows: STREAM_BYTES in chunks, then one byte back; or ECHOES messages of a chunk
 * there and back, after WARM_UP that
 * are not timed, and before one more. Prints nanoseconds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <libxenvchan.h>

struct plan {
	uint64_t chunk_bytes, stream_bytes, echoes, warm_up;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void all(struct libxenvchan *channel, void *data, size_t len, int sending)
{
	uint8_t *at = data;

	while (len) {
		int n = sending ? libxenvchan_write(channel, at, len) : libxenvchan_read(channel, at, len);

		if (n <= 0) {
			fprintf(stderr, "vchan: ended\n");
			exit(1);
		}
		at += n;
		len -= n;
	}
}

int main(int argc, char **argv)
{
	struct libxenvchan *channel = NULL;
	struct plan plan;
	uint64_t started, taken_ns = 0;
	uint8_t *data, byte = 0;
	char path[64];
	int listens, tries;

	if (argc < 4)
		return 2;
	listens = !strcmp(argv[1], "listen");
	if (listens) {
		channel = libxenvchan_server_init(NULL, atoi(argv[2]), "data/vchan", atoi(argv[3]), atoi(argv[3]));
		if (channel)
			printf("listening\n");
		fflush(stdout);
	} else {
		snprintf(path, sizeof(path), "/local/domain/%s/data/vchan", argv[2]);
		for (tries = 0; tries < 100 && !channel; tries++) {
			channel = libxenvchan_client_init(NULL, atoi(argv[2]), path);
			if (!channel)
				usleep(10000);
		}
		plan = (struct plan){ atoll(argv[3]), atoll(argv[4]), atoll(argv[5]), argc > 6 ? atoll(argv[6]) : 0 };
	}
	if (!channel) {
		perror("vchan");
		return 1;
	}
	channel->blocking = 1;
	all(channel, &plan, sizeof(plan), !listens);
	data = malloc(plan.chunk_bytes);
	memset(data, 1, plan.chunk_bytes);
	/* Both have their buffers. */
	all(channel, &byte, 1, listens);
	started = now_ns();
	for (uint64_t i = 0; plan.echoes && i <= plan.echoes + plan.warm_up; i++) {
		if (i == plan.warm_up)
			started = now_ns();
		if (i == plan.warm_up + plan.echoes)
			taken_ns = now_ns() - started;
		all(channel, data, plan.chunk_bytes, !listens);
		all(channel, data, plan.chunk_bytes, listens);
	}
	if (!plan.echoes) {
		for (uint64_t done = 0; done < plan.stream_bytes; done += plan.chunk_bytes)
			all(channel, data, plan.chunk_bytes, !listens);
		all(channel, &byte, 1, listens);
		taken_ns = now_ns() - started;
	}
	printf("vchan ns %llu\n", (unsigned long long)taken_ns);
	/* The connector looks at its clock before this end is taken down. */
	if (listens)
		usleep(10000);
	libxenvchan_close(channel);
	return 0;
}
