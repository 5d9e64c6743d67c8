/* An echo in the shape of .NET's SocketAsyncEngine: one thread is always in epoll_wait, on an
 * edge-triggered set that has every socket once and for good, and hands what is ready to workers.
 * A worker's read tries first and is taken up again by the next edge.
 *
 * engine WORKERS       says `port NUMBER` */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 4096, EVENTS = 1024, ROOM = 65536 };

/* A socket's place: what came while a worker has it is seen by that worker. */
enum state { IDLE, QUEUED, BUSY, AGAIN };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static enum state state[MOST];
static int queue[MOST];
static unsigned first, last;
static int set, listener;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void add(int fd)
{
	struct epoll_event event = { EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, { .fd = fd } };
	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
		fail("epoll_ctl");
}

static void admit(void)
{
	int fd, one = 1;
	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		if (fd >= MOST)
			exit(1);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		add(fd);
	}
	if (errno != EAGAIN)
		fail("accept");
}

/* Until there is nothing more; false at the end. */
static int serve(int fd, char *room)
{
	ssize_t got, put, done;
	while ((got = recv(fd, room, ROOM, 0)) > 0)
		for (done = 0; done < got; done += put) {
			put = send(fd, room + done, got - done, MSG_NOSIGNAL);
			if (put < 0 && errno != EAGAIN)
				return 0;
			if (put < 0)
				put = 0;
		}
	return got < 0 && errno == EAGAIN;
}

static void *work(void *unused)
{
	char *room = malloc(ROOM);
	for (;;) {
		pthread_mutex_lock(&lock);
		while (first == last)
			pthread_cond_wait(&more, &lock);
		int fd = queue[first++ % MOST];
		do {
			state[fd] = BUSY;
			pthread_mutex_unlock(&lock);
			if (!serve(fd, room)) {
				/* Gone from the tables before its number can come back. */
				pthread_mutex_lock(&lock);
				state[fd] = IDLE;
				close(fd);
				break;
			}
			pthread_mutex_lock(&lock);
		} while (state[fd] == AGAIN);
		state[fd] = IDLE;
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

static void ready(int fd)
{
	pthread_mutex_lock(&lock);
	if (state[fd] == IDLE) {
		state[fd] = QUEUED;
		queue[last++ % MOST] = fd;
		pthread_cond_signal(&more);
	} else if (state[fd] == BUSY) {
		state[fd] = AGAIN;
	}
	pthread_mutex_unlock(&lock);
}

int main(int count, char **words)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof at;
	int workers = count > 1 ? atoi(words[1]) : 2;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1024) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		fail("listener");
	set = epoll_create1(EPOLL_CLOEXEC);
	add(listener);
	printf("port %d\n", ntohs(at.sin_port));
	fflush(stdout);
	while (workers-- > 0) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, work, NULL))
			fail("thread");
	}
	for (;;) {
		struct epoll_event events[EVENTS];
		int found = epoll_wait(set, events, EVENTS, -1);
		if (found < 0 && errno != EINTR)
			fail("epoll_wait");
		for (int at = 0; at < found; at++) {
			if (events[at].data.fd == listener)
				admit();
			else if (events[at].events & ~EPOLLOUT)
				ready(events[at].data.fd);
		}
	}
}
