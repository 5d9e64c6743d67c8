/* Threads that are cancelled before they call: which calls end them, and what those leave; see cancel.rs.
 *
 *   cancelled_on_entry     prints a line for each call
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "peer.h"

enum call {
	RECV, READ, READV, RECVFROM, RECVMSG, RECVMMSG, SEND, WRITE, WRITEV, SENDTO, SENDMSG, SENDMMSG, SENDFILE,
	SPLICE, POLL, PPOLL, SELECT, PSELECT, EPOLL_WAIT, EPOLL_PWAIT, CLOSE, SHUTDOWN, DUP, IOCTL, FCNTL, BY_NUMBER,
	CALLS,
};

static const char *names[] = {
	"recv", "read", "readv", "recvfrom", "recvmsg", "recvmmsg", "send", "write", "writev", "sendto", "sendmsg",
	"sendmmsg", "sendfile", "splice", "poll", "ppoll", "select", "pselect", "epoll_wait", "epoll_pwait", "close",
	"shutdown", "dup", "ioctl", "fcntl", "syscall",
};

struct task {
	enum call call;
	int fd, file, epoll, pipe[2];
};

/* What is asked for is there: no call sleeps. */
static void *call(void *arg)
{
	struct task *task = arg;
	struct pollfd one = { .fd = task->fd, .events = POLLIN | POLLOUT };
	struct timespec now = { 0 };
	struct timeval none = { 0 };
	struct epoll_event event;
	static char bytes[40];
	struct iovec part = { bytes, sizeof(bytes) };
	struct mmsghdr one_message = { .msg_hdr = { .msg_iov = &part, .msg_iovlen = 1 } };
	long ret = 0, fd = task->fd;
	fd_set set;
	int count;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	pthread_cancel(pthread_self());
	switch (task->call) {
	case RECV: ret = recv(fd, bytes, 40, 0); break;
	case READ: ret = read(fd, bytes, 40); break;
	case READV: ret = readv(fd, &part, 1); break;
	case RECVFROM: ret = recvfrom(fd, bytes, 40, 0, NULL, NULL); break;
	case RECVMSG: ret = recvmsg(fd, &one_message.msg_hdr, 0); break;
	case RECVMMSG: ret = recvmmsg(fd, &one_message, 1, 0, NULL); break;
	case SEND: ret = send(fd, bytes, 40, 0); break;
	case WRITE: ret = write(fd, bytes, 40); break;
	case WRITEV: ret = writev(fd, &part, 1); break;
	case SENDTO: ret = sendto(fd, bytes, 40, 0, NULL, 0); break;
	case SENDMSG: ret = sendmsg(fd, &one_message.msg_hdr, 0); break;
	case SENDMMSG: ret = sendmmsg(fd, &one_message, 1, 0); break;
	case SENDFILE: ret = sendfile(fd, task->file, NULL, 40); break;
	case SPLICE: ret = splice(fd, NULL, task->pipe[1], NULL, 40, 0); break;
	case POLL: ret = poll(&one, 1, -1); break;
	case PPOLL: ret = ppoll(&one, 1, &now, NULL); break;
	case SELECT: ret = select(fd + 1, &set, NULL, NULL, &none); break;
	case PSELECT: ret = pselect(fd + 1, &set, NULL, NULL, &now, NULL); break;
	case EPOLL_WAIT: ret = epoll_wait(task->epoll, &event, 1, -1); break;
	case EPOLL_PWAIT: ret = epoll_pwait(task->epoll, &event, 1, -1, NULL); break;
	case CLOSE: ret = close(fd); break;
	case SHUTDOWN: ret = shutdown(fd, SHUT_WR); break;
	case DUP: ret = dup(fd) >= 0; break;
	case IOCTL: ret = ioctl(fd, FIONREAD, &count); break;
	case FCNTL: ret = fcntl(fd, F_GETFL); break;
	case BY_NUMBER: ret = syscall(SYS_recvfrom, fd, bytes, 40, 0, NULL, NULL); break;
	case CALLS: break;
	}
	return (void *)ret;
}

int main(void)
{
	char bytes[4096] = { 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int which = 0; which < CALLS; which++) {
		struct task task = { which, echoing_peer(), fileno(tmpfile()), epoll_create1(0), { 0 } };
		struct epoll_event event = { .events = EPOLLIN };
		pthread_t thread;
		long left = 0, got;
		void *ret;

		if (pipe(task.pipe) || write(task.file, bytes, 4096) != 4096 || lseek(task.file, 0, SEEK_SET))
			die("set up", which);
		for (int i = 0; i < 50; i++)
			if (send(task.fd, bytes, 100, 0) != 100 || recv(task.fd, bytes, 100, MSG_WAITALL) != 100)
				die("warm", i);
		if (epoll_ctl(task.epoll, EPOLL_CTL_ADD, task.fd, &event))
			die("epoll_ctl", which);
		if (send(task.fd, bytes, 100, 0) != 100 || recv(task.fd, bytes, 100, MSG_WAITALL | MSG_PEEK) != 100)
			die("unread", which);
		if (pthread_create(&thread, NULL, call, &task) || pthread_join(thread, &ret))
			die("thread", which);
		/* The whole answer is 100 bytes, and what the call sent, less what it received. */
		send(task.fd, bytes, 60, MSG_NOSIGNAL);
		shutdown(task.fd, SHUT_WR);
		while ((got = recv(task.fd, bytes, sizeof(bytes), 0)) > 0)
			left += got;
		if (ret == PTHREAD_CANCELED)
			printf("%s: cancelled, %ld left, end %ld\n", names[which], left, got);
		else
			printf("%s: returned %ld, %ld left, end %ld\n", names[which], (long)ret, left, got);
		close(task.fd);
		close(task.epoll);
		close(task.file);
	}
	return 0;
}
