/*
 * A server of several threads around several sets echoes, in every way that sets have; clients of another process
 * check each byte and each end. Nobody is forgotten.
 *
 *   served SEED SECONDS WHAT...       WHAT: what happens besides, of signals and forks
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "pair.h"

enum {
	SETS = 3,
	SERVING = 4,
	CLIENTS = 4,
	CONNECTIONS = 4096,
	HELD = 16384,
	MESSAGE_MOST = 9000,
	MESSAGE_USUAL = 300,
	/* So many messages are under way at most: the kernel's buffers hold them. */
	UNDER_WAY = 8,
	EVENTS = 8,
	ROUND_MS = 700,
	FORGOTTEN_S = 40,
};

/* How a connection stands in sets. */
enum way { LEVEL, EDGE, ONCE, EDGE_ONCE, EXCLUSIVE, TWO_SETS, MOVED, TWO_NUMBERS, WAYS };

static const char *const way_names[WAYS] = { "level",     "edge",     "once",  "edge once",
					     "exclusive", "two sets", "moved", "two numbers" };

struct connection {
	pthread_mutex_t lock;
	int fd, copy, set, is_closed;
	enum way way;
	/* Read and not yet sent: held[at..len]. */
	unsigned at, len;
	uint64_t echoed;
	char held[HELD];
};

static struct connection *connections;
static unsigned connection_count;
static int open_count;
static int listener, over;
static int sets[SETS], outer[SETS], set_copies[SETS];
static unsigned set_count, serving_count;
static int is_blocking;
static int has_signals, has_forks;
static unsigned round_seed;

static struct timespec round_end;

static int is_round_over(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > round_end.tv_sec ||
	       (now.tv_sec == round_end.tv_sec && now.tv_nsec > round_end.tv_nsec);
}

static unsigned roll(unsigned *seed, unsigned most)
{
	return (unsigned)rand_r(seed) % most;
}

/* Again, when a signal's handler ran. */
#define UNBROKEN(call)                                                                                               \
	({                                                                                                           \
		long ret_;                                                                                           \
		do                                                                                                   \
			ret_ = (call);                                                                               \
		while (ret_ < 0 && errno == EINTR);                                                                  \
		ret_;                                                                                                \
	})

static void ctl(int op, int set, int fd, unsigned events, struct connection *connection)
{
	struct epoll_event event = { .events = events, .data.ptr = connection };

	if (epoll_ctl(sets[set], op, fd, &event))
		die("epoll_ctl", op);
}

static unsigned events_of(struct connection *connection)
{
	int is_full = connection->at < connection->len;

	switch (connection->way) {
	case EDGE:
		return EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
	case ONCE:
	case MOVED:
		return (is_full ? EPOLLOUT : EPOLLIN) | EPOLLONESHOT;
	case EDGE_ONCE:
		return (is_full ? EPOLLOUT : EPOLLIN | EPOLLRDHUP) | EPOLLONESHOT | EPOLLET;
	case EXCLUSIVE:
		return EPOLLIN | EPOLLEXCLUSIVE;
	default:
		return is_full ? EPOLLOUT : EPOLLIN;
	}
}

static void enters(struct connection *connection)
{
	ctl(EPOLL_CTL_ADD, connection->set, connection->fd, events_of(connection), connection);
	if (connection->way == TWO_NUMBERS)
		ctl(EPOLL_CTL_ADD, connection->set, connection->copy, events_of(connection), connection);
	if (connection->way == EXCLUSIVE || connection->way == TWO_SETS)
		for (unsigned set = 0; set < set_count; set++)
			if ((int)set != connection->set)
				ctl(EPOLL_CTL_ADD, (int)set, connection->fd, events_of(connection), connection);
}

/* What the sets are to wait for has changed, or a one-shot registration is spent. */
static void changes(struct connection *connection, unsigned *seed)
{
	switch (connection->way) {
	case EDGE:
	case EXCLUSIVE:
		return;
	case MOVED:
		ctl(EPOLL_CTL_DEL, connection->set, connection->fd, 0, NULL);
		connection->set = (int)roll(seed, set_count);
		ctl(EPOLL_CTL_ADD, connection->set, connection->fd, events_of(connection), connection);
		return;
	case TWO_SETS:
		for (unsigned set = 0; set < set_count; set++)
			ctl(EPOLL_CTL_MOD, (int)set, connection->fd, events_of(connection), connection);
		return;
	case TWO_NUMBERS:
		ctl(EPOLL_CTL_MOD, connection->set, connection->copy, events_of(connection), connection);
		/* fall through */
	default:
		ctl(EPOLL_CTL_MOD, connection->set, connection->fd, events_of(connection), connection);
	}
}

