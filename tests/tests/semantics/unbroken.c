/*
 * Calls that wait send and receive all that they were given, while another thread forks, starts programs and passes
 * the descriptors on, for each of which the connection may become plain TCP in the middle of the call.
 *
 *   unbroken fork|spawn|vfork|dup
 */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pair.h"

enum { CONNECTIONS = 40, ROUNDS = 12, BYTES = 600000, NAP_US = 300 };

static int ends[2];
static volatile int is_over;
static unsigned char out[BYTES];

static void *sends(void *unused)
{
	struct iovec halves[2] = { { out, BYTES / 2 }, { out + BYTES / 2, BYTES - BYTES / 2 } };
	struct msghdr msg = { .msg_iov = halves, .msg_iovlen = 2 };

	for (int i = 0; i < ROUNDS; i++) {
		ssize_t ret;

		if (i % 3 == 0)
			ret = send(ends[0], out, BYTES, 0);
		else if (i % 3 == 1)
			ret = write(ends[0], out, BYTES);
		else
			ret = sendmsg(ends[0], &msg, 0);
		if (ret != BYTES)
			die("sent", ret);
	}
	return unused;
}

extern char **environ;

static void *disturbs(void *how)
{
	char *words[] = { "true", NULL };

	while (!is_over) {
		pid_t child = -1;

		usleep(NAP_US);
		if (!strcmp(how, "fork"))
			child = fork();
		else if (!strcmp(how, "vfork"))
			child = vfork();
		else if (!strcmp(how, "dup"))
			close(dup(ends[0])), close(dup(ends[1]));
		else if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ))
			die("spawn", 0);
		if (!child)
			_exit(0);
		if (child > 0)
			waitpid(child, NULL, 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static unsigned char in[BYTES];
	sigset_t ended;

	/* posix_spawn blocks signals for a moment: one that comes then is not ignored, and ends another thread's call. */
	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &ended, NULL);
	for (int i = 0; i < BYTES; i++)
		out[i] = (unsigned char)(i * 7 + i / 251);
	for (int i = 0; i < CONNECTIONS; i++) {
		pthread_t sending, disturbing;

		meets(ends);
		is_over = 0;
		pthread_create(&disturbing, NULL, disturbs, argv[argc - 1]);
		pthread_create(&sending, NULL, sends, NULL);
		for (int round = 0; round < ROUNDS; round++) {
			ssize_t ret = recv(ends[1], in, BYTES, MSG_WAITALL);

			if (ret != BYTES)
				die("received", ret);
			if (memcmp(in, out, BYTES))
				die("other bytes", round);
		}
		pthread_join(sending, NULL);
		is_over = 1;
		pthread_join(disturbing, NULL);
		close(ends[0]);
		close(ends[1]);
	}
	puts("all there");
	return 0;
}
