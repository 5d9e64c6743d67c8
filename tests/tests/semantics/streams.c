/*
 * Connections that libc's streams (stdio) read and write: by numbers of their own and as standard input and
 * output, of bytes and of wide characters, in this program and in one that it starts.
 *
 *   streams CASE     says `all there` once each byte was
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <wchar.h>

#include "pair.h"

enum { LINES = 400, LONGEST = 9000, SEED = 12345 };

static unsigned int seed = SEED;

static unsigned int any(void)
{
	return seed = seed * 1103515245 + 12345;
}

/* Line `number`, without its end: of a length that only its number says. */
static void makes(char *line, int number)
{
	unsigned int at = number * 2654435761u;
	int len = number % 7 ? at % 200 : at % LONGEST;

	for (int i = 0; i < len; i++)
		line[i] = 'a' + (at = at * 1103515245 + 12345) / 65536 % 26;
	line[len] = 0;
}

static void expects(const char *line, int number)
{
	static _Thread_local char own[LONGEST + 1];

	makes(own, number);
	if (strcmp(own, line)) {
		fprintf(stderr, "line %d is %.40s\n", number, line);
		exit(1);
	}
}

static FILE *on(int fd, const char *mode)
{
	FILE *stream = fdopen(fd, mode);

	if (!stream)
		die("fdopen", fd);
	return stream;
}

/* At each end one to read, and one to write by a copy. */
static void opens_streams(int ends[2], FILE *in[2], FILE *out[2])
{
	opens(ends);
	for (int end = 0; end < 2; end++) {
		in[end] = on(ends[end], "r");
		out[end] = on(dup(ends[end]), "w");
	}
}

static void says(FILE *to, int number)
{
	static char line[LONGEST + 1];

	makes(line, number);
	if (fprintf(to, "%s\n", line) < 0 || fflush(to))
		die("fprintf", number);
}

static void hears(FILE *from, int number)
{
	static char line[LONGEST + 2];

	if (!fgets(line, sizeof(line), from))
		die("fgets", number);
	line[strcspn(line, "\n")] = 0;
	expects(line, number);
}

/* One line to and one back, until both ends have a ring where the library is, and some more. */
static void converse(FILE *const in[2], FILE *const out[2], int more)
{
	enum { MOST = 20000 };
	int left = more;

	for (int i = 0; i < MOST && left; i++) {
		says(out[0], i);
		hears(in[1], i);
		says(out[1], i + 1);
		hears(in[0], i + 1);
		if (getenv("LD_PRELOAD") && rings() < 2)
			usleep(1000);
		else
			left--;
	}
}

static void own_copies(int mode)
{
	FILE *in[2], *out[2];
	int ends[2];

	opens_streams(ends, in, out);
	for (int end = 0; end < 2; end++) {
		setvbuf(in[end], NULL, mode, mode == _IONBF ? 0 : 700);
		setvbuf(out[end], NULL, mode, mode == _IONBF ? 0 : 500);
	}
	converse(in, out, LINES);
	/* What is not flushed goes out with the close of one number; the other one goes on. */
	fprintf(out[0], "last");
	if (fclose(out[0]))
		die("fclose", 0);
	says(out[1], 5);
	hears(in[0], 5);
	fclose(in[0]);
	char last[8] = "";
	if (fread(last, 1, sizeof(last), in[1]) != 4 || strcmp(last, "last") || !feof(in[1]))
		die(last, 0);
}

static void one_stream(void)
{
	FILE *both[2];
	int ends[2];

	opens(ends);
	for (int end = 0; end < 2; end++)
		both[end] = on(ends[end], "r+");
	converse(both, both, LINES);
	fclose(both[0]);
	if (fgetc(both[1]) != EOF || ferror(both[1]))
		die("no end", 0);
}

static void wide(void)
{
	wchar_t line[300], other[300];
	FILE *in[2], *out[2];
	int ends[2], left = LINES;

	if (!setlocale(LC_ALL, "C.UTF-8"))
		die("setlocale", 0);
	opens_streams(ends, in, out);
	for (int i = 0; i < 20000 && left; i++) {
		int len = any() % 200 + 1;

		for (int at = 0; at < len; at++)
			line[at] = 0x100 + any() / 65536 % 0x1000;
		line[len] = L'\n';
		line[len + 1] = 0;
		for (int end = 0; end < 2; end++) {
			if (fputws(line, out[end]) < 0 || fflush(out[end]) || !fgetws(other, 300, in[!end]))
				die("wide", i);
			if (wcscmp(line, other))
				die("differ", i);
		}
		if (getenv("LD_PRELOAD") && rings() < 2)
			usleep(1000);
		else
			left--;
	}
}

static uint64_t sum;

static void *takes_all(void *at)
{
	FILE *in = at;
	static unsigned char bytes[50001];
	size_t got;

	while ((got = fread(bytes, 1, any() % sizeof(bytes) + 1, in)) > 0)
		for (size_t i = 0; i < got; i++)
			sum = sum * 31 + bytes[i];
	if (ferror(in))
		die("fread", 0);
	return NULL;
}