static void closes(struct connection *connection)
{
	connection->is_closed = 1;
	close(connection->fd);
	if (connection->copy >= 0)
		close(connection->copy);
	__atomic_fetch_sub(&open_count, 1, __ATOMIC_SEQ_CST);
}

static long receives(int fd, char *bytes, size_t len, unsigned *seed)
{
	struct iovec halves[2] = { { bytes, len / 2 }, { bytes + len / 2, len - len / 2 } };
	struct msghdr msg = { .msg_iov = halves, .msg_iovlen = 2 };
	int waiting;

	switch (roll(seed, 6)) {
	case 0:
		return recvmsg(fd, &msg, MSG_DONTWAIT);
	case 1:
		if (!is_blocking)
			return readv(fd, halves, 2);
		break;
	case 2:
		if (!is_blocking)
			return read(fd, bytes, len);
		break;
	case 3:
		if (recv(fd, bytes, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
			return 0;
		break;
	case 4:
		if (ioctl(fd, FIONREAD, &waiting))
			die("ioctl", fd);
		if (waiting && (size_t)waiting < len)
			len = (size_t)waiting;
		break;
	}
	return recv(fd, bytes, len, MSG_DONTWAIT);
}

/* Whether all is sent. Otherwise TCP's buffer is full. */
static int flushes(struct connection *connection)
{
	while (connection->at < connection->len) {
		long sent = UNBROKEN(send(connection->fd, connection->held + connection->at,
					  connection->len - connection->at, MSG_DONTWAIT | MSG_NOSIGNAL));

		if (sent < 0) {
			if (errno == EAGAIN)
				return 0;
			/* The client closed it with bytes unread. */
			if (errno != ECONNRESET && errno != EPIPE)
				die("echo", connection->fd);
			connection->len = connection->at;
			break;
		}
		connection->at += (unsigned)sent;
		connection->echoed += (uint64_t)sent;
	}
	connection->at = connection->len = 0;
	return 1;
}

/* Serves an event of the connection. */
static void serves(struct connection *connection, unsigned *seed)
{
	int until_dry, was_full;

	pthread_mutex_lock(&connection->lock);
	if (connection->is_closed)
		goto done;
	until_dry = connection->way == EDGE || roll(seed, 2);
	was_full = connection->at < connection->len;
	for (;;) {
		if (!flushes(connection)) {
			if (connection->way != EXCLUSIVE)
				break;
			struct pollfd one = { .fd = connection->fd, .events = POLLOUT };

			UNBROKEN(poll(&one, 1, -1));
			continue;
		}
		long got = UNBROKEN(receives(connection->fd, connection->held, 1 + roll(seed, HELD - 1), seed));

		if (got == 0 || (got < 0 && errno == ECONNRESET)) {
			closes(connection);
			goto done;
		}
		if (got < 0) {
			if (errno != EAGAIN)
				die("receive", connection->fd);
			break;
		}
		connection->len = (unsigned)got;
		if (!until_dry && flushes(connection))
			break;
	}
	if (connection->way == ONCE || connection->way == EDGE_ONCE || connection->way == MOVED ||
	    was_full != (connection->at < connection->len))
		changes(connection, seed);
done:
	pthread_mutex_unlock(&connection->lock);
}

static void accepts(unsigned *seed)
{
	int fd = (int)UNBROKEN(accept4(listener, NULL, NULL, is_blocking ? 0 : SOCK_NONBLOCK));
	int one = 1;

	if (fd < 0 && errno == EAGAIN)
		return;
	if (fd < 0)
		die("accept", 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	unsigned number = __atomic_fetch_add(&connection_count, 1, __ATOMIC_SEQ_CST);

	if (number >= CONNECTIONS)
		die("connections", number);
	struct connection *connection = &connections[number];

	connection->fd = fd;
	connection->copy = -1;
	connection->way = (enum way)roll(seed, WAYS);
	connection->set = (int)roll(seed, set_count);
	if (connection->way == TWO_NUMBERS)
		connection->copy = dup(fd);
	if (roll(seed, 8) == 0) {
		connection->fd = dup(fd);
		close(fd);
	}
	__atomic_fetch_add(&open_count, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&connection->lock);
	enters(connection);
	pthread_mutex_unlock(&connection->lock);
}

static int waits(int set, struct epoll_event *events, unsigned *seed)
{
	struct pollfd one = { .fd = sets[set], .events = POLLIN };
	struct epoll_event upper;
	fd_set reading;
	sigset_t none;
	int timeout = roll(seed, 3) ? -1 : (int)roll(seed, 20);

	switch (roll(seed, 6)) {
	case 0:
		sigemptyset(&none);
		return epoll_pwait(sets[set], events, EVENTS, timeout, &none);
	case 1:
		poll(&one, 1, timeout);
		break;
	case 2:
		FD_ZERO(&reading);
		FD_SET(sets[set], &reading);
		select(sets[set] + 1, &reading, NULL, NULL, NULL);
		break;
	case 3:
		epoll_wait(outer[set], &upper, 1, timeout);
		break;
	case 4:
		return epoll_wait(set_copies[set], events, EVENTS, timeout);
	default:
		return epoll_wait(sets[set], events, 1 + (int)roll(seed, EVENTS), timeout);
	}
	return epoll_wait(sets[set], events, EVENTS, 0);
}

static void *is_a_server(void *numbered)
{
	unsigned number = (unsigned)(long)numbered, seed = round_seed + 100 * number;
	int set = (int)(number % set_count);
	struct epoll_event events[EVENTS];

	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		int count = waits(set, events, &seed);

		if (count < 0 && errno != EINTR)
			die("wait", set);
		for (int i = 0; i < count; i++)
			if (events[i].data.ptr == &listener)
				accepts(&seed);
			else if (events[i].data.ptr)
				serves(events[i].data.ptr, &seed);
	}
	return NULL;
}

static void nothing(int signal)
{
	(void)signal;
}

static pthread_t threads[SERVING + CLIENTS];
static unsigned thread_count;

/* Signals to the threads, and children that do nothing. */
static void *disturbs(void *seeded)
{
	unsigned seed = (unsigned)(long)seeded;

	while (!is_round_over()) {
		usleep((useconds_t)roll(&seed, 5000));
		if (has_signals)
			pthread_kill(threads[roll(&seed, thread_count)], SIGUSR1);
		if (has_forks && roll(&seed, 4) == 0) {
			pid_t child = fork();

			if (!child)
				_exit(0);
			UNBROKEN(waitpid(child, NULL, 0));
		}
	}
	return NULL;
}

/* The clients. */

static struct sockaddr_in at;
static time_t heard[CLIENTS];
static int doing[CLIENTS];
static char byte_at(uint64_t place, unsigned salt)
{
	return (char)(place * 7 + (place >> 8) + salt);
}

struct stream {
	int fd;
	unsigned salt;
	uint64_t sent, received;
};

static long sends_some(struct stream *stream, unsigned len, int flags, unsigned *seed)
{
	char bytes[MESSAGE_MOST];

	for (unsigned i = 0; i < len; i++)
		bytes[i] = byte_at(stream->sent + i, stream->salt);
	struct iovec halves[2] = { { bytes, len / 2 }, { bytes + len / 2, len - len / 2 } };
	long sent;

	if (flags || roll(seed, 2))
		sent = UNBROKEN(send(stream->fd, bytes, len, flags | MSG_NOSIGNAL));
	else
		sent = UNBROKEN(writev(stream->fd, halves, 2));
	if (sent > 0)
		stream->sent += (uint64_t)sent;
	else if (sent == 0 || errno != EAGAIN)
		die("client's send", sent);
	return sent;
}

/* 0 at the end, -1 if there is nothing. */
static long receives_some(struct stream *stream, int flags, unsigned *seed)
{
	char bytes[MESSAGE_MOST];
	long got = UNBROKEN(recv(stream->fd, bytes, 1 + roll(seed, MESSAGE_MOST), flags));

	for (long i = 0; i < got; i++)
		if (bytes[i] != byte_at(stream->received + (uint64_t)i, stream->salt))
			die("other bytes", (long)stream->received + i);
	if (got > 0)
		stream->received += (uint64_t)got;
	else if (got < 0 && errno != EAGAIN)
		die("client's receive", (long)stream->received);
	return got;
}

static unsigned length(unsigned *seed)
{
	return 1 + roll(seed, roll(seed, 16) ? MESSAGE_USUAL : MESSAGE_MOST);
}

static void in_turn(struct stream *stream, unsigned *seed)
{
	for (unsigned i = 1 + roll(seed, UNDER_WAY); i; i--) {
		uint64_t until = stream->sent + length(seed);

		while (stream->sent < until)
			sends_some(stream, (unsigned)(until - stream->sent), 0, seed);
	}
	while (stream->received < stream->sent)
		if (receives_some(stream, 0, seed) == 0)
			die("early end", (long)stream->received);
}

/* By a set or poll, as much as TCP takes, for some messages. */
static void at_once(struct stream *stream, unsigned *seed)
{
	int set = epoll_create1(0), is_edge = (int)roll(seed, 2), by_poll = (int)roll(seed, 2);
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | (is_edge ? EPOLLET : 0) };
	uint64_t until = stream->sent + 20u * length(seed);

	if (!by_poll && epoll_ctl(set, EPOLL_CTL_ADD, stream->fd, &event))
		die("client's set", set);
	while (stream->received < until) {
		struct pollfd one = { .fd = stream->fd, .events = POLLIN };

		if (stream->sent < until)
			one.events |= POLLOUT;
		if (by_poll)
			UNBROKEN(poll(&one, 1, -1));
		else
			UNBROKEN(epoll_wait(set, &event, 1, -1));
		/* In turn, until both are at an end: an edge is told once. */
		for (int is_moving = 1; is_moving && stream->received < until;) {
			is_moving = 0;
			if (stream->sent < until) {
				unsigned len = (unsigned)(until - stream->sent);

				is_moving |= sends_some(stream, len < MESSAGE_MOST ? len : MESSAGE_MOST, MSG_DONTWAIT,
							seed) > 0;
			}
			long got = receives_some(stream, MSG_DONTWAIT, seed);

			if (got == 0)
				die("early end", (long)stream->received);
			is_moving |= got > 0;
		}
	}
	close(set);
}

static void ends(struct stream *stream, unsigned *seed)
{
	switch (roll(seed, 4)) {
	case 0:
		break;
	case 1:
		/* Unread: a reset. */
		sends_some(stream, length(seed), 0, seed);
		break;
	default:
		sends_some(stream, length(seed), 0, seed);
		if (shutdown(stream->fd, SHUT_WR))
			die("shutdown", stream->fd);
		while (receives_some(stream, 0, seed) > 0)
			;
		if (stream->received != stream->sent)
			die("lost", (long)(stream->sent - stream->received));
	}
	close(stream->fd);
}

static void *is_a_client(void *numbered)
{
	unsigned number = (unsigned)(long)numbered, seed = round_seed + 7000 + 13 * number;
	struct stream streams[3] = { { 0 } };
	unsigned count = 1 + roll(&seed, 3);
	int one = 1;

	for (unsigned i = 0; i < count; i++)
		streams[i].fd = -1;
	while (!is_round_over()) {
		struct stream *stream = &streams[roll(&seed, count)];

		doing[number] = stream->fd;
		__atomic_store_n(&heard[number], time(NULL), __ATOMIC_RELAXED);
		if (stream->fd < 0) {
			*stream = (struct stream){ .fd = socket(AF_INET, SOCK_STREAM, 0), .salt = roll(&seed, 256) };
			if (UNBROKEN(connect(stream->fd, (void *)&at, sizeof(at))) && errno != EISCONN)
				die("connect", 0);
			setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		}
		for (unsigned i = roll(&seed, 60); i; i--)
			if (roll(&seed, 10))
				in_turn(stream, &seed);
			else
				at_once(stream, &seed);
		if (roll(&seed, round_seed % 2 ? 4 : 100) == 0) {
			ends(stream, &seed);
			stream->fd = -1;
		}
		if (roll(&seed, 8) == 0)
			usleep((useconds_t)roll(&seed, 3000));
	}
	for (unsigned i = 0; i < count; i++)
		if (streams[i].fd >= 0)
			ends(&streams[i], &seed);
	__atomic_store_n(&heard[number], 0, __ATOMIC_RELAXED);
	return NULL;
}

static void *watches_over_clients(void *nothing_given)
{
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		time_t now = time(NULL);

		for (unsigned i = 0; i < CLIENTS; i++) {
			time_t last = __atomic_load_n(&heard[i], __ATOMIC_RELAXED);

			if (last && now - last > FORGOTTEN_S) {
				printf("client %u is forgotten: descriptor %d, seed %u\n", i, doing[i], round_seed);
				fflush(stdout);
				_exit(2);
			}
		}
		usleep(100000);
	}
	return nothing_given;
}

