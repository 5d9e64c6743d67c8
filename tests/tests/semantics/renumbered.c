/*
 * A child that borrows its parent's memory, or has a copy of it, puts a connection with bytes unread where a program looks
 * for its input, closes its old number or not, and becomes that program, which may have another limit of descriptors than the parent, or be
 * a text that only libc's search gives to the shell. The parent reads on, or has closed it. A process that was forked
 * before has the connection, too, and never reads; or the parent has a thousand files open.
 *
 *   renumbered            prints a line for each case
 *   renumbered reads      the program: answers a line
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "pair.h"

enum { KEPT, CLOSED, CLOSED_RANGE, CLOSED_FROM, MOVED, WAYS };

static const char *ways[] = { "kept", "closed", "close_range", "closefrom", "moved" };

enum { ALL = 0, SMALLEST = 20, SMALL = 64, RAISED = 1024, FILES = 1000 };

static const int limits[] = { ALL, SMALLEST, SMALL, RAISED };

enum { ALONE, SIBLING, FULL, BESIDES };

static const char *besides[] = { "alone", "a sibling", "full" };

static char text[64], itself[200];

static void limit(int count)
{
	struct rlimit was;

	getrlimit(RLIMIT_NOFILE, &was);
	was.rlim_cur = count;
	setrlimit(RLIMIT_NOFILE, &was);
}

static int reads(void)
{
	char line[100];
	int n = 0;

	while (n < 99 && read(0, line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = 0;
	printf("got %s\n", line);
	return 0;
}

static void becomes(int end, int way, int count, int is_text)
{
	int other = end;

	if (way == MOVED) {
		other = fcntl(end, F_DUPFD, 12);
		close(end);
	}
	dup2(other, 0);
	dup2(other, 1);
	if (way == CLOSED || way == MOVED)
		close(other);
	else if (way == CLOSED_RANGE)
		close_range(3, ~0u, 0);
	else if (way == CLOSED_FROM)
		closefrom(3);
	if (count != ALL)
		limit(count);
	if (is_text)
		execlp(text, text, NULL);
	else
		execl(itself, itself, "reads", NULL);
	_exit(127);
}

static int received(int fd, char *to)
{
	struct timeval within = { .tv_sec = 5 };
	int n = 0;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof(within));
	while (n < 99 && recv(fd, to + n, 1, 0) == 1 && to[n] != '\n')
		n++;
	to[n] = 0;
	return n;
}

static void plays(int beside, int forks, int way, int count, int is_text, int closes)
{
	char answer[100], rest[100] = "closed";
	int ends[2], status;
	pid_t child, sibling = 0;
	int files = 0;

	if (count == RAISED)
		limit(SMALL);
	if (beside == FULL) {
		limit(FILES + RAISED);
		while (files < FILES && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
			files++;
	}
	connects(ends);
	if (beside == SIBLING) {
		sibling = fork();
		if (sibling == 0) {
			pause();
			_exit(0);
		}
	}
	for (int i = 0; beside != ALONE && i < 10; i++)
		talks(ends);
	for (int end = 0; end < 2; end++)
		fcntl(ends[end], F_SETFD, FD_CLOEXEC);
	if (send(ends[0], "alpha\nrest\n", 11, MSG_NOSIGNAL) != 11)
		die("send", 11);
	child = forks ? fork() : vfork();
	if (child == 0)
		becomes(ends[1], way, count, is_text);
	if (closes)
		close(ends[1]);
	received(ends[0], answer);
	/* One that waits for ever would read the rest. */
	if (strcmp(answer, "got alpha"))
		kill(child, SIGKILL);
	waitpid(child, &status, 0);
	if (!closes)
		received(ends[1], rest);
	printf("%s, %s, %s, limit %d, %s: %s, %s\n", besides[beside], forks ? "fork" : "vfork", ways[way], count, is_text ? "text" : "program", answer, rest);
	fflush(stdout);
	close(ends[0]);
	if (!closes)
		close(ends[1]);
	if (sibling) {
		kill(sibling, SIGKILL);
		waitpid(sibling, &status, 0);
	}
	if (files)
		close_range(3, ~0u, 0);
	if (count == RAISED || beside == FULL)
		limit(RAISED);
}

int main(int argc, char **argv)
{
	static const char script[] = "read line\necho got $line\n";
	int file;

	if (argc > 1)
		return reads();
	limit(RAISED);
	readlink("/proc/self/exe", itself, sizeof(itself) - 1);
	snprintf(text, sizeof(text), "/tmp/yasmin-renumbered-%d", getpid());
	file = open(text, O_WRONLY | O_CREAT | O_EXCL, 0700);
	if (file < 0 || write(file, script, sizeof(script) - 1) < 0)
		die("text", file);
	close(file);
	for (int way = 0; way < WAYS; way++)
		for (int nth = 0; nth < 4; nth++)
			for (int is_text = 0; is_text < 2; is_text++)
				for (int closes = 0; closes < 2; closes++)
					for (int forks = 0; forks < 2; forks++)
						plays(ALONE, forks, way, limits[nth], is_text, closes);
	for (int beside = SIBLING; beside < BESIDES; beside++)
		for (int forks = 0; forks < 2; forks++)
			for (int closes = 0; closes < 2; closes++)
				plays(beside, forks, CLOSED, ALL, 0, closes);
	unlink(text);
	return 0;
}
