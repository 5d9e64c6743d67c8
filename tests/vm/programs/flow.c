// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Checked data over a connection, TCP or AF_VSOCK, both ways at once.
 *
 *   flow tcp|vsock|vsockseq listen PORT [-n CONNECTIONS]
 *   flow tcp|vsock|vsockseq connect ADDRESS PORT [-n CONNECTIONS] [-p AT_ONCE] [-s BYTES] [-r BYTES]
 *        [-c CHUNK] [-i] [-b BUFFER] [-e ECHOES] [-w WARM_UP] [-q] [-t PORT]
 *
 * The connector sends a header that says what follows and gets a byte when the other is ready for it; then it
 * sends -s bytes, and gets -r bytes; each side checks every byte, and that the other ends exactly there. -i:
 * non-blocking, by poll. -e: instead, so many messages of CHUNK bytes there and back, one at a time; -w before
 * and one after that are not timed. -q: bytes are neither made nor checked. -b sets the vsock buffer size.
 * -t: begins when a datagram comes to this port, so that several guests do at once.
 * Says what it did and how long that took (one connection: from when both were ready); exits with 1 at the
 * first wrong byte.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/vm_sockets.h>

#define MAGIC 0x776f6c662d79ull

struct header {
	uint64_t magic, seed, there_bytes, back_bytes, chunk_bytes, echoes, warm_up, quick, poll;
};

static int family, type = SOCK_STREAM;
/* Where the datagram comes to that says begin; -1: nobody says so. */
static int begin_fd = -1;

