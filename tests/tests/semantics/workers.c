/*
 * Workers wait by the numbers of one epoll set and answer with what they got; clients check every byte, and come
 * and go. Others change the registrations meanwhile, give the set another number, put connections into a second set
 * or into a set of their own, and fork.
 *
 *   workers SEED SECONDS HOW          HOW: level, edge, oneshot, both (edge and one-shot), mixed
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "pair.h"

enum {
	CLIENTS = 6,
	WORKERS = 3,
	OTHERS = 2,
	NUMBERS = 4,
	/* Descriptors of the program's are below. */
	MOST = 1024,
	BYTES_MOST = 1900,
	BYTES_USUAL = 200,
	ASKS = 300,
	WAIT_MS = 100,
	/* A client that waits for so long has been forgotten. */
	FORGOTTEN_S = 20,
};

struct served {
	pthread_mutex_t lock;
	int is_open, is_in_second;
};

static struct sockaddr_in at;
static struct served all[MOST];
static int numbers[NUMBERS];
static int listener, first_set, second_set;
static volatile int clients_stop, workers_stop;
static const char *how;

static unsigned events(int fd)
{
	static const unsigned mixed[] = { 0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT };
	static const char *const names[] = { "level", "edge", "oneshot", "both" };

	for (unsigned i = 0; i < 4; i++)
		if (!strcmp(how, names[i]))
			return EPOLLIN | mixed[i];
	return EPOLLIN | mixed[fd % 4];
}

static int control(int set, int what, int fd)
{
	struct epoll_event event = { .events = events(fd), .data.fd = fd };

	return epoll_ctl(set, what, fd, &event);
}

static void *accepts(void *unused)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), one = 1;

		if (fd < 0)
			return unused;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		pthread_mutex_lock(&all[fd].lock);
		all[fd].is_open = 1;
		all[fd].is_in_second = 0;
		if (control(first_set, EPOLL_CTL_ADD, fd))
			die("add", fd);
		pthread_mutex_unlock(&all[fd].lock);
	}
}

/* Sends back what is there. False: the connection is over. */
static int answers(int fd)
{
	char bytes[700];

	for (;;) {
		ssize_t len = read(fd, bytes, sizeof(bytes));

		if (len <= 0)
			return len < 0 && errno == EAGAIN;
		for (ssize_t sent = 0; sent < len;) {
			struct pollfd room = { .fd = fd, .events = POLLOUT };
			ssize_t ret = write(fd, bytes + sent, (size_t)(len - sent));

			if (ret < 0 && errno == EAGAIN)
				poll(&room, 1, WAIT_MS);
			else if (ret < 0)
				return 0;
			else
				sent += ret;
		}
		if (!(events(fd) & EPOLLET))
			return 1;
	}
}

static void serves(int fd)
{
	struct served *served = &all[fd];

	pthread_mutex_lock(&served->lock);
	if (served->is_open && !answers(fd)) {
		served->is_open = 0;
		close(fd);
	} else if (served->is_open && events(fd) & EPOLLONESHOT) {
		control(first_set, EPOLL_CTL_MOD, fd);
		if (served->is_in_second)
			control(second_set, EPOLL_CTL_MOD, fd);
	}
	pthread_mutex_unlock(&served->lock);
}

static void *works(void *seeded)
{
	unsigned seed = (unsigned)(long)seeded;
	struct epoll_event told[4];

	while (!workers_stop) {
		int set = __atomic_load_n(&numbers[rand_r(&seed) % NUMBERS], __ATOMIC_ACQUIRE);
		int count = epoll_wait(set, told, 1 + rand_r(&seed) % 4, rand_r(&seed) % WAIT_MS);

		for (int i = 0; i < count; i++)
			serves(told[i].data.fd);
	}
	return NULL;
}

static void *works_on_second(void *seeded)
{
	unsigned seed = (unsigned)(long)seeded;
	struct epoll_event told[4];

	while (!workers_stop) {
		struct pollfd one = { .fd = second_set, .events = POLLIN };

		if (rand_r(&seed) % 2)
			poll(&one, 1, WAIT_MS);
		int count = epoll_wait(second_set, told, 4, rand_r(&seed) % WAIT_MS);

		for (int i = 0; i < count; i++)
			serves(told[i].data.fd);
	}
	return NULL;
}

/* One of the numbers of the set is another one from now on. */
static void renumbers(unsigned *seed)
{
	int copy = dup(first_set);
	int old = __atomic_exchange_n(&numbers[1 + rand_r(seed) % (NUMBERS - 1)], copy, __ATOMIC_ACQ_REL);

	if (old != first_set) {
		usleep(1000);
		close(old);
	}
}

