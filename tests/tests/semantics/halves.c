/*
 * Connections that are read by one number and written by a copy of it, as programs do that give the halves to two
 * objects or two threads. The copies are made before anything went over them. Prints "all there" once both ends have a
 * ring, where the library is, and TRIPS messages more came as they were sent.
 *
 *   halves turns COPIES    one thread, which reads and writes by each of so many copies in turn; with more than four
 *                          nothing need have a ring
 *   halves threads         a thread sends by one number while another one receives by the other one, both ways
 *   halves set             both numbers of both ends in one epoll set, edge-triggered
 *   halves closed          the number that was accepted is closed in the middle of it, and other copies are made
 *   halves child           a child holds all of them for a while
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "pair.h"

/* So many numbers of one socket may have a ring. */
enum { NUMBERS = 4 };
enum { TRIPS = 3000, BYTES = 96, TRIES = 4000, NAP_US = 2000, EACH = 20, MOST = 8 };

static int numbers[2][MOST], copies = 2;
static unsigned number;

static int wants_more(int trip)
{
	static int since = -1;

	if (since < 0 && (!getenv("LD_PRELOAD") || rings() >= 2 || copies > NUMBERS))
		since = trip;
	if (since < 0 && trip % EACH == 0)
		usleep(NAP_US);
	if (since < 0 && trip > TRIES * EACH)
		die("no rings", rings());
	return since < 0 || trip < since + TRIPS;
}

static void fill(unsigned *bytes, unsigned number)
{
	for (unsigned i = 0; i < BYTES / sizeof(*bytes); i++)
		bytes[i] = number * 31 + i;
}

static void check(const unsigned *bytes, unsigned number)
{
	unsigned right[BYTES / sizeof(*bytes)];

	fill(right, number);
	if (memcmp(bytes, right, BYTES))
		die("another number", bytes[0]);
}

static void goes(int from, int to)
{
	unsigned out[BYTES / 4], in[BYTES / 4];

	fill(out, ++number);
	if (write(from, out, BYTES) != BYTES)
		die("write", number);
	if (recv(to, in, BYTES, MSG_WAITALL) != BYTES)
		die("receive", number);
	check(in, number);
}

static void turns(void)
{
	for (int trip = 0; wants_more(trip); trip++)
		for (int end = 0; end < 2; end++)
			goes(numbers[end][trip % copies], numbers[!end][(trip + 1 + end) % copies]);
}

static atomic_int is_over;

static void *sends(void *numbers)
{
	unsigned out[BYTES / 4];

	for (unsigned i = 1; !is_over; i++) {
		fill(out, i);
		if (write(((int *)numbers)[1], out, BYTES) != BYTES)
			die("write", i);
	}
	shutdown(((int *)numbers)[1], SHUT_WR);
	return NULL;
}

static void *receives(void *numbers)
{
	unsigned in[BYTES / 4];
	ssize_t got;

	for (unsigned i = 1; (got = recv(((int *)numbers)[0], in, BYTES, MSG_WAITALL)) == BYTES; i++)
		check(in, i);
	if (got)
		die("receive", got);
	return NULL;
}

static void threads(void)
{
	pthread_t all[4];

	for (int end = 0; end < 2; end++) {
		pthread_create(&all[end], NULL, sends, numbers[end]);
		pthread_create(&all[2 + end], NULL, receives, numbers[end]);
	}
	for (int trip = 0; wants_more(trip); trip += 100)
		usleep(NAP_US);
	is_over = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
}

/* Waits for the edge of each message. */
static void set(void)
{
	int set = epoll_create1(0);
	struct epoll_event events[4];
	unsigned out[BYTES / 4], in[BYTES / 4];

	for (int end = 0; end < 2; end++)
		for (int half = 0; half < 2; half++) {
			struct epoll_event asked = { half ? EPOLLOUT | EPOLLET : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
						     { .u32 = 2 * end + half } };

			if (epoll_ctl(set, EPOLL_CTL_ADD, numbers[end][half], &asked))
				die("epoll_ctl", end);
		}
	for (int trip = 0; wants_more(trip); trip++)
		for (int end = 0, got = 0; end < 2; end++, got = 0) {
			fill(out, ++number);
			if (write(numbers[end][0], out, BYTES) != BYTES)
				die("write", number);
			while (got < BYTES) {
				int count = epoll_wait(set, events, 4, 5000), is_told = 0;

				if (count <= 0)
					die("epoll_wait", count);
				for (int i = 0; i < count; i++)
					is_told |= events[i].data.u32 == 2u * !end && events[i].events & EPOLLIN;
				while (is_told && got < BYTES) {
					ssize_t ret = recv(numbers[!end][0], (char *)in + got, BYTES - got, MSG_DONTWAIT);

					if (ret <= 0)
						break;
					got += ret;
				}
			}
			check(in, number);
		}
}

static void closed(void)
{
	for (int trip = 0; wants_more(trip); trip++) {
		for (int end = 0; end < 2; end++)
			goes(numbers[end][trip % copies], numbers[!end][(trip + 1 + end) % copies]);
		if (trip % 7 == 0) {
			int end = trip % 2, half = trip / 14 % 2;

			close(numbers[end][half]);
			numbers[end][half] = dup(numbers[end][!half]);
		}
	}
}

static void child(void)
{
	int ends[2], before = rings();
	char byte;
	pid_t other;

	if (pipe(ends))
		die("pipe", 0);
	other = fork();
	if (!other) {
		close(ends[1]);
		exit(read(ends[0], &byte, 1) != 0);
	}
	for (int trip = 0; trip < 500; trip++)
		for (int end = 0; end < 2; end++)
			goes(numbers[end][0], numbers[!end][1]);
	if (!before && rings())
		die("rings beside a child", rings());
	close(ends[1]);
	waitpid(other, NULL, 0);
	turns();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{ "turns", turns }, { "threads", threads }, { "set", set }, { "closed", closed }, { "child", child },
	};
	int ends[2];

	copies = argc > 2 ? atoi(argv[2]) : 2;
	opens(ends);
	for (int end = 0; end < 2; end++) {
		numbers[end][0] = ends[end];
		for (int i = 1; i < copies; i++)
			numbers[end][i] = dup(ends[end]);
	}
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(argv[1], all[i].name))
			all[i].run();
	puts("all there");
	return 0;
}
