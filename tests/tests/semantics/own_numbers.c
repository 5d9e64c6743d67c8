/*
 * A thread gets a descriptor table of its own, or a process shares its parent's: a number is one file here and
 * another there, or changes while this process does nothing.
 *
 *   own_numbers thread close|open|range     unshare(CLONE_FILES), then closes the connection's number, opens
 *                                           another file there, or closes all
 *   own_numbers thread close_range          all at once by CLOSE_RANGE_UNSHARE
 *   own_numbers clone by_name|by_number     CLONE_FILES without CLONE_VM: both put new connections at the number
 */
#define _GNU_SOURCE
#include "peer.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { WARM = 2000, TURNS = 30, STACK = 1 << 18 };

static const char *how;
static int fd, another;
static atomic_int stage;

static void trips(int on, int count)
{
	while (count-- > 0) {
		unsigned char sent[100], got[100];

		memset(sent, count, sizeof(sent));
		if (send(on, sent, sizeof(sent), MSG_NOSIGNAL) != sizeof(sent))
			die("send", count);
		if (recv(on, got, sizeof(got), MSG_WAITALL) != sizeof(got) || memcmp(sent, got, sizeof(got)))
			die("echo", count);
	}
}

static void await(int wanted)
{
	while (stage != wanted)
		usleep(50);
}

static void *goes_its_own_way(void *arg)
{
	char bytes[100] = { 0 };
	int null;

	if (strcmp(how, "close_range") && unshare(CLONE_FILES))
		die("unshare", 0);
	stage = 1;
	await(2);
	if (!strcmp(how, "close_range") && close_range(3, 1 << 20, CLOSE_RANGE_UNSHARE))
		die("close_range", 0);
	if (!strcmp(how, "range") && close_range(3, 1 << 20, 0))
		die("close_range", 0);
	if (!strcmp(how, "close") && close(fd))
		die("close", 0);
	if (!strcmp(how, "open")) {
		null = open("/dev/null", O_RDWR);
		if (dup2(null, fd) != fd)
			die("dup2", fd);
		for (int i = 0; i < 1000; i++)
			if (write(fd, bytes, sizeof(bytes)) != sizeof(bytes) || read(fd, bytes, sizeof(bytes)))
				die("null", i);
	} else if (write(fd, bytes, 1) != -1 || errno != EBADF) {
		die("not closed", fd);
	}
	stage = 3;
	return arg;
}

/* In turns: the other one puts a new connection at the number, this one goes on with it. */
struct shared {
	atomic_int turn;
};

static struct shared *shared;
static struct sockaddr_in at;

static void takes_turn(int mine)
{
	for (int i = 0; i < TURNS; i++) {
		int fresh = socket(AF_INET, SOCK_STREAM, 0);

		while (shared->turn != mine)
			usleep(50);
		trips(fd, 20);
		if (connect(fresh, (void *)&at, sizeof(at)) || dup2(fresh, fd) != fd)
			die("fresh", i);
		close(fresh);
		trips(fd, 20);
		shared->turn = !mine;
	}
}

static int child(void *arg)
{
	(void)arg;
	takes_turn(1);
	_exit(0);
}

/* A peer that takes any number of connections. */
static void serve(int listener)
{
	for (;;) {
		int s = accept(listener, NULL, NULL);
		char buffer[4096];
		ssize_t n;

		if (fork() == 0) {
			close(listener);
			while ((n = recv(s, buffer, sizeof(buffer), 0)) > 0 && send(s, buffer, n, MSG_NOSIGNAL) == n)
				;
			_exit(0);
		}
		close(s);
	}
}

static void clones(void)
{
	socklen_t len = sizeof(at);
	int status, listener = socket(AF_INET, SOCK_STREAM, 0);
	pid_t server, pid;
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)&at, len) || listen(listener, 8) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	signal(SIGCHLD, SIG_DFL);
	server = fork();
	if (server == 0) {
		signal(SIGCHLD, SIG_IGN);
		close(fd);
		serve(listener);
	}
	close(listener);
	if (!strcmp(how, "by_name"))
		pid = clone(child, stack + STACK, CLONE_FILES | SIGCHLD, NULL);
	else if ((pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0)) == 0)
		child(NULL);
	takes_turn(0);
	if (waitpid(pid, &status, 0) != pid || status)
		die("child", status);
	kill(server, SIGKILL);
}

int main(int argc, char **argv)
{
	pthread_t thread;

	how = argc > 2 ? argv[2] : "close";
	fd = echoing_peer();
	another = echoing_peer();
	trips(fd, WARM);
	trips(another, WARM);
	if (!strcmp(argv[1], "clone")) {
		clones();
	} else {
		if (pthread_create(&thread, NULL, goes_its_own_way, NULL))
			die("thread", 0);
		await(1);
		trips(fd, 100);
		stage = 2;
		while (stage != 3)
			trips(fd, 3);
		trips(fd, WARM);
		pthread_join(thread, NULL);
	}
	trips(another, WARM);
	puts("all there");
	return 0;
}
