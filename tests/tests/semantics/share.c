// A process answers each message of another one, which thinks for a moment before the next: of so
// many waits, how many slept.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAITS = 4000, THINKS_NS = 30000 };

static void take(int socket)
{
	char message[64];
	if (recv(socket, message, sizeof message, MSG_WAITALL) != sizeof message)
		_exit(2);
}

static void give(int socket)
{
	char message[64] = "answer";
	if (send(socket, message, sizeof message, 0) != sizeof message)
		_exit(2);
}

static long long now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void think(void)
{
	for (long long until = now_ns() + THINKS_NS; now_ns() < until;)
		;
}

static long sleeps(void)
{
	struct rusage used;
	getrusage(RUSAGE_SELF, &used);
	return used.ru_nvcsw;
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&at, bytes) || listen(listener, 1)
		|| getsockname(listener, (struct sockaddr *)&at, &bytes))
		return 1;
	if (fork() == 0) {
		int socket_ = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(socket_, (struct sockaddr *)&at, bytes))
			_exit(1);
		for (int nth = 0; nth < WAITS; nth++) {
			think();
			give(socket_);
			take(socket_);
		}
		_exit(0);
	}
	int served = accept(listener, NULL, NULL);
	long before = sleeps();
	for (int nth = 0; nth < WAITS; nth++) {
		take(served);
		give(served);
	}
	printf("%ld of %d waits slept\n", sleeps() - before, WAITS);
	int status;
	wait(&status);
	return status != 0;
}