static void begins(void *(*first)(void *), unsigned count)
{
	thread_count = 0;
	for (unsigned i = 0; i < count; i++)
		pthread_create(&threads[thread_count++], NULL, first, (void *)(long)i);
}

static _Noreturn void clients(void)
{
	pthread_t watch, disturbance;

	begins(is_a_client, CLIENTS);
	pthread_create(&watch, NULL, watches_over_clients, NULL);
	if (has_signals)
		pthread_create(&disturbance, NULL, disturbs, (void *)(long)(round_seed + 1));
	/* Before the threads end: no signal is for one that was joined. */
	if (has_signals)
		pthread_join(disturbance, NULL);
	for (unsigned i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

static void has_a_round(void)
{
	unsigned seed = round_seed;
	socklen_t len = sizeof(at);
	uint64_t one = 1;
	int status, end = eventfd(0, EFD_NONBLOCK);

	memset(connections, 0, CONNECTIONS * sizeof(*connections));
	connection_count = 0;
	over = 0;
	is_blocking = (int)roll(&seed, 2);
	set_count = 1 + roll(&seed, SETS);
	serving_count = set_count + roll(&seed, SERVING - set_count + 1);
	at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (bind(listener, (void *)&at, len) || listen(listener, 64) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	clock_gettime(CLOCK_MONOTONIC, &round_end);
	round_end.tv_nsec += ROUND_MS * 1000000L;
	round_end.tv_sec += round_end.tv_nsec / 1000000000;
	round_end.tv_nsec %= 1000000000;
	pid_t child = fork();

	if (!child)
		clients();
	for (unsigned i = 0; i < set_count; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = &listener };

		sets[i] = epoll_create1(0);
		set_copies[i] = dup(sets[i]);
		outer[i] = epoll_create1(0);
		event.events = EPOLLIN | (roll(&seed, 2) ? EPOLLEXCLUSIVE : 0);
		epoll_ctl(sets[i], EPOLL_CTL_ADD, listener, &event);
		event = (struct epoll_event){ .events = EPOLLIN };
		epoll_ctl(sets[i], EPOLL_CTL_ADD, end, &event);
		epoll_ctl(outer[i], EPOLL_CTL_ADD, sets[i], &event);
	}
	pthread_t disturbance;

	begins(is_a_server, serving_count);
	if (has_signals || has_forks)
		pthread_create(&disturbance, NULL, disturbs, (void *)(long)round_seed);
	if (UNBROKEN(waitpid(child, &status, 0)) != child)
		die("waitpid", child);
	for (int i = 0; __atomic_load_n(&open_count, __ATOMIC_SEQ_CST); i++) {
		if (status || i > FORGOTTEN_S * 100) {
			for (unsigned j = 0; j < connection_count && j < CONNECTIONS; j++)
				if (connections[j].fd && !connections[j].is_closed)
					printf("open: descriptor %d, %s, set %d, %lu echoed, holds %u\n", connections[j].fd,
					       way_names[connections[j].way], connections[j].set,
					       (unsigned long)connections[j].echoed,
					       connections[j].len - connections[j].at);
			printf("%s, %u sets, %u threads, seed %u, status %d\n", is_blocking ? "blocking" : "non-blocking",
			       set_count, serving_count, round_seed, status);
			fflush(stdout);
			_exit(1);
		}
		usleep(10000);
	}
	if (has_signals || has_forks)
		pthread_join(disturbance, NULL);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	if (write(end, &one, sizeof(one)) != sizeof(one))
		die("over", end);
	for (unsigned i = 0; i < serving_count; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < set_count; i++) {
		close(sets[i]);
		close(set_copies[i]);
		close(outer[i]);
	}
	close(end);
	close(listener);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = nothing };
	time_t until = time(NULL) + atoi(argv[2]);

	for (int i = 3; i < argc; i++) {
		has_signals |= !strcmp(argv[i], "signals");
		has_forks |= !strcmp(argv[i], "forks");
	}
	connections = calloc(CONNECTIONS, sizeof(*connections));
	for (round_seed = (unsigned)atoi(argv[1]); time(NULL) < until; round_seed++) {
		action.sa_flags = round_seed % 2 ? SA_RESTART : 0;
		sigaction(SIGUSR1, &action, NULL);
		has_a_round();
	}
	puts("all there");
	return 0;
}
