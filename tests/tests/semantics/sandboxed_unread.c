/*
 * A program forbids itself all system calls but those that it makes, while bytes of its connection are unread,
 * and reads them in each way that there is. Some come before, some after.
 *
 *   sandboxed_unread          prints a line for each case
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum way {
	READ, READV, RECV, RECV_ALL, RECVMSG, RECVMSG_ALL, PEEK, INQUIRE, POLL, PPOLL, SELECT, PSELECT, LEVEL, EDGE,
	ONCE, DUP, FORK, CLOSE, LEAVE, WAYS
};

static const char *names[] = {
	"read", "readv", "recv", "recv of all", "recvmsg", "recvmsg of all", "peek", "FIONREAD", "poll", "ppoll",
	"select", "pselect", "level", "edge", "once", "dup", "fork", "close", "exit",
};

/* The calls of each way, besides read, write and exit_group. */
static const int calls[WAYS][6] = {
	[READV] = { __NR_readv },
	[RECV] = { __NR_recvfrom },
	[RECV_ALL] = { __NR_recvfrom },
	[RECVMSG] = { __NR_recvmsg },
	[RECVMSG_ALL] = { __NR_recvmsg },
	[PEEK] = { __NR_recvfrom },
	[INQUIRE] = { __NR_ioctl },
	[POLL] = { __NR_poll },
	[PPOLL] = { __NR_ppoll },
	[SELECT] = { __NR_select, __NR_pselect6 },
	[PSELECT] = { __NR_pselect6 },
	[LEVEL] = { __NR_epoll_wait },
	[EDGE] = { __NR_epoll_wait },
	[ONCE] = { __NR_epoll_wait, __NR_epoll_ctl },
	[DUP] = { __NR_dup, __NR_dup2, __NR_close },
	[FORK] = { __NR_clone, __NR_set_robust_list, __NR_wait4, __NR_rseq, __NR_gettid },
	[CLOSE] = { __NR_close },
};

enum { WARM = 100, LEN = 16, MOST = 65536 };

static int s, set, from_peer[2], to_peer[2];
static char bytes[MOST];

static _Noreturn void die(const char *what, long a)
{
	printf("%s: %ld, %s\n", what, a, strerror(errno));
	exit(1);
}

static void forbid(enum way way)
{
	struct sock_filter filter[64];
	const int usual[] = { __NR_read, __NR_write, __NR_exit_group };
	struct sock_fprog program = { .len = 0, .filter = filter };

#define ADD(instruction) filter[program.len++] = (struct sock_filter)instruction
	ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	for (int i = 0; i < 9; i++) {
		int call = i < 3 ? usual[i] : calls[way][i - 3];

		if (i >= 3 && !call)
			break;
		ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
		ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	}
	ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		die("seccomp", 0);
}

static void round_trips(int fd, int is_first)
{
	char some[LEN] = { 0 };

	for (int i = 0; i < WARM; i++)
		if ((is_first && write(fd, some, LEN) != LEN) || recv(fd, some, LEN, MSG_WAITALL) != LEN ||
		    (!is_first && write(fd, some, LEN) != LEN))
			die("warm", i);
}

static char byte_at(int at)
{
	return (char)(at * 7 + at / 251);
}

/* Until the other side has done what it is to do. */
static void hears(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		_exit(9);
}

static void tells(int fd)
{
	if (write(fd, "x", 1) != 1)
		_exit(8);
}

static int waits(enum way way)
{
	struct pollfd one = { .fd = s, .events = POLLIN };
	struct timespec time = { .tv_sec = 5 };
	struct timeval limit = { .tv_sec = 5 };
	struct epoll_event event;
	fd_set in;

	FD_ZERO(&in);
	FD_SET(s, &in);
	switch (way) {
	case POLL:
		return poll(&one, 1, 5000) == 1 && one.revents == POLLIN;
	case PPOLL:
		return ppoll(&one, 1, &time, NULL) == 1 && one.revents == POLLIN;
	case SELECT:
		return select(s + 1, &in, NULL, NULL, &limit) == 1 && FD_ISSET(s, &in);
	case PSELECT:
		return pselect(s + 1, &in, NULL, NULL, &time, NULL) == 1 && FD_ISSET(s, &in);
	case LEVEL:
	case EDGE:
	case ONCE:
		return epoll_wait(set, &event, 1, 5000) == 1 && event.events == EPOLLIN && event.data.u64 == 77;
	default:
		return 1;
	}
}

/* One receive, of up to `len` bytes. */
static ssize_t receives(enum way way, char *to, size_t len)
{
	struct iovec pieces[2] = { { to, len / 3 }, { to + len / 3, len - len / 3 } };
	struct msghdr msg = { .msg_iov = pieces, .msg_iovlen = 2 };

	switch (way) {
	case READV:
		return readv(s, pieces, 2);
	case RECV:
		return recv(s, to, len, 0);
	case RECV_ALL:
		return recv(s, to, len, MSG_WAITALL);
	case RECVMSG:
		return recvmsg(s, &msg, 0);
	case RECVMSG_ALL:
		return recvmsg(s, &msg, MSG_WAITALL);
	default:
		return read(s, to, len);
	}
}

