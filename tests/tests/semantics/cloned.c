/*
 * clone(2) by libc's function, without the parent's memory: a fork whose child has a stack of its own, as
 * sandboxes make it. Parent and child go on with the connection by turns.
 *
 *   cloned
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 30, TRIPS = 200, STACK_BYTES = 1 << 18 };

static int s;

static _Noreturn void die(const char *what, long a)
{
	printf("%s: %ld, %s\n", what, a, strerror(errno));
	exit(1);
}

static void echo(int listener)
{
	char buffer[4096];
	ssize_t n;
	int c = accept(listener, NULL, NULL);

	while ((n = recv(c, buffer, sizeof(buffer), 0)) > 0)
		if (send(c, buffer, n, MSG_NOSIGNAL) != n)
			break;
	_exit(0);
}

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
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), status;
	char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED || bind(listener, (void *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	if (fork() == 0)
		echo(listener);
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (void *)&at, sizeof(at)))
		die("connect", 0);
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
