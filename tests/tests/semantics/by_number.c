/* What the library has to know of descriptors that it does not carry, told by syscall(2) alone.
 *
 *   by_number passes        a connection goes to another process by sendmsg, which goes on with it
 *   by_number passes many   the same by sendmmsg
 *   by_number closes        what a set watches is closed, and something else gets its number
 *   by_number copies        the same by dup2
 *
 * Says "all there" when all is as by TCP. */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pair.h"

enum { ROUNDS = 200, BYTES = 1000 };

struct parcel {
	char control[CMSG_SPACE(sizeof(int))];
	char byte;
	struct iovec piece;
	struct msghdr message;
};

static void wraps(struct parcel *parcel, int fd)
{
	struct cmsghdr *head = (void *)parcel->control;

	memset(parcel, 0, sizeof(*parcel));
	parcel->piece = (struct iovec){ &parcel->byte, 1 };
	parcel->message.msg_iov = &parcel->piece;
	parcel->message.msg_iovlen = 1;
	parcel->message.msg_control = parcel->control;
	parcel->message.msg_controllen = sizeof(parcel->control);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
}

/* Gets a connection, and sends back what comes. */
static _Noreturn void echoes(int from)
{
	struct parcel parcel;
	char bytes[BYTES];
	int fd = -1;

	wraps(&parcel, -1);
	if (syscall(SYS_recvmsg, from, &parcel.message, 0) != 1)
		die("recvmsg", 0);
	memcpy(&fd, CMSG_DATA((struct cmsghdr *)(void *)parcel.control), sizeof(fd));
	for (ssize_t n; (n = recv(fd, bytes, BYTES, 0)) > 0;)
		for (ssize_t at = 0, sent; at < n; at += sent)
			if ((sent = send(fd, bytes + at, (size_t)(n - at), 0)) <= 0)
				die("send back", at);
	_exit(0);
}

static void passes(int is_many)
{
	char sent[BYTES], got[BYTES];
	struct mmsghdr many = { 0 };
	struct parcel parcel;
	int ends[2], to[2], status;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, to))
		die("socketpair", 0);
	child = fork();
	if (child == 0) {
		close(to[0]);
		echoes(to[1]);
	}
	close(to[1]);
	connects(ends);
	talks_until(ends, 2);
	/* What is unread goes along. */
	memset(sent, 'u', BYTES);
	if (send(ends[0], sent, BYTES, 0) != BYTES)
		die("unread", 0);
	wraps(&parcel, ends[1]);
	many.msg_hdr = parcel.message;
	if (is_many ? syscall(SYS_sendmmsg, to[0], &many, 1, 0) != 1 :
		      syscall(SYS_sendmsg, to[0], &parcel.message, 0) != 1)
		die("sendmsg", is_many);
	syscall(SYS_close, ends[1]);
	if (recv(ends[0], got, BYTES, MSG_WAITALL) != BYTES || memcmp(sent, got, BYTES))
		die("unread", 1);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < BYTES; i++)
			sent[i] = (char)(round * 31 + i);
		if (send(ends[0], sent, BYTES, 0) != BYTES || recv(ends[0], got, BYTES, MSG_WAITALL) != BYTES ||
		    memcmp(sent, got, BYTES))
			die("round", round);
	}
	shutdown(ends[0], SHUT_WR);
	if (recv(ends[0], got, 1, 0) != 0)
		die("the end", 0);
	if (waitpid(child, &status, 0) != child || status)
		die("child", status);
}

static void reuses(int by_copy)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 1 };
	int ends[2], set = epoll_create1(0), first = eventfd(0, 0), second;

	connects(ends);
	talks_until(ends, 2);
	if (epoll_ctl(set, EPOLL_CTL_ADD, first, &event))
		die("first", 0);
	event.data.u64 = 2;
	if (epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) || epoll_wait(set, &event, 1, 0) != 0)
		die("connection", 0);
	if (by_copy) {
		second = eventfd(0, 0);
		if (syscall(SYS_dup2, second, first) != first)
			die("dup2", 0);
		close(second);
		second = first;
	} else {
		syscall(SYS_close, first);
		second = eventfd(0, 0);
		if (second != first)
			die("another number", second);
	}
	event = (struct epoll_event){ .events = EPOLLIN, .data.u64 = 3 };
	if (epoll_ctl(set, EPOLL_CTL_ADD, second, &event))
		die("second", 0);
	if (epoll_wait(set, &event, 1, 0) != 0)
		die("told of nothing", (long)event.data.u64);
	if (eventfd_write(second, 1) || epoll_wait(set, &event, 1, 1000) != 1 || event.data.u64 != 3)
		die("told of another", (long)event.data.u64);
	talks(ends);
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";

	if (!strcmp(what, "passes"))
		passes(count > 2);
	else
		reuses(!strcmp(what, "copies"));
	puts("all there");
	return 0;
}