/* How many of `len` bytes, from `at` on, came as they were sent. */
static int reads(enum way way, int at, int len, int piece)
{
	int done = 0;

	while (done < len) {
		ssize_t n;

		if (way == EDGE) {
			/* Until there is no more: a short read says so, too. */
			if (!waits(way))
				return -1;
			do {
				n = read(s, bytes + done, piece);
				done += n > 0 ? n : 0;
			} while (n == piece);
			if (n < 0 && errno != EAGAIN)
				return -2;
			continue;
		}
		if (!waits(way))
			return -3;
		if (way == PEEK && (recv(s, bytes + done, 1, MSG_PEEK) != 1 || bytes[done] != byte_at(at + done)))
			return -4;
		n = receives(way, bytes + done, len - done < piece ? len - done : piece);
		if (n <= 0)
			return -5;
		done += n;
		if (way == ONCE) {
			struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 77 }, told;

			/* It has told, whatever is left. */
			if (done < 1000 && epoll_wait(set, &told, 1, 20))
				return -7;
			if (epoll_ctl(set, EPOLL_CTL_MOD, s, &event))
				return -6;
		}
	}
	for (int i = 0; i < done; i++)
		if (bytes[i] != byte_at(at + i))
			return -1000 - i;
	return done;
}

static int is_killed(int status)
{
	return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

/* In the child. `before` bytes are unread, `after` come once the filter stands. */
static int plays(enum way way, int before, int after, int piece)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 77 };
	int number = 0, status = 0;

	if (way == EDGE) {
		event.events |= EPOLLET;
		fcntl(s, F_SETFL, O_NONBLOCK);
	}
	epoll_ctl(set, EPOLL_CTL_ADD, s, &event);
	if (way == ONCE) {
		/* One that is changed to that keeps its ring. */
		event.events |= EPOLLONESHOT;
		epoll_ctl(set, EPOLL_CTL_MOD, s, &event);
	}
	tells(to_peer[1]);
	hears(from_peer[0]);
	forbid(way);
	tells(to_peer[1]);
	hears(from_peer[0]);
	switch (way) {
	case INQUIRE:
		if (ioctl(s, FIONREAD, &number) || number != before + after)
			return -7;
		break;
	case DUP:
		number = dup(s);
		close(s);
		s = dup2(number, s);
		close(number);
		break;
	case FORK:
		/* A child reads some of it. */
		if (!fork())
			_exit(reads(READ, 0, before / 2, piece) != before / 2);
		wait(&status);
		if (status)
			return is_killed(status);
		return reads(READ, before / 2, before - before / 2 + after, piece) == before - before / 2 + after ?
			       before + after :
			       -8;
	case CLOSE:
		return close(s);
	case LEAVE:
		exit(3);
	default:
		break;
	}
	return reads(way, 0, before + after, piece);
}

static void one(enum way way, int before, int after, int piece)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), nodelay = 1, status, peer;
	static char out[MOST];
	pid_t child;

	if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	if (pipe(from_peer) || pipe(to_peer))
		die("pipe", 0);
	child = fork();
	if (!child) {
		char line[64];
		int n;

		close(listener);
		set = epoll_create1(0);
		s = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(s, (void *)&at, sizeof(at)))
			die("connect", 0);
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay));
		round_trips(s, 1);
		n = snprintf(line, sizeof(line), "%d\n", plays(way, before, after, piece));
		_exit(write(1, line, n) != n);
	}
	peer = accept(listener, NULL, NULL);
	close(listener);
	setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay));
	round_trips(peer, 0);
	for (int i = 0; i < before + after; i++)
		out[i] = byte_at(i);
	printf("%s, %d before, %d after, pieces of %d: ", names[way], before, after, piece);
	fflush(stdout);
	hears(to_peer[0]);
	if (send(peer, out, before, MSG_NOSIGNAL) != before)
		die("send", before);
	usleep(2000);
	tells(from_peer[1]);
	hears(to_peer[0]);
	if (after && send(peer, out + before, after, MSG_NOSIGNAL) != after)
		die("send", after);
	usleep(2000);
	tells(from_peer[1]);
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status) || WEXITSTATUS(status))
		printf("ends with %d\n", is_killed(status));
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		close(from_peer[i]);
		close(to_peer[i]);
	}
	close(peer);
}

int main(void)
{
	for (enum way way = READ; way < WAYS; way++)
		for (int much = 0; much < 2; much++)
			for (int after = 0; after < 2; after++)
				for (int large = 0; large < 2; large++)
					one(way, much ? 20000 : 500, after ? 700 : 0, large ? MOST : 130);
	return 0;
}