static void bulk(void)
{
	enum { PIECES = 1500, MOST = 60000 };
	static unsigned char bytes[MOST];
	unsigned int state = 7;
	uint64_t own = 0;
	FILE *in[2], *out[2];
	pthread_t thread;
	int ends[2];

	opens_streams(ends, in, out);
	converse(in, out, 10);
	pthread_create(&thread, NULL, takes_all, in[1]);
	for (int i = 0; i < PIECES; i++) {
		size_t len = (state = state * 1103515245 + 12345) / 65536 % MOST + 1;

		for (size_t at = 0; at < len; at++)
			own = own * 31 + (bytes[at] = (state = state * 1103515245 + 12345) >> 20);
		if (fwrite(bytes, 1, len, out[0]) != len)
			die("fwrite", i);
	}
	fclose(out[0]);
	shutdown(fileno(in[0]), SHUT_WR);
	pthread_join(thread, NULL);
	if (own != sum)
		die("sums differ", 0);
}

/* Standard input and output of this program are an end; the other one is served by a thread, and by no stream. */
static void *echoes(void *at)
{
	char bytes[3000];
	ssize_t got;

	while ((got = read(*(int *)at, bytes, sizeof(bytes))) > 0 && *bytes != '.')
		if (write(*(int *)at, bytes, got) != got)
			die("echo", got);
	return NULL;
}

static void asks_by_standard(int count)
{
	static char line[LONGEST + 2];
	int left = count;

	for (int i = 0; i < 20000 && left; i++) {
		makes(line, i);
		if (!*line)
			continue;
		if (i % 3)
			printf("%s\n", line);
		else
			dprintf(1, "%s\n", line);
		fflush(stdout);
		if (i % 2 ? scanf("%9000s", line) != 1 || getchar() != '\n' : !fgets(line, sizeof(line), stdin))
			die("standard input", i);
		line[strcspn(line, "\n")] = 0;
		expects(line, i);
		if (getenv("LD_PRELOAD") && rings() < 2)
			usleep(1000);
		else
			left--;
	}
}

/* Of every kind of argument, more than there are registers for. */
static void formats(int from, FILE *to)
{
	char own[300], line[300];

	for (int i = 0; i < LINES; i++) {
		double real = i / 7.0;

		snprintf(own, sizeof(own), "%d %s %c %.3f %ld %g %e %x %f %.1f %d %.2f %d %a %.0f %Lf %s\n", i, "text", 'c', real, -1L, real,
			 real, i, real, real, 7, real, 8, real, real, (long double)real, "end");
		int len = dprintf(from, "%d %s %c %.3f %ld %g %e %x %f %.1f %d %.2f %d %a %.0f %Lf %s\n", i, "text", 'c', real, -1L,
				  real, real, i, real, real, 7, real, 8, real, real, (long double)real, "end");
		if (len != (int)strlen(own) || !fgets(line, sizeof(line), to) || strcmp(line, own))
			die(line, len);
	}
	if (dprintf(-1, "%d", 1) != -1 || errno != EBADF)
		die("to nothing", 0);
}

static void formatted(void)
{
	FILE *in[2], *out[2];
	int ends[2];

	opens_streams(ends, in, out);
	converse(in, out, 50);
	formats(ends[0], in[1]);
	/* To one that reads no more. */
	signal(SIGPIPE, SIG_IGN);
	shutdown(ends[0], SHUT_WR);
	if (dprintf(ends[0], "%s", "more") != -1 || errno != EPIPE)
		die("after the end", 0);
}

static void standard(void)
{
	int ends[2], said = dup(1);
	pthread_t thread;

	opens(ends);
	dup2(ends[0], 0);
	dup2(ends[0], 1);
	close(ends[0]);
	pthread_create(&thread, NULL, echoes, &ends[1]);
	asks_by_standard(LINES);
	/* What is not written yet goes to the connection, and then both numbers are another file's. */
	printf("rest");
	if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "r", stdin))
		die("freopen", 0);
	pthread_join(thread, NULL);
	if (getchar() != EOF || printf("to nobody\n") < 0)
		die("null", 0);
	fflush(stdout);
	dup2(said, 1);
}

