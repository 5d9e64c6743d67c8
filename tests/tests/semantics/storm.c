/*
 * Several threads send and receive numbered messages on a few connections, in many ways, while others copy the
 * descriptors, pass them on, fork, and close what they made. Every message arrives whole and in its place.
 *
 *   storm SEED SECONDS WHAT...        WHAT: what the others do, of copy pass fork vfork replace options fresh shell, and
 *                                     spawn, start, lend: a program sends and receives by the descriptor in turn
 *   storm program FD SENT RECEIVED COUNT SEED   that program: it sends one message and receives COUNT
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "pair.h"

enum {
	PAIRS = 4,
	THREADS = 3,
	BYTES_MOST = 9000,
	BYTES_USUAL = 300,
	/* So many messages of a direction are under way at most: the kernel's buffers hold them. */
	UNDER_WAY = 8,
	WAIT_MS = 1000,
	/* Numbers of copies: away from the lowest ones, and a few where others are put in their place. */
	HIGH = 300,
	REPLACED = 400,
	REPLACEABLE = 8,
	/* In every second round the connections have rings before the others begin. */
	WARM_US = 50000,
};

struct direction {
	pthread_mutex_t sends, receives;
	unsigned sent, received;
};

/* Direction 0 is from end 0 to end 1. */
struct pair {
	int ends[2];
	struct direction directions[2];
};

static struct pair pairs[PAIRS];
static volatile int is_over, is_warm;
static char **whats;
static unsigned what_count;

static unsigned length(unsigned number)
{
	unsigned mixed = number * 2654435761u;

	return 12 + (mixed >> 8) % (mixed % 16 ? BYTES_USUAL : BYTES_MOST - 12);
}

static void fill(unsigned char *bytes, unsigned number)
{
	unsigned len = length(number);

	memcpy(bytes, &number, 4);
	for (unsigned i = 4; i < len; i++)
		bytes[i] = (unsigned char)(number * 7 + i);
}

static ssize_t sends(int fd, unsigned char *bytes, size_t len, unsigned way)
{
	struct iovec halves[2] = { { bytes, len / 2 }, { bytes + len / 2, len - len / 2 } };
	struct msghdr msg = { .msg_iov = halves, .msg_iovlen = 2 };

	switch (way % 4) {
	case 0:
		return write(fd, bytes, len);
	case 1:
		return writev(fd, halves, 2);
	case 2:
		return sendmsg(fd, &msg, MSG_NOSIGNAL);
	default:
		return send(fd, bytes, len, MSG_NOSIGNAL);
	}
}

static ssize_t receives(int fd, unsigned char *bytes, size_t len, unsigned way)
{
	struct iovec halves[2] = { { bytes, len / 2 }, { bytes + len / 2, len - len / 2 } };
	struct msghdr msg = { .msg_iov = halves, .msg_iovlen = 2 };

	switch (way % 5) {
	case 0:
		return read(fd, bytes, len);
	case 1:
		return readv(fd, halves, 2);
	case 2:
		return recvmsg(fd, &msg, 0);
	case 3:
		return recv(fd, bytes, len, MSG_WAITALL);
	default:
		if (recv(fd, bytes, 1, MSG_PEEK) != 1)
			return -1;
		return recv(fd, bytes, len, 0);
	}
}

static void awaits(int fd, unsigned way)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };
	struct timeval time = { .tv_usec = WAIT_MS * 999 };
	struct epoll_event event = { .events = EPOLLIN };
	fd_set set;
	int epoll, copy;

	switch (way % 4) {
	case 0:
		poll(&one, 1, WAIT_MS);
		return;
	case 1:
		FD_ZERO(&set);
		FD_SET(fd, &set);
		select(fd + 1, &set, NULL, NULL, &time);
		return;
	case 2:
		event.events |= EPOLLET | EPOLLONESHOT;
		/* fall through */
	default:
		epoll = epoll_create1(0);
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
		copy = dup(epoll);
		close(epoll);
		epoll_wait(copy, &event, 1, WAIT_MS);
		close(copy);
	}
}

