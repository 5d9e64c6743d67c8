/*
 * Real-time signals while a thread sends and receives. Those of one number are handled in the order in which
 * they were sent, each with its own value, once.
 *
 *   queued thread         sent to the thread
 *   queued process        sent to the process, whose other threads block them
 *   queued mixed          among others, whose handler sends and receives on a connection of its own
 *   queued ignored        and ignored now and then: what comes meanwhile is lost, what came before not told twice
 */
#define _GNU_SOURCE
#include "peer.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { SECONDS = 2, MOST_PENDING = 200, ROUND = 50 };

static pthread_t worker;
static const char *way;
static int fd, others_fd;
static volatile int last, handled, wrong_at;
static atomic_int is_over, dropped;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void trip(int fd, unsigned char with)
{
	unsigned char sent[100], got[100];

	memset(sent, with, sizeof(sent));
	if (send(fd, sent, sizeof(sent), MSG_NOSIGNAL) != sizeof(sent))
		die("send", with);
	if (recv(fd, got, sizeof(got), MSG_WAITALL) != sizeof(got) || memcmp(sent, got, sizeof(got)))
		die("echo", with);
}

static void take(int number, siginfo_t *info, void *context)
{
	int value = info->si_value.sival_int, is_next = value == last + 1;

	(void)number, (void)context;
	if (!strcmp(way, "ignored"))
		is_next = value > last;
	if ((!is_next || info->si_code != SI_QUEUE || info->si_pid != getpid()) && !wrong_at)
		wrong_at = value;
	last = value;
	handled++;
}

static void other(int number, siginfo_t *info, void *context)
{
	(void)number, (void)info, (void)context;
	trip(others_fd, 7);
}

static void install(int is_ignored)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO | SA_RESTART };

	action.sa_sigaction = take;
	if (is_ignored)
		action.sa_handler = SIG_IGN, action.sa_flags = 0;
	sigaction(SIGRTMIN + 1, &action, NULL);
}

static void *sends(void *arg)
{
	unsigned seed = 3;
	int value = 0;

	(void)arg;
	while (!is_over) {
		int n = 1 + rand_r(&seed) % 8;

		if (value - handled - dropped < MOST_PENDING)
			while (n-- > 0) {
				union sigval with = { .sival_int = value + 1 };

				if ((!strcmp(way, "process") ? sigqueue(getpid(), SIGRTMIN + 1, with)
							     : pthread_sigqueue(worker, SIGRTMIN + 1, with)) == 0)
					value++;
				if (!strcmp(way, "mixed"))
					pthread_kill(worker, SIGUSR1);
			}
		/* What was ignored is not waited for. */
		if (!strcmp(way, "ignored") && rand_r(&seed) % 64 == 0)
			dropped = value - handled;
		if (rand_r(&seed) % 4 == 0)
			usleep(rand_r(&seed) % 50);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = other, .sa_flags = SA_SIGINFO | SA_RESTART };
	pthread_t sender;
	sigset_t these, before;
	unsigned long trips = 0;
	double end;

	way = argc > 1 ? argv[1] : "thread";
	worker = pthread_self();
	fd = echoing_peer();
	others_fd = echoing_peer();
	for (int i = 0; i < 2000; i++) {
		trip(fd, i);
		trip(others_fd, i);
	}
	install(0);
	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(&these);
	sigaddset(&these, SIGRTMIN + 1);
	pthread_sigmask(SIG_BLOCK, &these, &before);
	if (pthread_create(&sender, NULL, sends, NULL))
		die("thread", 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	for (end = now() + SECONDS; now() < end && !wrong_at;)
		for (int i = 0; i < ROUND; i++, trips++) {
			trip(fd, trips);
			if (!strcmp(way, "ignored") && trips % 16 == 0) {
				install(1);
				install(0);
			}
		}
	is_over = 1;
	pthread_join(sender, NULL);
	if (wrong_at || handled < 1000)
		printf("%lu trips, %d signals, wrong at %d\n", trips, handled, wrong_at);
	else
		puts("all there");
	return 0;
}