/* A daemon's standard numbers are /dev/null; another number of the connection goes on. */
static void turns_daemon(void)
{
	int ends[2], said = dup(1), own;
	pthread_t thread;
	char bytes[8];

	opens(ends);
	dup2(ends[0], 0);
	dup2(ends[0], 1);
	own = ends[0];
	pthread_create(&thread, NULL, echoes, &ends[1]);
	asks_by_standard(LINES / 4);
	if (write(1, ".", 1) != 1)
		die("stop", 0);
	pthread_join(thread, NULL);
	int status, piped[2];
	pid_t child;

	if (pipe(piped))
		die("pipe", 0);
	child = fork();
	if (!child) {
		if (daemon(1, 0))
			die("daemon", 0);
		if (read(0, bytes, 1) != 0 || write(1, "lost", 4) != 4)
			die("null", 0);
		if (write(own, "kept", 4) != 4)
			die("kept", 0);
		_exit(write(piped[1], "d", 1) != 1);
	}
	waitpid(child, &status, 0);
	if (read(piped[0], bytes, 1) != 1)
		die("no daemon", 0);
	if (recv(ends[1], bytes, 4, MSG_WAITALL) != 4 || memcmp(bytes, "kept", 4))
		die("of the daemon", 0);
	/* Those of a terminal's program are the terminal. */
	int terminal;
	child = forkpty(&terminal, NULL, NULL, NULL);
	if (!child) {
		if (write(1, "shown", 5) != 5 || write(own, "kept", 4) != 4)
			die("terminal", 0);
		_exit(read(0, bytes, 2) != 2);
	}
	if (child < 0 || read(terminal, bytes, 5) != 5 || memcmp(bytes, "shown", 5) || write(terminal, "x\n", 2) != 2)
		die("shown", child);
	if (recv(ends[1], bytes, 4, MSG_WAITALL) != 4 || memcmp(bytes, "kept", 4))
		die("of the terminal's program", 0);
	if (waitpid(child, &status, 0) != child || status)
		die("status", status);
	if (write(1, "mine", 4) != 4 || recv(ends[1], bytes, 4, MSG_WAITALL) != 4 || memcmp(bytes, "mine", 4))
		die("of its parent", 0);
	dup2(said, 1);
}

/* A stream that finds nothing is as it was, and goes on. */
static void without_waiting(void)
{
	FILE *in[2], *out[2];
	int ends[2];

	opens_streams(ends, in, out);
	converse(in, out, 50);
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	for (int i = 0; i < LINES; i++) {
		errno = 0;
		if (fgetc(in[1]) != EOF || errno != EAGAIN || !ferror(in[1]) || feof(in[1]))
			die("nothing", i);
		clearerr(in[1]);
		says(out[0], 1);
		hears(in[1], 1);
	}
}

static void *writes_lines(void *at)
{
	for (int i = 0; i < LINES; i++)
		if (fprintf(at, "one of many lines\n") < 0 || fflush(at))
			die("fprintf", i);
	return NULL;
}

static void many_threads(void)
{
	enum { THREADS = 4 };
	pthread_t threads[THREADS];
	FILE *in[2], *out[2];
	char line[100];
	int ends[2];

	opens_streams(ends, in, out);
	converse(in, out, 50);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, writes_lines, out[0]);
	for (int i = 0; i < THREADS * LINES; i++)
		if (!fgets(line, sizeof(line), in[1]) || strcmp(line, "one of many lines\n"))
			die("torn", i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* As servers start a program for each connection: it has it as standard input and output, and by no other number. */
static void started(const char *own)
{
	FILE *in, *out;
	int ends[2];
	pid_t child;
	int status;

	opens(ends);
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	child = fork();
	if (!child) {
		dup2(ends[1], 0);
		dup2(ends[1], 1);
		execl(own, own, "serves", NULL);
		_exit(1);
	}
	close(ends[1]);
	in = on(ends[0], "r");
	out = on(dup(ends[0]), "w");
	int left = LINES;
	for (int i = 0; i < 20000 && left; i++) {
		says(out, i);
		hears(in, i);
		if (getenv("LD_PRELOAD") && rings() < 1)
			usleep(1000);
		else
			left--;
	}
	fclose(out);
	shutdown(ends[0], SHUT_WR);
	/* Said at its exit: it never flushes that. */
	char last[20] = "";
	if (!fgets(last, sizeof(last), in) || strcmp(last, "good bye\n") || fgetc(in) != EOF)
		die(last, 0);
	if (waitpid(child, &status, 0) != child || status)
		die("status", status);
}

static int serves(void)
{
	static char line[LONGEST + 2];

	while (fgets(line, sizeof(line), stdin)) {
		fputs(line, stdout);
		fflush(stdout);
	}
	printf("good bye\n");
	return 0;
}

int main(int count, char **words)
{
	const char *which = count > 1 ? words[1] : "";

	if (!strcmp(which, "serves"))
		return serves();
	if (!strcmp(which, "copies"))
		own_copies(_IOFBF);
	else if (!strcmp(which, "lines"))
		own_copies(_IOLBF);
	else if (!strcmp(which, "unbuffered"))
		own_copies(_IONBF);
	else if (!strcmp(which, "one"))
		one_stream();
	else if (!strcmp(which, "wide"))
		wide();
	else if (!strcmp(which, "bulk"))
		bulk();
	else if (!strcmp(which, "standard"))
		standard();
	else if (!strcmp(which, "formatted"))
		formatted();
	else if (!strcmp(which, "daemon"))
		turns_daemon();
	else if (!strcmp(which, "nonblocking"))
		without_waiting();
	else if (!strcmp(which, "threads"))
		many_threads();
	else if (!strcmp(which, "started"))
		started(words[0]);
	else
		die(which, count);
	printf("all there\n");
	return 0;
}