/* The next message of the end, by `fd`, which names it. */
static void says(struct direction *direction, int fd, unsigned *seed)
{
	unsigned char bytes[BYTES_MOST];

	pthread_mutex_lock(&direction->sends);
	unsigned number = direction->sent, len = length(number), at = 0;

	fill(bytes, number);
	while (at < len) {
		ssize_t ret = sends(fd, bytes + at, len - at, (unsigned)rand_r(seed));

		if (ret <= 0)
			die("send", number);
		at += (unsigned)ret;
	}
	__atomic_store_n(&direction->sent, number + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&direction->sends);
}

/* The next message, if one was sent. */
static void hears(struct direction *direction, int fd, unsigned *seed)
{
	unsigned char bytes[BYTES_MOST], wanted[BYTES_MOST];

	pthread_mutex_lock(&direction->receives);
	unsigned number = direction->received, len = length(number), at = 0;

	if (number != __atomic_load_n(&direction->sent, __ATOMIC_ACQUIRE)) {
		while (at < len) {
			if (rand_r(seed) % 2)
				awaits(fd, (unsigned)rand_r(seed));
			ssize_t ret = receives(fd, bytes + at, len - at, (unsigned)rand_r(seed));

			if (ret <= 0)
				die("receive", number);
			at += (unsigned)ret;
		}
		fill(wanted, number);
		if (memcmp(bytes, wanted, len))
			die("other bytes", number);
		direction->received = number + 1;
	}
	pthread_mutex_unlock(&direction->receives);
}

static void uses(struct pair *pair, int end, int fd, unsigned *seed)
{
	struct direction *out = &pair->directions[end];

	if (rand_r(seed) % 2)
		hears(&pair->directions[!end], fd, seed);
	else if (out->sent - out->received < UNDER_WAY)
		says(out, fd, seed);
}

/* Another number for `fd`, which this process gets over a Unix socket. */
static int passed(int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(fd))];
	struct iovec one = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	int ways[2], got;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ways))
		die("socketpair", fd);
	*head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(fd)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	if (sendmsg(ways[0], &msg, 0) != 1 || recvmsg(ways[1], &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		die("pass", fd);
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(got));
	close(ways[0]);
	close(ways[1]);
	return got;
}

/* A connection of the thread's own, closed under another number. */
static void fresh(void)
{
	int ends[2], copy;
	char byte;

	opens(ends);
	talks(ends);
	copy = dup(ends[1]);
	close(ends[1]);
	close(ends[0]);
	if (read(copy, &byte, 1) != 0)
		die("end", copy);
	close(copy);
}

static pid_t vforked(void)
{
	pid_t child = vfork();

	if (!child)
		_exit(0);
	return child;
}

extern char **environ;

static pid_t begins(const char *how, char **words)
{
	pid_t child;

	if (!strcmp(how, "spawn"))
		return posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ) ? -1 : child;
	child = strcmp(how, "lend") ? fork() : vfork();
	if (!child) {
		execv("/proc/self/exe", words);
		_exit(1);
	}
	return child;
}