static void die(const char *what)
{
	fprintf(stderr, "flow: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void wrong(const char *what, uint64_t at)
{
	fprintf(stderr, "flow: %s at byte %llu\n", what, (unsigned long long)at);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Byte `at` of the stream with this seed. */
static uint8_t pattern(uint64_t seed, uint64_t at)
{
	uint64_t x = (seed + (at >> 3)) * 0x9e3779b97f4a7c15ull;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return x >> (8 * (at & 7));
}

static socklen_t address_of(struct sockaddr_storage *address, const char *host, const char *port)
{
	memset(address, 0, sizeof(*address));
	if (family == AF_INET) {
		struct sockaddr_in *in = (void *)address;

		in->sin_family = AF_INET;
		in->sin_port = htons(atoi(port));
		if (host && !inet_aton(host, &in->sin_addr))
			die(host);
		return sizeof(*in);
	}
	struct sockaddr_vm *vm = (void *)address;

	vm->svm_family = AF_VSOCK;
	vm->svm_port = atoi(port);
	vm->svm_cid = host ? (unsigned int)atoi(host) : VMADDR_CID_ANY;
	return sizeof(*vm);
}

/* One direction's progress. */
struct way {
	uint64_t seed, total_bytes, done_bytes;
	uint8_t *buffer;
	size_t chunk_bytes, filled, sent;
	int ended;
};

/* Sends what one call takes; 1 when all is sent and shut down. */
static int push(int fd, struct way *way, int quick, int flags)
{
	if (way->ended)
		return 1;
	if (way->sent == way->filled && way->done_bytes < way->total_bytes) {
		size_t len = way->total_bytes - way->done_bytes;

		way->filled = len < way->chunk_bytes ? len : way->chunk_bytes;
		way->sent = 0;
		for (size_t i = 0; i < way->filled && !quick; i++)
			way->buffer[i] = pattern(way->seed, way->done_bytes + i);
	}
	if (way->sent < way->filled) {
		ssize_t n = send(fd, way->buffer + way->sent, way->filled - way->sent, MSG_NOSIGNAL | flags);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n < 0)
			die("send");
		way->sent += n;
		way->done_bytes += n;
	}
	if (way->done_bytes == way->total_bytes) {
		if (shutdown(fd, SHUT_WR))
			die("shutdown");
		way->ended = 1;
	}
	return way->ended;
}

/* Receives what one call gives; 1 when the peer has ended where it should. */
static int pull(int fd, struct way *way, int quick, int flags)
{
	if (way->ended)
		return 1;
	ssize_t n = recv(fd, way->buffer, way->chunk_bytes, flags);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		die("recv");
	if (n == 0) {
		if (way->done_bytes != way->total_bytes)
			wrong("ended early", way->done_bytes);
		way->ended = 1;
		return 1;
	}
	for (ssize_t i = 0; i < n && !quick; i++)
		if (way->buffer[i] != pattern(way->seed, way->done_bytes + i))
			wrong("wrong byte", way->done_bytes + i);
	way->done_bytes += n;
	if (way->done_bytes > way->total_bytes)
		wrong("too many bytes", way->done_bytes);
	return 0;
}

static uint8_t *buffer_of(size_t bytes)
{
	uint8_t *buffer = malloc(bytes ? bytes : 1);

	if (!buffer)
		die("malloc");
	memset(buffer, 0x5a, bytes);
	return buffer;
}

static void both_ways(int fd, struct way out, struct way in, const struct header *header, int first)
{
	if (header->poll) {
		while (!out.ended || !in.ended) {
			struct pollfd wait = { .fd = fd };

			wait.events = (out.ended ? 0 : POLLOUT) | (in.ended ? 0 : POLLIN);
			if (poll(&wait, 1, 60000) == 0)
				wrong("nothing for 60 s, received", in.done_bytes);
			if (wait.revents & (POLLIN | POLLHUP | POLLERR | POLLRDHUP))
				pull(fd, &in, header->quick, MSG_DONTWAIT);
			if (wait.revents & (POLLOUT | POLLERR))
				push(fd, &out, header->quick, MSG_DONTWAIT);
		}
	} else {
		int status = 0;
		pid_t sender = 0;

		/*
		 * Two processes, each blocking in its own direction; one if there is nothing to send. An acceptor
		 * with nothing to send ends last: the end then tells the connector that all has arrived.
		 */
		if (!out.total_bytes && !first)
			while (!pull(fd, &in, header->quick, 0))
				;
		if (out.total_bytes)
			sender = fork();
		if (!out.total_bytes || sender == 0)
			while (!push(fd, &out, header->quick, 0))
				;
		if (out.total_bytes && sender == 0)
			_exit(0);
		while (!pull(fd, &in, header->quick, 0))
			;
		if (sender && (waitpid(sender, &status, 0) < 0 || status))
			exit(1);
	}
}

static struct way way_of(uint64_t seed, uint64_t total_bytes, const struct header *header)
{
	return (struct way){
		.seed = seed, .total_bytes = total_bytes, .chunk_bytes = header->chunk_bytes,
		.buffer = buffer_of(header->chunk_bytes),
	};
}

static void all(int fd, void *data, size_t len, int sending)
{
	uint8_t *at = data;

	while (len) {
		ssize_t n = sending ? send(fd, at, len, MSG_NOSIGNAL) : recv(fd, at, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die(sending ? "send" : "recv");
		at += n;
		len -= n;
	}
}

/* Returns how long the echoes took that count, in ns. */
static uint64_t echo(int fd, const struct header *header, int first)
{
	uint8_t *buffer = buffer_of(header->chunk_bytes);
	uint64_t started = now_ns(), taken_ns = 0;

	/* One more, not timed: the other's end would be in the time of the last. */
	for (uint64_t i = 0; i <= header->echoes + header->warm_up; i++) {
		if (i == header->warm_up)
			started = now_ns();
		if (i == header->warm_up + header->echoes)
			taken_ns = now_ns() - started;
		if (first) {
			memset(buffer, (uint8_t)i, header->chunk_bytes);
			all(fd, buffer, header->chunk_bytes, 1);
			all(fd, buffer, header->chunk_bytes, 0);
			if (buffer[0] != (uint8_t)i || buffer[header->chunk_bytes - 1] != (uint8_t)i)
				wrong("wrong echo", i);
		} else {
			all(fd, buffer, header->chunk_bytes, 0);
			all(fd, buffer, header->chunk_bytes, 1);
		}
	}
	free(buffer);
	return taken_ns;
}

static void serve(int fd)
{
	struct header header;
	struct way out, in;
	char ready = 1;
	int on = 1;

	all(fd, &header, sizeof(header), 0);
	if (header.magic != MAGIC)
		wrong("no header", 0);
	out = way_of(~header.seed, header.back_bytes, &header);
	in = way_of(header.seed, header.there_bytes, &header);
	all(fd, &ready, 1, 1);
	if (family == AF_INET)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (header.echoes)
		echo(fd, &header, 0);
	else
		both_ways(fd, out, in, &header, 0);
	/* Guests that share a CPU: the connector looks at its clock before this end is taken down. */
	if (header.quick)
		usleep(10000);
	close(fd);
}

static void listen_on(const char *port, int connections)
{
	struct sockaddr_storage address;
	socklen_t len = address_of(&address, NULL, port);
	int listener = socket(family, type | SOCK_CLOEXEC, 0), on = 1, status, failed = 0;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (listener < 0 || bind(listener, (void *)&address, len) || listen(listener, 128))
		die("listen");
	printf("listening\n");
	fflush(stdout);
	for (int i = 0; i < connections; i++) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			die("accept");
		if (fork() == 0) {
			close(listener);
			serve(fd);
			_exit(0);
		}
		close(fd);
		while (waitpid(-1, &status, WNOHANG) > 0)
			failed |= status;
	}
	while (wait(&status) > 0)
		failed |= status;
	exit(failed ? 1 : 0);
}

/* Returns how long it took once both had their buffers, or from the first echo that counts, in ns. */
static uint64_t connect_to(const char *host, const char *port, struct header header, uint64_t buffer_bytes)
{
	struct sockaddr_storage address;
	socklen_t len = address_of(&address, host, port);
	int fd = socket(family, type, 0), on = 1;
	struct way out, in;
	uint64_t started;
	char ready;

	if (fd < 0)
		die("socket");
	if (buffer_bytes && (setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &buffer_bytes, 8) ||
			     setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &buffer_bytes, 8)))
		die("buffer size");
	if (connect(fd, (void *)&address, len))
		die("connect");
	if (family == AF_INET)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	out = way_of(header.seed, header.there_bytes, &header);
	in = way_of(~header.seed, header.back_bytes, &header);
	all(fd, &header, sizeof(header), 1);
	all(fd, &ready, 1, 0);
	if (begin_fd >= 0) {
		printf("waiting\n");
		fflush(stdout);
		if (recv(begin_fd, &ready, 1, 0) < 0)
			die("datagram");
	}
	started = now_ns();
	if (header.echoes) {
		started = echo(fd, &header, 1);
	} else {
		both_ways(fd, out, in, &header, 1);
		started = now_ns() - started;
	}
	close(fd);
	return started;
}

