/* A channel is attached to connections just while another thread makes a copy of the descriptor and sends by it,
   forks, or closes the copy: every byte arrives, in its place. */
#include <pthread.h>
#include <sys/wait.h>
#include "pair.h"

enum { CONNECTIONS = 1000, TALKS = 400, BYTES = 64 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static unsigned sent_number;
static volatile int is_over;

/* The next number, by `fd`, to the other end. */
static void says(int fd, int to)
{
	unsigned out[BYTES / 4] = { 0 }, in[BYTES / 4];

	pthread_mutex_lock(&turn);
	out[0] = out[BYTES / 4 - 1] = ++sent_number;
	if (send(fd, out, BYTES, 0) != BYTES)
		die("send", (long)sent_number);
	if (recv(to, in, BYTES, MSG_WAITALL) != BYTES)
		die("receive", (long)sent_number);
	if (memcmp(in, out, BYTES))
		die("another number", (long)in[0]);
	pthread_mutex_unlock(&turn);
}

static void *disturbs(void *way)
{
	unsigned seed = (unsigned)(long)way;

	while (!is_over) {
		int end = rand_r(&seed) % 2;

		usleep((useconds_t)rand_r(&seed) % 300);
		if ((long)way % 8) {
			int copy = dup(ends[end]);

			says(copy, ends[!end]);
			says(ends[!end], copy);
			close(copy);
		} else {
			pid_t child = fork();

			if (!child)
				_exit(0);
			waitpid(child, NULL, 0);
		}
	}
	return NULL;
}

int main(void)
{
	for (long i = 0; i < CONNECTIONS; i++) {
		pthread_t other;

		meets(ends);
		is_over = 0;
		pthread_create(&other, NULL, disturbs, (void *)i);
		for (int talk = 0; talk < TALKS; talk++) {
			says(ends[talk % 2], ends[!(talk % 2)]);
			if (talk % 8 == 0)
				usleep(50);
		}
		is_over = 1;
		pthread_join(other, NULL);
		close(ends[0]);
		close(ends[1]);
	}
	printf("all there\n");
	return 0;
}
