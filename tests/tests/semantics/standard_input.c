/*
 * A program gets a connection with bytes unread as its standard input, as from inetd, and reads it by stdio.
 *
 *   standard_input            prints a line for each case
 *   standard_input WAY        the program: reads a line of standard input and another one, and says what they are
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "pair.h"

extern char **environ;

enum { FGETS, GETLINE, FREAD, SCANF, GETCHAR, GETC, UNLOCKED, UNBUFFERED, OPENED, COPIED, BY_READ, FIRST_BY_READ, WAYS };

static const char *ways[] = {
	"fgets", "getline", "fread", "scanf", "getchar", "getc", "getc_unlocked", "without a buffer", "fdopen",
	"fdopen of a copy", "read", "read of one byte first",
};

enum { FORK, VFORK, SPAWN, KEPT, SHELL, STARTS };

static const char *starts[] = { "fork", "vfork", "posix_spawn", "fork, and kept", "system" };

enum { FIRST = 3000, SECOND = 300 };

static FILE *input;

static void reads_line(int way, char *line, int room)
{
	char *other = NULL;
	size_t size = 0;
	FILE *stream;
	int n = 0, byte;

	switch (way) {
	case GETLINE:
		if (getline(&other, &size, stdin) > 0)
			snprintf(line, room, "%s", other);
		break;
	case FREAD:
		line[fread(line, 1, FIRST, stdin)] = 0;
		break;
	case SCANF:
		if (scanf("%3990s", line) != 1 || getchar() != '\n')
			strcpy(line, "none");
		break;
	case GETCHAR:
		while ((byte = getchar()) != EOF && byte != '\n')
			line[n++] = byte;
		break;
	case GETC:
		while ((byte = getc(stdin)) != EOF && byte != '\n')
			line[n++] = byte;
		break;
	case UNLOCKED:
		while ((byte = getc_unlocked(stdin)) != EOF && byte != '\n')
			line[n++] = byte;
		break;
	case OPENED:
	case COPIED:
		stream = fdopen(way == OPENED ? 0 : dup(0), "r");
		if (!stream || !fgets(line, room, stream))
			strcpy(line, "none");
		/* This one has read on. */
		input = stream;
		break;
	case BY_READ:
		while (read(0, line + n, 1) == 1 && line[n] != '\n')
			n++;
		break;
	case FIRST_BY_READ:
		if (read(0, line, 1) != 1 || !fgets(line + 1, room - 1, stdin))
			strcpy(line, "none");
		break;
	default:
		if (way == UNBUFFERED)
			setvbuf(stdin, NULL, _IONBF, 0);
		if (!fgets(line, room, stdin))
			strcpy(line, "none");
	}
	line[strcspn(line, "\n")] = 0;
}

/* The program. */
static int says(int way)
{
	char line[4000] = "", next[4000] = "";

	input = stdin;
	reads_line(way, line, sizeof(line));
	if (!fgets(next, sizeof(next), input))
		strcpy(next, "none");
	next[strcspn(next, "\n")] = 0;
	printf("%zu %.4s, then %zu %.4s\n", strlen(line), line, strlen(next), next);
	return 0;
}

static void sends(int fd, char byte, int len)
{
	char line[FIRST];

	memset(line, byte, len);
	line[len - 1] = '\n';
	if (send(fd, line, len, MSG_NOSIGNAL) != len)
		die("send", len);
}

static pid_t begins(int start, const int ends[2], int way)
{
	char word[8], shell[300], name[200] = "";
	char *words[] = { name, word, NULL };
	posix_spawn_file_actions_t actions;
	pid_t child = 0;

	snprintf(word, sizeof(word), "%d", way);
	if (readlink("/proc/self/exe", name, sizeof(name) - 1) < 0)
		die("readlink", 0);
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	switch (start) {
	case FORK:
	case KEPT:
	case VFORK:
		child = start == VFORK ? vfork() : fork();
		if (child == 0) {
			dup2(ends[1], 0);
			dup2(ends[1], 1);
			fcntl(ends[1], F_SETFD, FD_CLOEXEC);
			execv(name, words);
			_exit(1);
		}
		break;
	case SPAWN:
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
		posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
		posix_spawn(&child, name, &actions, NULL, words, environ);
		break;
	default:
		snprintf(shell, sizeof(shell), "%s %d <&%d >&%d &", name, way, ends[1], ends[1]);
		if (system(shell))
			die(shell, 0);
	}
	if (start != KEPT)
		close(ends[1]);
	return child;
}

static void one(int start, int way)
{
	char answer[200] = "";
	int ends[2], n = 0;
	ssize_t got;
	pid_t child;

	connects(ends);
	sends(ends[0], 'A', FIRST);
	child = begins(start, ends, way);
	/* It has read what there was. */
	usleep(20000);
	sends(ends[0], 'B', SECOND);
	while (!strchr(answer, '\n') && (got = recv(ends[0], answer + n, sizeof(answer) - 1 - n, 0)) > 0)
		n += got;
	answer[strcspn(answer, "\n")] = 0;
	printf("%s, %s: %s\n", starts[start], ways[way], n ? answer : got ? strerror(errno) : "nothing");
	if (child)
		waitpid(child, NULL, 0);
	close(ends[0]);
	if (start == KEPT)
		close(ends[1]);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return says(atoi(argv[1]));
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	for (int start = FORK; start < STARTS; start++)
		for (int way = FGETS; way < WAYS; way++)
			one(start, way);
	return 0;
}
