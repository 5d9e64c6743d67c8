/*
 * A server that has another program write to a connection, which that program has as its standard input though the
 * connection closes on exec (posix_spawn_file_actions_adddup2). Server and client are threads of this process. The
 * server answers, and now and then tells the program to write five bytes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ROUNDS = 100, TURNS = 4, BYTES = 100 };

static void move(int fd, char *at, size_t len, int sends)
{
	while (len > 0) {
		ssize_t ret = sends ? send(fd, at, len, 0) : recv(fd, at, len, 0);

		if (ret <= 0) {
			perror(sends ? "send" : "recv");
			exit(1);
		}
		at += ret;
		len -= ret;
	}
}

static void round_trips(int fd, int first)
{
	char bytes[BYTES];

	for (int i = 0; i < ROUNDS; i++) {
		memset(bytes, 'q', BYTES);
		move(fd, bytes, BYTES, first);
		move(fd, bytes, BYTES, !first);
		if (memchr(bytes, 'C', BYTES)) {
			puts("bytes came too early");
			exit(1);
		}
	}
}

static void *client(void *arg)
{
	int fd = *(int *)arg;
	char bytes[5];

	for (int turn = 0; turn < TURNS; turn++) {
		round_trips(fd, 1);
		if (turn == TURNS - 1)
			break;
		move(fd, bytes, sizeof(bytes), 0);
		if (memcmp(bytes, "CCCC\n", sizeof(bytes))) {
			printf("wrong: %.5s\n", bytes);
			exit(1);
		}
	}
	return NULL;
}

int main(void)
{
	char *words[] = { "sh", "-c", "while read x <&5; do echo CCCC >&0; echo >&6; done", NULL };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	posix_spawn_file_actions_t actions;
	int listener, fds[2], tell[2], told[2];
	pthread_t thread;
	pid_t pid;
	char byte;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (void *)&address, len) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &len))
		return 2;
	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fds[0], (void *)&address, len))
		return 2;
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fds[1] < 0 || pipe2(tell, O_CLOEXEC) || pipe2(told, O_CLOEXEC))
		return 2;
	posix_spawn_file_actions_init(&actions);
	/* First: the others' numbers may be its own. */
	posix_spawn_file_actions_adddup2(&actions, fds[1], 0);
	posix_spawn_file_actions_adddup2(&actions, fcntl(tell[0], F_DUPFD_CLOEXEC, 30), 5);
	posix_spawn_file_actions_adddup2(&actions, fcntl(told[1], F_DUPFD_CLOEXEC, 30), 6);
	if (posix_spawnp(&pid, "sh", &actions, NULL, words, environ))
		return 2;
	pthread_create(&thread, NULL, client, &fds[0]);
	for (int turn = 0; turn < TURNS; turn++) {
		round_trips(fds[1], 0);
		if (turn < TURNS - 1 && (write(tell[1], "\n", 1) != 1 || read(told[0], &byte, 1) != 1))
			return 2;
	}
	pthread_join(thread, NULL);
	kill(pid, 9);
	waitpid(pid, NULL, 0);
	puts("done");
	return 0;
}
