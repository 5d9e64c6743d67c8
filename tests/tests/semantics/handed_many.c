/*
 * Connections with bytes unread that go to another process over a Unix socket: many at a time, and
 * some that are received only after a while.
 */
#define _GNU_SOURCE
#include "pair.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { AT_ONCE = 250, UNREAD = 100, ANSWER = 10 };

static const char SECRET[] = "this was read before, and is nobody else's";

static void gives(int via, const int *numbers, int count)
{
	char control[CMSG_SPACE(AT_ONCE * sizeof(int))] = { 0 };
	struct iovec one = { "x", 1 };
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = CMSG_SPACE(count * sizeof(int)) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	*head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
				  .cmsg_len = CMSG_LEN(count * sizeof(int)) };
	memcpy(CMSG_DATA(head), numbers, count * sizeof(int));
	if (sendmsg(via, &msg, 0) != 1)
		die("sendmsg", count);
}

static int takes(int via, int *numbers)
{
	char control[CMSG_SPACE(AT_ONCE * sizeof(int))], byte;
	struct iovec one = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *head;
	int count;

	if (recvmsg(via, &msg, 0) != 1)
		return 0;
	head = CMSG_FIRSTHDR(&msg);
	count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(numbers, CMSG_DATA(head), count * sizeof(int));
	return count;
}

/* The other process: each connection's bytes, and an answer. */
static _Noreturn void serves(int via, int after_s)
{
	int numbers[AT_ONCE], count, whole = 0, all = 0;
	char wanted[UNREAD], bytes[UNREAD];

	sleep(after_s);
	while ((count = takes(via, numbers)) > 0) {
		for (int i = 0; i < count; i++, all++) {
			memset(wanted, all % 251, UNREAD);
			whole += recv(numbers[i], bytes, UNREAD, MSG_WAITALL) == UNREAD &&
				 !memcmp(bytes, wanted, UNREAD);
			send(numbers[i], wanted, ANSWER, MSG_NOSIGNAL);
			close(numbers[i]);
		}
	}
	printf("%d of %d read whole\n", whole, all);
	fflush(stdout);
	_exit(0);
}

/* Whether what the library leaves to others holds bytes that were read before. */
static int tells_secrets(void)
{
	char path[300], target[100], *found = NULL;
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;

	while (!found && (entry = readdir(folder))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		ssize_t len = readlink(path, target, sizeof(target) - 1);
		if (len < 0 || strncmp(target, "/memfd:yasmin-residue", 21))
			continue;
		static char bytes[4 << 20];
		int file = open(path, O_RDONLY);
		ssize_t size = read(file, bytes, sizeof(bytes));
		if (size > 0)
			found = memmem(bytes, size, SECRET, sizeof(SECRET));
		close(file);
	}
	closedir(folder);
	return found != NULL;
}

static void passes(const char *what, int connections, int after_s)
{
	int (*ends)[2] = calloc(connections, sizeof(*ends)), *numbers = calloc(connections, sizeof(int));
	char bytes[UNREAD];
	int pair[2], answered = 0, secrets = 0;

	printf("%s: ", what);
	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair", 0);
	pid_t pid = fork();
	if (!pid) {
		close(pair[0]);
		serves(pair[1], after_s);
	}
	close(pair[1]);
	for (int i = 0; i < connections; i++) {
		connects(ends[i]);
		for (int turn = 0; turn < 30; turn++)
			if (send(ends[i][0], SECRET, sizeof(SECRET), 0) != sizeof(SECRET) ||
			    recv(ends[i][1], bytes, sizeof(SECRET), MSG_WAITALL) != sizeof(SECRET))
				die("secret", i);
		memset(bytes, i % 251, UNREAD);
		if (send(ends[i][0], bytes, UNREAD, 0) != UNREAD)
			die("send", i);
		numbers[i] = ends[i][1];
	}
	for (int from = 0; from < connections; from += AT_ONCE) {
		int count = connections - from < AT_ONCE ? connections - from : AT_ONCE;
		gives(pair[0], numbers + from, count);
		secrets += tells_secrets();
		for (int i = from; i < from + count; i++)
			close(numbers[i]);
	}
	close(pair[0]);
	waitpid(pid, NULL, 0);
	for (int i = 0; i < connections; i++) {
		memset(bytes, 0, ANSWER);
		answered += recv(ends[i][0], bytes, ANSWER, MSG_WAITALL) == ANSWER &&
			    bytes[0] == (char)(i % 251);
		close(ends[i][0]);
	}
	printf("%s: %d answered, %d tell what was read before\n", what, answered, secrets);
	free(numbers);
	free(ends);
}

int main(void)
{
	struct rlimit numbers;

	setvbuf(stdout, NULL, _IOLBF, 0);
	getrlimit(RLIMIT_NOFILE, &numbers);
	numbers.rlim_cur = numbers.rlim_max;
	setrlimit(RLIMIT_NOFILE, &numbers);
	passes("one", 1, 0);
	passes("many", AT_ONCE + 50, 0);
	/* Longer than a moment, which is what the broker waits before it looks for who comes. */
	passes("late", 3, 7);
	return 0;
}