static int datagrams_at(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || bind(fd, (void *)&address, sizeof(address)))
		die("datagram");
	return fd;
}

int main(int argc, char **argv)
{
	struct header header = { .magic = MAGIC, .chunk_bytes = 65536 };
	int connections = 1, at_once = 1, running = 0, status, failed = 0, option, first;
	uint64_t buffer_bytes = 0, started, taken_ns = 0;

	if (argc < 4)
		return 2;
	family = strcmp(argv[1], "tcp") ? AF_VSOCK : AF_INET;
	type = strcmp(argv[1], "vsockseq") ? SOCK_STREAM : SOCK_SEQPACKET;
	first = strcmp(argv[2], "listen") ? 5 : 4;
	optind = first;
	while ((option = getopt(argc, argv, "n:p:s:r:c:ib:e:w:qt:")) != -1) {
		switch (option) {
		case 'n': connections = atoi(optarg); break;
		case 'p': at_once = atoi(optarg); break;
		case 's': header.there_bytes = strtoull(optarg, NULL, 0); break;
		case 'r': header.back_bytes = strtoull(optarg, NULL, 0); break;
		case 'c': header.chunk_bytes = strtoull(optarg, NULL, 0); break;
		case 'i': header.poll = 1; break;
		case 'b': buffer_bytes = strtoull(optarg, NULL, 0); break;
		case 'e': header.echoes = strtoull(optarg, NULL, 0); break;
		case 'w': header.warm_up = strtoull(optarg, NULL, 0); break;
		case 't': begin_fd = datagrams_at(atoi(optarg)); break;
		case 'q': header.quick = 1; break;
		default: return 2;
		}
	}
	if (first == 4)
		listen_on(argv[3], connections);

	started = now_ns();
	if (connections == 1) {
		header.seed = started;
		taken_ns = connect_to(argv[3], argv[4], header, buffer_bytes);
	}
	for (int i = 0; i < connections && connections > 1; i++) {
		if (running == at_once && wait(&status) > 0) {
			failed |= status;
			running--;
		}
		if (fork() == 0) {
			header.seed = started + i;
			connect_to(argv[3], argv[4], header, buffer_bytes);
			_exit(0);
		}
		running++;
	}
	while (wait(&status) > 0)
		failed |= status;
	printf("connections %d sent %llu received %llu echoes %llu ns %llu\n", connections,
	       (unsigned long long)(header.there_bytes * connections),
	       (unsigned long long)(header.back_bytes * connections),
	       (unsigned long long)(header.echoes * connections),
	       (unsigned long long)(connections == 1 ? taken_ns : now_ns() - started));
	return failed ? 1 : 0;
}
