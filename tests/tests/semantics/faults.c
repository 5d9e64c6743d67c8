/*
 * Buffers that fault, in a program that does something with the signals of faults itself: the
 * call ends with EFAULT, no handler of the program's runs, and the stream goes on. What the
 * program's own faults do stays as it is.
 *
 *   faults none      no handler; to the program there is none, and its faults kill it
 *   faults own       a handler with SA_SIGINFO, left by a jump
 *   faults once      a handler that is installed for one time
 *   faults stack     a handler on a stack of its own
 *   faults blocked   the thread blocks all signals
 *   faults handler   blocked in a handler, which sends and receives
 *   faults masked    blocked by the handler's own mask
 *   faults ignored   the signals are ignored
 *   faults threads   two connections, each in a thread, and a third in this thread
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEN 3000
static char *bad, *constant;

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Answers with what comes. */
static void echo(struct sockaddr_in *to)
{
	char buf[65536];
	ssize_t n;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)to, sizeof *to))
		die("connect");
	while ((n = recv(fd, buf, sizeof buf, 0)) > 0)
		if (send(fd, buf, n, MSG_NOSIGNAL) != n)
			die("the peer's send");
	_exit(0);
}

static void round_trip(int s, unsigned char first, size_t len)
{
	unsigned char out[LEN], in[LEN];
	for (size_t i = 0; i < len; i++)
		out[i] = first + i;
	if (send(s, out, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("send");
	if (recv(s, in, len, MSG_WAITALL) != (ssize_t)len)
		die("recv");
	if (memcmp(out, in, len)) {
		printf("other bytes\n");
		exit(1);
	}
}

/* A connection whose peer echoes, with bytes going to and fro for a while. */
static int connection(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int l = socket(AF_INET, SOCK_STREAM, 0), s;
	if (bind(l, (struct sockaddr *)&at, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&at, &len))
		die("listen");
	if (fork() == 0) {
		close(l);
		echo(&at);
	}
	if ((s = accept(l, NULL, NULL)) < 0)
		die("accept");
	close(l);
	double begun = now();
	for (int i = 0; i < 200 || now() - begun < 0.3; i++)
		round_trip(s, i, 64);
	return s;
}

static void wants_efault(ssize_t n, const char *what)
{
	if (n == -1 && errno == EFAULT)
		return;
	printf("%s: %zd, %s\n", what, n, n < 0 ? strerror(errno) : "no error");
	exit(1);
}

/* Sends from and receives into memory that faults; every byte stays in its place. */
static void faults(int s, int i)
{
	unsigned char in[LEN];
	char *wrong[] = {bad, bad + 4096 - 10, (char *)0x123456789000, NULL};
	char *to = wrong[i % 4], *into = i % 5 == 0 ? constant : to;
	wants_efault(send(s, to, LEN, MSG_NOSIGNAL), "send");
	for (int j = 0; j < LEN; j++)
		in[j] = i + j;
	if (send(s, in, LEN, MSG_NOSIGNAL) != LEN)
		die("send");
	while (recv(s, in, LEN, MSG_PEEK) < LEN)
		;
	wants_efault(recv(s, into, LEN, 0), "recv");
	if (recv(s, in, LEN, MSG_WAITALL) != LEN)
		die("recv");
	for (int j = 0; j < LEN; j++)
		if (in[j] != (unsigned char)(i + j)) {
			printf("other bytes\n");
			exit(1);
		}
}

static sigjmp_buf back;
static volatile sig_atomic_t ran;
static void *volatile where;

static void leave(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	ran++;
	where = info->si_addr;
	siglongjmp(back, 1);
}

static volatile int in_handler = -1;

static void sends(int signal)
{
	(void)signal;
	for (int i = 0; i < 20; i++)
		faults(in_handler, i);
	ran++;
}

static void install(int flags)
{
	struct sigaction act = {.sa_sigaction = leave, .sa_flags = SA_SIGINFO | flags};
	if (sigaction(SIGSEGV, &act, NULL) || sigaction(SIGBUS, &act, NULL))
		die("sigaction");
}

static void is_installed(void *handler, int flags)
{
	int all[] = {SIGSEGV, SIGBUS};
	for (int i = 0; i < 2; i++) {
		struct sigaction act;
		sigaction(all[i], NULL, &act);
		/* libc's own flag for its way back from handlers is none of the program's. */
		if ((void *)act.sa_handler != handler || (act.sa_flags & ~0x04000000) != flags) {
			printf("installed: %p, %x\n", (void *)act.sa_handler, act.sa_flags);
			exit(1);
		}
	}
}

/* A child that is to end by a signal. */
static void ends(int wanted, int how)
{
	struct rlimit none = {0};
	int status;
	pid_t child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &none);
		if (how == 0)
			*(volatile char *)bad = 1;
		else if (how == 1)
			kill(getpid(), wanted);
		else
			raise(wanted);
		for (int i = 0; i < 100; i++)
			usleep(10000);
		_exit(7);
	}
	waitpid(child, &status, 0);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != wanted) {
		printf("a child that does %d ends with status %x\n", how, status);
		exit(1);
	}
}

