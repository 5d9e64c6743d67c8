/* Threads that are cancelled in calls on a connection; see cancel.rs.
 *
 *   cancel listen          echoes on every connection; prints its port first
 *   cancel connect PORT    prints a line for each way of being cancelled
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static void *echo(void *arg)
{
	int fd = (int)(long)arg;
	char bytes[4096];
	ssize_t got;

	while ((got = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		for (ssize_t done = 0; done < got;) {
			ssize_t sent = send(fd, bytes + done, got - done, MSG_NOSIGNAL);
			if (sent <= 0)
				goto out;
			done += sent;
		}
out:
	close(fd);
	return NULL;
}

static _Noreturn void serve(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(!bind(fd, (void *)&at, len) && !listen(fd, 64), "listen");
	check(!getsockname(fd, (void *)&at, &len), "getsockname");
	printf("port %d\n", ntohs(at.sin_port));
	fflush(stdout);
	for (;;) {
		pthread_t thread;
		int peer = accept(fd, NULL, NULL);

		check(peer >= 0, "accept");
		check(!pthread_create(&thread, NULL, echo, (void *)(long)peer), "thread");
		pthread_detach(thread);
	}
}

struct task {
	const char *how;
	int fd, epoll;
	_Atomic int tid, cleaned, undone;
	_Atomic long sent, received;
};

static void round_trip(int fd)
{
	char bytes[100] = { 0 };

	check(send(fd, bytes, 100, MSG_NOSIGNAL) == 100, "send");
	check(recv(fd, bytes, 100, MSG_WAITALL) == 100, "recv");
}

static void clean(void *arg)
{
	((struct task *)arg)->cleaned++;
}

static void wait_here(struct task *task)
{
	struct pollfd one = { .fd = task->fd, .events = POLLIN };
	struct epoll_event event;
	struct msghdr msg = { 0 };
	struct iovec part;
	static char bytes[1 << 20];
	fd_set set;

	part = (struct iovec){ bytes, 100 };
	msg.msg_iov = &part;
	msg.msg_iovlen = 1;
	if (!strcmp(task->how, "recv"))
		recv(task->fd, bytes, 100, 0);
	else if (!strcmp(task->how, "waitall"))
		recv(task->fd, bytes, 100, MSG_WAITALL);
	else if (!strcmp(task->how, "read"))
		(void)!read(task->fd, bytes, 100);
	else if (!strcmp(task->how, "readv"))
		(void)!readv(task->fd, &part, 1);
	else if (!strcmp(task->how, "recvmsg"))
		recvmsg(task->fd, &msg, 0);
	else if (!strcmp(task->how, "poll"))
		poll(&one, 1, -1);
	else if (!strcmp(task->how, "select")) {
		FD_ZERO(&set);
		FD_SET(task->fd, &set);
		select(task->fd + 1, &set, NULL, NULL, NULL);
	} else if (!strcmp(task->how, "epoll"))
		epoll_wait(task->epoll, &event, 1, -1);
	else if (!strcmp(task->how, "send"))
		for (;;)
			task->sent += send(task->fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
	else if (!strcmp(task->how, "busy"))
		/* Never asleep for long: cancelled on its way into a call. */
		for (;;) {
			task->sent += send(task->fd, bytes, 100, MSG_NOSIGNAL);
			task->received += recv(task->fd, bytes, 100, 0);
		}
	else if (!strcmp(task->how, "polls"))
		for (;;)
			task->received += poll(&one, 1, 0);
}

static void *run(void *arg)
{
	struct task *task = arg;

	pthread_cleanup_push(clean, task);
	task->tid = syscall(SYS_gettid);
	wait_here(task);
	task->undone = 1;
	pthread_cleanup_pop(0);
	return NULL;
}

static int sleeps(int tid)
{
	char path[64], line[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	file = fopen(path, "r");
	check(file != NULL && fgets(line, sizeof(line), file), path);
	fclose(file);
	return strstr(line, ") S ") != NULL;
}

static int connected(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(!connect(fd, (void *)&at, sizeof(at)), "connect");
	for (int i = 0; i < 50; i++)
		round_trip(fd);
	return fd;
}

static void cancelled(const char *how, int port)
{
	struct task task = { .how = how, .fd = connected(port), .epoll = epoll_create1(0) };
	struct epoll_event event = { .events = EPOLLIN };
	int is_busy = !strcmp(how, "busy") || !strcmp(how, "polls");
	long received = 0;
	char bytes[4096];
	pthread_t thread;
	ssize_t got;
	void *result;

	check(!epoll_ctl(task.epoll, EPOLL_CTL_ADD, task.fd, &event), "epoll_ctl");
	check(!pthread_create(&thread, NULL, run, &task), "thread");
	while (!task.tid)
		sched_yield();
	if (is_busy)
		while (!strcmp(how, "busy") && task.received < 100000)
			sched_yield();
	else
		for (int seen = 0; seen < 5; usleep(1000))
			seen = sleeps(task.tid) ? seen + 1 : 0;
	check(!pthread_cancel(thread), "cancel");
	check(!pthread_join(thread, &result), "join");
	printf("%s: %s, cleaned up %d, went on %d\n", how,
	       result == PTHREAD_CANCELED ? "cancelled" : "returned", task.cleaned, task.undone);
	/* Nothing that it held is held any more, and no byte is lost. */
	/* What a busy thread had sent when it ended, libc does not say. */
	if (strcmp(how, "send") && strcmp(how, "busy")) {
		check(send(task.fd, bytes, 100, MSG_NOSIGNAL) == 100, "send");
		shutdown(task.fd, SHUT_WR);
		while ((got = recv(task.fd, bytes, sizeof(bytes), 0)) > 0)
			received += got;
		printf("%s: %ld left over\n", how, received - 100);
	}
	close(task.fd);
	close(task.epoll);
	fflush(stdout);
}

static void *not_now(void *arg)
{
	struct task *task = arg;
	char bytes[100];

	pthread_cleanup_push(clean, task);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	task->tid = syscall(SYS_gettid);
	task->received = recv(task->fd, bytes, 100, MSG_WAITALL);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	task->undone = 1;
	round_trip(task->fd);
	task->undone = 2;
	pthread_cleanup_pop(0);
	return NULL;
}

static void put_off(int port)
{
	struct task task = { .fd = connected(port) };
	char bytes[100] = { 0 };
	pthread_t thread;

	check(!pthread_create(&thread, NULL, not_now, &task), "thread");
	while (!task.tid || !sleeps(task.tid))
		sched_yield();
	check(!pthread_cancel(thread), "cancel");
	check(send(task.fd, bytes, 100, MSG_NOSIGNAL) == 100, "send");
	pthread_join(thread, NULL);
	printf("put off: received %ld, cleaned up %d, went on %d\n", task.received, task.cleaned,
	       task.undone);
	close(task.fd);
}

int main(int count, char **arguments)
{
	static const char *ways[] = { "recv", "waitall", "read", "readv", "recvmsg", "poll",
				      "select", "epoll", "send", "busy", "polls" };

	if (count == 2 && !strcmp(arguments[1], "listen"))
		serve();
	if (count != 3)
		return 2;
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		cancelled(ways[i], atoi(arguments[2]));
	put_off(atoi(arguments[2]));
	return 0;
}