static void does(unsigned what, int fd)
{
	struct served *served = &all[fd];
	struct epoll_event told;
	int set;

	switch (what) {
	case 0:
		control(first_set, EPOLL_CTL_MOD, fd);
		return;
	case 1:
		if (control(first_set, EPOLL_CTL_DEL, fd) || control(first_set, EPOLL_CTL_ADD, fd))
			die("delete and add", fd);
		return;
	case 2:
		if (control(second_set, served->is_in_second ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, fd))
			die("second set", fd);
		served->is_in_second = !served->is_in_second;
		return;
	case 3:
		close(dup(fd));
		return;
	default:
		set = epoll_create1(0);
		control(set, EPOLL_CTL_ADD, fd);
		epoll_wait(set, &told, 1, 0);
		close(set);
	}
}

static void *changes(void *seeded)
{
	unsigned seed = (unsigned)(long)seeded;

	while (!workers_stop) {
		int fd = (int)((unsigned)rand_r(&seed) % 64);
		unsigned what = (unsigned)rand_r(&seed) % 64;

		usleep((useconds_t)rand_r(&seed) % 200);
		pthread_mutex_lock(&all[fd].lock);
		if (all[fd].is_open)
			does(what % 5, fd);
		pthread_mutex_unlock(&all[fd].lock);
		if (what == 5) {
			renumbers(&seed);
		} else if (what == 6) {
			pid_t child = fork();

			if (!child)
				_exit(0);
			waitpid(child, NULL, 0);
		}
	}
	return NULL;
}

static void asks(int fd, unsigned *seed)
{
	char out[BYTES_MOST], in[BYTES_MOST];
	size_t len = 4 + (size_t)rand_r(seed) % (rand_r(seed) % 8 ? BYTES_USUAL : BYTES_MOST - 4);
	size_t half = rand_r(seed) % 2 ? len / 2 : len;

	for (size_t i = 0; i < len; i++)
		out[i] = (char)rand_r(seed);
	if (send(fd, out, half, 0) != (ssize_t)half)
		die("send", fd);
	if (half < len && send(fd, out + half, len - half, 0) != (ssize_t)(len - half))
		die("send the rest", fd);
	if (recv(fd, in, len, MSG_WAITALL) != (ssize_t)len)
		die("forgotten", fd);
	if (memcmp(in, out, len))
		die("other bytes", fd);
}

static void *comes_and_goes(void *seeded)
{
	unsigned seed = (unsigned)(long)seeded;

	while (!clients_stop) {
		struct timeval time = { .tv_sec = FORGOTTEN_S };
		int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
		int count = rand_r(&seed) % 4 ? ASKS : ASKS / 20;
		char byte;

		if (connect(fd, (void *)&at, sizeof(at)))
			die("connect", fd);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
		for (int i = 0; i < count && !clients_stop; i++) {
			asks(fd, &seed);
			if (rand_r(&seed) % 50 == 0)
				usleep((useconds_t)rand_r(&seed) % 3000);
		}
		if (rand_r(&seed) % 2 && (shutdown(fd, SHUT_WR) || recv(fd, &byte, 1, 0) != 0))
			die("end", fd);
		close(fd);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t accepting, clients[CLIENTS], workers[WORKERS], second, others[OTHERS];
	socklen_t len = sizeof(at);
	long seed = atoi(argv[1]);

	how = argv[argc - 1];
	for (int i = 0; i < MOST; i++)
		pthread_mutex_init(&all[i].lock, NULL);
	at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&at, len) || listen(listener, CLIENTS) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	first_set = epoll_create1(0);
	second_set = epoll_create1(0);
	for (int i = 0; i < NUMBERS; i++)
		numbers[i] = first_set;
	pthread_create(&accepting, NULL, accepts, NULL);
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&workers[i], NULL, works, (void *)(seed += 91));
	pthread_create(&second, NULL, works_on_second, (void *)(seed += 91));
	for (int i = 0; i < OTHERS; i++)
		pthread_create(&others[i], NULL, changes, (void *)(seed += 91));
	for (int i = 0; i < CLIENTS; i++)
		pthread_create(&clients[i], NULL, comes_and_goes, (void *)(seed += 91));
	sleep((unsigned)atoi(argv[2]));
	clients_stop = 1;
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(clients[i], NULL);
	workers_stop = 1;
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	pthread_join(second, NULL);
	for (int i = 0; i < OTHERS; i++)
		pthread_join(others[i], NULL);
	puts("all there");
	fflush(stdout);
	_exit(0);
}