static void faults_itself(void)
{
	int before = ran;
	if (sigsetjmp(back, 1) == 0) {
		*(volatile char *)(bad + 8) = 1;
		die("no fault");
	}
	if (ran != before + 1 || where != bad + 8) {
		printf("the handler ran %d times, for %p\n", ran - before, where);
		exit(1);
	}
}

static void *one(void *at)
{
	int s = *(int *)at;
	double begun = now();
	for (int i = 0; i < 200 || now() - begun < 1; i++) {
		faults(s, i);
		round_trip(s, i, LEN);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "none";
	int s[3];
	bad = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* From its second page on there is nothing any more. */
	munmap(bad + 4096, 4096);
	mprotect(bad, 4096, PROT_NONE);
	constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < (strcmp(how, "threads") ? 1 : 3); i++)
		s[i] = connection();

	if (!strcmp(how, "none")) {
		is_installed(SIG_DFL, 0);
		for (int i = 0; i < 100; i++)
			faults(s[0], i);
		is_installed(SIG_DFL, 0);
		if (signal(SIGSEGV, SIG_DFL) != SIG_DFL || signal(SIGBUS, SIG_DFL) != SIG_DFL)
			die("signal");
		is_installed(SIG_DFL, SA_RESTART);
		for (int i = 0; i < 100; i++)
			faults(s[0], i);
		for (int i = 0; i < 3; i++)
			ends(SIGSEGV, i);
		ends(SIGBUS, 1);
		ends(SIGBUS, 2);
	} else if (!strcmp(how, "own") || !strcmp(how, "once") || !strcmp(how, "stack")) {
		int flags = !strcmp(how, "once") ? (int)SA_RESETHAND : !strcmp(how, "stack") ? SA_ONSTACK : 0;
		stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
		if (flags == SA_ONSTACK)
			sigaltstack(&stack, NULL);
		for (int i = 0; i < 100; i++) {
			install(flags);
			is_installed((void *)leave, SA_SIGINFO | flags);
			faults(s[0], i);
			is_installed((void *)leave, SA_SIGINFO | flags);
			faults(s[0], i + 1);
			faults_itself();
			if (flags != (int)SA_RESETHAND)
				faults(s[0], i + 2);
		}
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		faults(s[0], 1);
		for (int i = 0; i < 3; i++)
			ends(SIGSEGV, i);
	} else if (!strcmp(how, "blocked")) {
		sigset_t all, before;
		sigfillset(&all);
		faults(s[0], 0);
		for (int i = 0; i < 100; i++) {
			pthread_sigmask(SIG_SETMASK, &all, &before);
			faults(s[0], i);
			round_trip(s[0], i, LEN);
			pthread_sigmask(SIG_SETMASK, &before, NULL);
			faults(s[0], i);
		}
	} else if (!strcmp(how, "handler") || !strcmp(how, "masked")) {
		struct sigaction act = {.sa_handler = sends};

		/* What a thread admits was learnt outside of its handlers. */
		faults(s[0], 0);
		if (!strcmp(how, "masked"))
			sigfillset(&act.sa_mask);
		sigaction(SIGUSR1, &act, NULL);
		in_handler = s[0];
		for (int i = 0; i < 10; i++)
			raise(SIGUSR1);
		if (ran != 10)
			die("handler");
	} else if (!strcmp(how, "ignored")) {
		signal(SIGSEGV, SIG_IGN);
		signal(SIGBUS, SIG_IGN);
		is_installed(SIG_IGN, SA_RESTART);
		for (int i = 0; i < 100; i++)
			faults(s[0], i);
		kill(getpid(), SIGSEGV);
		ends(SIGSEGV, 0);
	} else if (!strcmp(how, "threads")) {
		pthread_t threads[2];
		in_handler = s[2];
		for (int i = 0; i < 2; i++)
			pthread_create(&threads[i], NULL, one, &s[i]);
		for (int i = 0; i < 20; i++)
			sends(0);
		for (int i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
	}
	round_trip(s[0], 1, LEN);
	printf("all there\n");
	return 0;
}