/* A program has the end for a while: it sends one message and receives what was sent by now. */
static void program_uses(const char *how, struct pair *pair, int end, unsigned *seed)
{
	struct direction *out = &pair->directions[end], *in = &pair->directions[!end];
	char words[5][12];
	char *argv[] = { "storm", "program", words[0], words[1], words[2], words[3], words[4], NULL };

	pthread_mutex_lock(&out->sends);
	pthread_mutex_lock(&in->receives);
	unsigned count = __atomic_load_n(&in->sent, __ATOMIC_ACQUIRE) - in->received;
	unsigned numbers[] = { (unsigned)pair->ends[end], out->sent, in->received, count, (unsigned)rand_r(seed) };

	for (int i = 0; i < 5; i++)
		snprintf(words[i], sizeof(words[i]), "%u", numbers[i]);
	if (out->sent - out->received < UNDER_WAY) {
		pid_t child = begins(how, argv);
		int status;

		if (child < 0 || waitpid(child, &status, 0) != child || status)
			die("program", status);
		in->received += count;
		__atomic_store_n(&out->sent, out->sent + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&in->receives);
	pthread_mutex_unlock(&out->sends);
}

static int program(char **words)
{
	int fd = atoi(words[0]);
	unsigned number = (unsigned)atoi(words[1]), first = (unsigned)atoi(words[2]), count = (unsigned)atoi(words[3]);
	unsigned seed = (unsigned)strtoul(words[4], NULL, 10);
	struct direction out = { .sent = number }, in = { .sent = first + count, .received = first };

	says(&out, fd, &seed);
	while (in.received != in.sent)
		hears(&in, fd, &seed);
	return 0;
}

static void does(const char *what, struct pair *pair, int end, unsigned *seed)
{
	int fd = pair->ends[end], copy = -1, one = 1;
	struct timeval time = { .tv_sec = 60 };
	pid_t child = -1;

	if (!strcmp(what, "copy"))
		copy = rand_r(seed) % 2 ? dup(fd) : fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
	else if (!strcmp(what, "pass"))
		copy = passed(fd);
	else if (!strcmp(what, "fork"))
		child = fork();
	else if (!strcmp(what, "vfork"))
		child = vforked();
	else if (!strcmp(what, "replace"))
		dup2(fd, REPLACED + rand_r(seed) % REPLACEABLE);
	else if (!strcmp(what, "fresh"))
		fresh();
	else if (!strcmp(what, "shell")) {
		if (system("exit 0"))
			die("system", 0);
	} else if (!strcmp(what, "spawn") || !strcmp(what, "start") || !strcmp(what, "lend"))
		program_uses(what, pair, end, seed);
	else if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
		 setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)))
		die("setsockopt", fd);
	if (!child)
		_exit(0);
	if (child > 0)
		waitpid(child, NULL, 0);
	if (copy < 0)
		return;
	uses(pair, end, copy, seed);
	uses(pair, end, copy, seed);
	close(copy);
}

static void *disturbs(void *seeded)
{
	unsigned seed = (unsigned)(long)seeded;

	if (is_warm)
		usleep(WARM_US);
	while (!is_over) {
		struct pair *pair = &pairs[rand_r(&seed) % PAIRS];

		usleep((useconds_t)rand_r(&seed) % 2000);
		does(whats[(unsigned)rand_r(&seed) % what_count], pair, rand_r(&seed) % 2, &seed);
	}
	return NULL;
}

static void *converses(void *seeded)
{
	unsigned seed = (unsigned)(long)seeded;

	while (!is_over) {
		struct pair *pair = &pairs[rand_r(&seed) % PAIRS];
		int end = rand_r(&seed) % 2;

		uses(pair, end, pair->ends[end], &seed);
	}
	return NULL;
}

/* What is under way, and the ends. */
static void ends(struct pair *pair, unsigned *seed)
{
	char byte;

	for (int end = 0; end < 2; end++)
		while (pair->directions[!end].received != pair->directions[!end].sent)
			hears(&pair->directions[!end], pair->ends[end], seed);
	if (shutdown(pair->ends[0], SHUT_WR) || read(pair->ends[1], &byte, 1) != 0)
		die("end", 0);
	close(pair->ends[1]);
	if (read(pair->ends[0], &byte, 1) != 0)
		die("end", 1);
	close(pair->ends[0]);
}

int main(int argc, char **argv)
{
	if (!strcmp(argv[1], "program"))
		return program(argv + 2);

	unsigned seed = (unsigned)atoi(argv[1]);
	time_t until = time(NULL) + atoi(argv[2]);

	whats = argv + 3;
	what_count = (unsigned)argc - 3;
	while (time(NULL) < until) {
		pthread_t threads[2 * THREADS];

		memset(pairs, 0, sizeof(pairs));
		for (int i = 0; i < PAIRS; i++)
			opens(pairs[i].ends);
		is_over = 0;
		is_warm = !is_warm;
		for (int i = 0; i < 2 * THREADS; i++)
			pthread_create(&threads[i], NULL, i % 2 ? disturbs : converses, (void *)(long)(seed += 77));
		usleep(400000);
		is_over = 1;
		for (int i = 0; i < 2 * THREADS; i++)
			pthread_join(threads[i], NULL);
		for (int i = 0; i < REPLACEABLE; i++)
			close(REPLACED + i);
		for (int i = 0; i < PAIRS; i++)
			ends(&pairs[i], &seed);
	}
	puts("all there");
	return 0;
}
