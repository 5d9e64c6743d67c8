/*
 * A descriptor that is no TCP socket becomes ready, and a connection gets bytes in its ring: a wait tells of
 * both, in this order; and who is asked after the one was written has heard of it.
 *
 *   beside            prints a line for each kind of descriptor, way to wait, and order
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "pair.h"

enum kind { PIPE, UNIX, EVENTFD, EVENTFD_WRITE, SIGNALFD, UDP, KINDS };
enum way { EPOLL, POLL, SELECT, WAYS };
enum { ROUNDS = 12, ASKS = 150 };

static const char *const kinds[] = { "pipe", "unix", "eventfd", "eventfd_write", "signalfd", "udp" };
static const char *const ways[] = { "epoll", "poll", "select" };

struct side {
	enum kind kind;
	int in, out;
	pid_t to;
};

static struct side make(enum kind kind)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct side side = { .kind = kind, .to = getpid() };
	socklen_t len = sizeof(at);
	int ends[2] = { -1, -1 };
	sigset_t signals;

	switch (kind) {
	case PIPE:
		if (pipe(ends))
			die("pipe", 0);
		break;
	case UNIX:
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
			die("socketpair", 0);
		break;
	case UDP:
		ends[0] = socket(AF_INET, SOCK_DGRAM, 0);
		ends[1] = socket(AF_INET, SOCK_DGRAM, 0);
		if (bind(ends[0], (void *)&at, len) || getsockname(ends[0], (void *)&at, &len) ||
		    connect(ends[1], (void *)&at, len))
			die("udp", 0);
		break;
	case SIGNALFD:
		sigemptyset(&signals);
		sigaddset(&signals, SIGUSR1);
		sigprocmask(SIG_BLOCK, &signals, NULL);
		ends[0] = signalfd(-1, &signals, 0);
		break;
	default:
		ends[0] = ends[1] = eventfd(0, 0);
	}
	side.in = ends[0];
	side.out = ends[1];
	fcntl(side.in, F_SETFL, O_NONBLOCK);
	return side;
}

static void end(struct side *side)
{
	close(side->in);
	if (side->out >= 0 && side->out != side->in)
		close(side->out);
}

static void write_side(struct side *side)
{
	uint64_t one = 1;

	if (side->kind == SIGNALFD)
		kill(side->to, SIGUSR1);
	else if (side->kind == EVENTFD_WRITE)
		eventfd_write(side->out, 1);
	else if (write(side->out, &one, sizeof(one)) != sizeof(one))
		die("side", side->kind);
}

/* Each write is one of these reads. */
static int read_side(struct side *side)
{
	char bytes[sizeof(struct signalfd_siginfo)];
	size_t len = side->kind == SIGNALFD ? sizeof(bytes) : sizeof(uint64_t);
	int count = 0;

	while (read(side->in, bytes, len) > 0)
		count++;
	return count;
}

/* What the wait tells: 's' of the side, 'r' of the connection. */
static const char *wait_for(enum way way, int set, struct side *side, int fd, int ms)
{
	static char told[5];
	int count = 0;

	if (way == EPOLL) {
		struct epoll_event events[4];
		int ready = epoll_wait(set, events, 4, ms);

		for (int at = 0; at < ready; at++)
			told[count++] = events[at].data.fd == fd ? 'r' : 's';
	} else if (way == POLL) {
		struct pollfd fds[] = { { side->in, POLLIN, 0 }, { fd, POLLIN, 0 } };

		poll(fds, 2, ms);
		for (int at = 0; at < 2; at++)
			if (fds[at].revents)
				told[count++] = "sr"[at];
	} else {
		struct timeval limit = { .tv_usec = ms * 1000 };
		fd_set fds;

		FD_ZERO(&fds);
		FD_SET(side->in, &fds);
		FD_SET(fd, &fds);
		select((fd > side->in ? fd : side->in) + 1, &fds, NULL, NULL, ms < 0 ? NULL : &limit);
		for (int at = 0; at < 2; at++)
			if (FD_ISSET(at ? fd : side->in, &fds))
				told[count++] = "sr"[at];
	}
	told[count] = 0;
	return told;
}

static int set_of(int first, int second)
{
	int set = epoll_create1(0);

	for (int at = 0; at < 2; at++) {
		struct epoll_event event = { .events = EPOLLIN, .data.fd = at ? second : first };

		if (epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event))
			die("epoll_ctl", at);
	}
	return set;
}

static void in_order(enum kind kind, enum way way, int side_first)
{
	struct side side = make(kind);
	int ends[2], set;
	char bytes[8];

	connects(ends);
	set = set_of(side.in, ends[1]);
	printf("%s %s, %s first:", kinds[kind], ways[way], side_first ? "side" : "ring");
	for (int round = 0; round < ROUNDS; round++) {
		if (side_first)
			write_side(&side);
		if (send(ends[0], "ring", 4, 0) != 4)
			die("send", round);
		if (!side_first)
			write_side(&side);
		printf(" %s", wait_for(way, set, &side, ends[1], 0));
		if (recv(ends[1], bytes, sizeof(bytes), 0) != 4)
			die("recv", round);
		if (read_side(&side) != 1)
			die("read", round);
	}
	printf("\n");
	close(set);
	close(ends[0]);
	close(ends[1]);
	end(&side);
}

/* Says how often it has heard of the side, whenever it is asked. */
static _Noreturn void answer(enum way way, struct side *side, int fd)
{
	int set = set_of(side->in, fd), heard = 0;
	char bytes[8];

	for (;;) {
		const char *told = wait_for(way, set, side, fd, -1);

		if (strchr(told, 's'))
			heard += read_side(side);
		if (strchr(told, 'r')) {
			if (recv(fd, bytes, sizeof(bytes), 0) <= 0)
				_exit(0);
			send(fd, &heard, sizeof(heard), 0);
		}
	}
}

static void asked(enum kind kind, enum way way)
{
	struct side side = make(kind);
	int ends[2], written = 0, stale = 0, heard;

	connects(ends);
	fflush(stdout);
	side.to = fork();
	if (!side.to) {
		close(ends[0]);
		/* It tells of signals of the process that made it. */
		if (kind == SIGNALFD)
			side = make(kind);
		answer(way, &side, ends[1]);
	}
	close(ends[1]);
	for (int ask = 0; ask < ASKS; ask++) {
		if (ask % 3 == 0) {
			write_side(&side);
			written++;
		}
		if (send(ends[0], "ask", 3, 0) != 3 || recv(ends[0], &heard, sizeof(heard), MSG_WAITALL) != sizeof(heard))
			die("ask", ask);
		stale += heard != written;
	}
	printf("%s %s: %d answers of %d are stale\n", kinds[kind], ways[way], stale, ASKS);
	close(ends[0]);
	waitpid(side.to, NULL, 0);
	end(&side);
}

int main(void)
{
	for (enum kind kind = 0; kind < KINDS; kind++)
		for (enum way way = 0; way < WAYS; way++) {
			in_order(kind, way, 1);
			in_order(kind, way, 0);
			asked(kind, way);
		}
	return 0;
}
