/*
 * Several processes pass both ends of some connections to each other, with what is unread, and send and receive in turn.
 * Each byte arrives once and in its place.
 *
 *   rounds SEED SECONDS
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "pair.h"

enum {
	PROCESSES = 4,
	PAIRS = 5,
	/* So much of a direction is under way at most: the kernel's buffers hold it. */
	UNDER_WAY = 60000,
	MOST = 7000,
	USUAL = 200,
};

/* What all processes know of the direction from this end on. */
struct direction {
	uint64_t sent, received;
};

static struct shared {
	struct direction directions[PAIRS][2];
	int is_over, ended;
} *shared;

/* An end, as it is passed. */
struct place {
	int pair, end;
};

static int ways[PROCESSES][2];
static unsigned seed;

static unsigned roll(unsigned most)
{
	return (unsigned)rand_r(&seed) % most;
}

static unsigned char byte_at(struct place place, uint64_t at)
{
	return (unsigned char)(at * 7 + (at >> 8) + (uint64_t)(place.pair * 2 + place.end) * 31);
}

static void sends(int fd, struct place place)
{
	struct direction *out = &shared->directions[place.pair][place.end];
	unsigned len = 1 + roll(roll(8) ? USUAL : MOST);
	unsigned char bytes[MOST];

	if (out->sent + len - __atomic_load_n(&out->received, __ATOMIC_ACQUIRE) > UNDER_WAY)
		return;
	for (unsigned i = 0; i < len; i++)
		bytes[i] = byte_at(place, out->sent + i);
	for (unsigned at = 0; at < len;) {
		ssize_t ret = roll(2) ? send(fd, bytes + at, len - at, MSG_NOSIGNAL) : write(fd, bytes + at, len - at);

		if (ret <= 0)
			die("send", ret);
		at += (unsigned)ret;
		__atomic_store_n(&out->sent, out->sent + (uint64_t)ret, __ATOMIC_RELEASE);
	}
}

static void receives(int fd, struct place place)
{
	struct place peer = { place.pair, !place.end };
	struct direction *in = &shared->directions[peer.pair][peer.end];
	/* Below 0: it is counted when it is here already. */
	int64_t there = (int64_t)(__atomic_load_n(&in->sent, __ATOMIC_ACQUIRE) - in->received);
	unsigned char bytes[MOST];
	ssize_t ret, len = 1 + (ssize_t)roll(MOST - 1);

	if (there <= 0)
		return;
	if (roll(4) == 0 && recv(fd, bytes, 1, MSG_PEEK) != 1)
		die("peek", 0);
	if (roll(2))
		ret = recv(fd, bytes, (size_t)(len < there ? len : there), MSG_WAITALL);
	else
		ret = read(fd, bytes, (size_t)len);
	if (ret <= 0)
		die("receive", ret);
	for (ssize_t i = 0; i < ret; i++)
		if (bytes[i] != byte_at(peer, in->received + (uint64_t)i))
			die("other bytes", (long)in->received + i);
	__atomic_store_n(&in->received, in->received + (uint64_t)ret, __ATOMIC_RELEASE);
}

static void passes(int fd, struct place place, unsigned to)
{
	char control[CMSG_SPACE(sizeof(fd))] = { 0 };
	struct iovec one = { &place, sizeof(place) };
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	*head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(fd)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	if (sendmsg(ways[to][0], &msg, MSG_NOSIGNAL) != sizeof(place))
		die("pass", fd);
	close(fd);
}

/* -1: all is over, and nobody passes anything more. */
static int gets(struct place *place, unsigned number)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec one = { place, sizeof(*place) };
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int fd;

	for (;;) {
		ssize_t ret = recvmsg(ways[number][1], &msg, 0);

		if (ret == sizeof(*place) && CMSG_FIRSTHDR(&msg))
			break;
		if (ret >= 0 || errno != EAGAIN)
			die("get", ret);
		if (__atomic_load_n(&shared->ended, __ATOMIC_ACQUIRE) == 2 * PAIRS)
			return -1;
	}
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* Takes what is under way, and the end. */
static void ends(int fd, struct place place)
{
	struct place peer = { place.pair, !place.end };
	struct direction *in = &shared->directions[peer.pair][peer.end];
	unsigned char bytes[MOST];
	ssize_t ret;

	shutdown(fd, SHUT_WR);
	while ((ret = read(fd, bytes, sizeof(bytes))) > 0) {
		for (ssize_t i = 0; i < ret; i++)
			if (bytes[i] != byte_at(peer, in->received + (uint64_t)i))
				die("other bytes at the end", (long)in->received + i);
		__atomic_store_n(&in->received, in->received + (uint64_t)ret, __ATOMIC_RELEASE);
	}
	if (ret || in->received != __atomic_load_n(&in->sent, __ATOMIC_ACQUIRE))
		die("end", ret);
	close(fd);
	__atomic_fetch_add(&shared->ended, 1, __ATOMIC_RELEASE);
}

static void *ends_late(void *given)
{
	long word = (long)given;

	ends((int)(word >> 16), (struct place){ (int)(word >> 1) & 0xff, (int)word & 1 });
	return NULL;
}

static void is_a_process(unsigned number)
{
	struct place place;
	int fd;
	pthread_t threads[2 * PAIRS];
	int count = 0;

	seed += 1000 * (number + 1);
	while ((fd = gets(&place, number)) >= 0) {
		if (__atomic_load_n(&shared->is_over, __ATOMIC_ACQUIRE)) {
			/* The other end may be here, too. */
			long word = (long)fd << 16 | place.pair << 1 | place.end;

			pthread_create(&threads[count++], NULL, ends_late, (void *)word);
			continue;
		}
		for (unsigned turns = roll(roll(4) ? 12 : 600); turns; turns--)
			if (roll(2))
				sends(fd, place);
			else
				receives(fd, place);
		passes(fd, place, roll(PROCESSES));
	}
	while (count)
		pthread_join(threads[--count], NULL);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct timeval patience = { .tv_usec = 300000 };
	time_t until = time(NULL) + atoi(argv[2]);

	(void)argc;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (unsigned first = (unsigned)atoi(argv[1]); time(NULL) < until; first++) {
		pid_t children[PROCESSES];
		int status, pair[2];

		seed = first;
		memset(shared, 0, sizeof(*shared));
		for (int i = 0; i < PROCESSES; i++) {
			if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ways[i]))
				die("socketpair", i);
			setsockopt(ways[i][1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		}
		fflush(stdout);
		for (unsigned i = 0; i < PROCESSES; i++) {
			children[i] = fork();
			if (!children[i]) {
				/* Who is forgotten does not wait for ever. */
				alarm(60);
				is_a_process(i);
			}
		}
		for (int i = 0; i < PAIRS; i++) {
			opens(pair);
			if (roll(2))
				talks(pair);
			for (int end = 0; end < 2; end++)
				passes(pair[end], (struct place){ i, end }, roll(PROCESSES));
		}
		usleep(700000);
		__atomic_store_n(&shared->is_over, 1, __ATOMIC_RELEASE);
		for (int i = 0; i < PROCESSES; i++) {
			if (waitpid(children[i], &status, 0) != children[i] || status) {
				printf("seed %u, process %d: status %d\n", first, i, status);
				for (int p = 0; p < PAIRS; p++)
					for (int end = 0; end < 2; end++)
						printf("%d %d: sent %lu, received %lu\n", p, end,
						       (unsigned long)shared->directions[p][end].sent,
						       (unsigned long)shared->directions[p][end].received);
				return 1;
			}
			close(ways[i][0]);
			close(ways[i][1]);
		}
	}
	puts("all there");
	return 0;
}
