/*
 * clone(2) by libc's function, without the parent's memory: a fork whose child has a stack of its own, as
 * sandboxes make it. Parent and child go on with the connection by turns.
 *
 *   cloned
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "peer.h"

enum { ROUNDS = 30, TRIPS = 200, STACK_BYTES = 1 << 18 };

static int s;

static void talk(long who)
{
	for (int trip = 0; trip < TRIPS; trip++) {
		long sent[2] = { who, trip }, got[2];

		if (send(s, sent, sizeof(sent), MSG_NOSIGNAL) != sizeof(sent) ||
		    recv(s, got, sizeof(got), MSG_WAITALL) != sizeof(got) || memcmp(sent, got, sizeof(got)))
			die("talk", who);
	}
}

static int child(void *who)
{
	talk((long)who);
	return 7;
}

int main(void)
{
	int status;
	char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED)
		die("mmap", 0);
	s = echoing_peer();
	for (long round = 0; round < ROUNDS; round++) {
		pid_t pid, waited;

		talk(2 * round);
		pid = clone(child, stack + STACK_BYTES, SIGCHLD, (void *)(2 * round + 1));
		if (pid < 0)
			die("clone", round);
		do {
			waited = waitpid(pid, &status, 0);
		} while (waited < 0 && errno == EINTR);
		if (waited != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
			die("child", status);
	}
	puts("all there");
	return 0;
}
