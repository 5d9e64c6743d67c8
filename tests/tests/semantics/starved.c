/*
 * Several threads or processes use one connection, and one of them does not go on: a real-time
 * thread takes its CPU, or a signal stops it, wherever it is. The others go on, and every byte
 * arrives once: the peer counts the bytes of each sender.
 *
 *   starved realtime       two SCHED_FIFO threads and a hog between them, on one CPU
 *   starved stopped N      of two processes that send, one is stopped N times
 *   starved reader N       of two processes that receive, one is stopped N times
 *   starved frozen N       the same, and it is frozen with its cgroup
 *   starved debugged N     the same, and a debugger stops it and takes it some instructions on
 *   starved apart          two processes send, one of them in a PID namespace of its own
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct counts {
	_Atomic uint64_t sent[2], got[2];
	_Atomic int stop;
};
static struct counts *counts;
static int s;

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

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static void be_realtime(int priority)
{
	struct sched_param p = {.sched_priority = priority};
	if (sched_setscheduler(0, SCHED_FIFO, &p)) {
		printf("skipped: no real-time threads\n");
		exit(0);
	}
}

/* One record: its sender's letter, again and again. */
static int record(int who, size_t len)
{
	char buf[2048];
	memset(buf, 'a' + who, len);
	for (size_t done = 0; done < len;) {
		ssize_t n = send(s, buf + done, len - done, MSG_NOSIGNAL);
		if (n < 0)
			return -1;
		done += n;
		counts->sent[who] += n;
	}
	return 0;
}

static void count(int fd)
{
	char buf[65536];
	ssize_t n;
	while ((n = recv(fd, buf, sizeof buf, 0)) > 0)
		for (ssize_t i = 0; i < n; i++)
			counts->got[buf[i] - 'a']++;
	if (n < 0)
		die("the peer's recv");
}

/* The peer: answers until the rings are there, then counts, or sends. */
static void peer(struct sockaddr_in *to, int sends)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char buf[1024];
	if (connect(fd, (struct sockaddr *)to, sizeof *to))
		die("connect");
	/* The broker may be late on a busy machine, and after the fork it is too late. */
	double begun = now();
	for (int i = 0; i < 100 || now() - begun < 0.5; i++) {
		send(fd, "p", 1, 0);
		if (recv(fd, buf, 1, MSG_WAITALL) != 1)
			die("warm");
	}
	send(fd, "g", 1, 0);
	if (!sends)
		count(fd);
	memset(buf, 'a', sizeof buf);
	while (sends && !counts->stop) {
		ssize_t n = send(fd, buf, sizeof buf, MSG_NOSIGNAL);
		if (n < 0)
			die("the peer's send");
		counts->sent[0] += n;
	}
	close(fd);
	_exit(0);
}

static void *low(void *arg)
{
	pin(0);
	be_realtime(10);
	for (int i = 0; !counts->stop && !record(0, 200); i++)
		if (i % 50 == 0)
			usleep(100);
	return arg;
}

static void *high(void *arg)
{
	pin(0);
	be_realtime(20);
	while (!counts->stop && !record(1, 200))
		usleep(70);
	return arg;
}

/* Takes the CPU from `low` until `high` has got on, which waits for nobody else. */
static int hog(void)
{
	pin(0);
	be_realtime(15);
	for (int round = 0; round < 2000; round++) {
		uint64_t before = counts->sent[1];
		double since = now();
		while (counts->sent[1] < before + 400)
			if (now() - since > 5)
				return 0;
		usleep(200);
	}
	return 1;
}

static void *watch(void *arg)
{
	*(int *)arg = hog();
	counts->stop = 1;
	return arg;
}

static void realtime(void)
{
	pthread_t threads[3];
	int went_on = 0;
	pthread_create(&threads[0], 0, low, 0);
	pthread_create(&threads[1], 0, high, 0);
	pthread_create(&threads[2], 0, watch, &went_on);
	pthread_join(threads[2], 0);
	if (!went_on) {
		printf("stood still\n");
		exit(0);
	}
	pthread_join(threads[0], 0);
	pthread_join(threads[1], 0);
}

static pid_t child(int who, int sends)
{
	pid_t pid = fork();
	char buf[512];
	if (pid)
		return pid;
	if (sends)
		while (!counts->stop && !record(who, who ? 100 : 2000))
			;
	while (!sends && !counts->stop) {
		ssize_t n = recv(s, buf, sizeof buf, MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN)
			die("recv");
		if (n == 0)
			break;
		counts->got[who] += n > 0 ? n : 0;
	}
	_exit(0);
}

/* A cgroup of its own for `pid`: the file that freezes it, and what to write there. */
static char freezer[128];
static const char *freeze = "1", *thaw = "0";

static void put(const char *file, const char *text)
{
	FILE *f = fopen(file, "w");
	if (!f || fputs(text, f) < 0 || fclose(f)) {
		printf("skipped: %s\n", file);
		counts->stop = 1;
		exit(0);
	}
}

static void give_freezer(pid_t pid)
{
	const char *roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer"};
	char file[160], number[16];
	int at = 0;
	for (; at < 3; at++) {
		snprintf(file, sizeof file, "%s/cgroup.procs", roots[at]);
		if (!access(file, W_OK))
			break;
	}
	if (at == 3) {
		printf("skipped: no cgroups\n");
		counts->stop = 1;
		exit(0);
	}
	snprintf(freezer, sizeof freezer, "%s/yasmin-test-%d", roots[at], pid);
	mkdir(freezer, 0755);
	snprintf(file, sizeof file, "%s/cgroup.procs", freezer);
	snprintf(number, sizeof number, "%d", pid);
	put(file, number);
	if (at == 2)
		freeze = "FROZEN", thaw = "THAWED";
	strcat(freezer, at == 2 ? "/freezer.state" : "/cgroup.freeze");
}

static int debugs;

static void give_debugger(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, 0, 0)) {
		printf("skipped: no debugger\n");
		counts->stop = 1;
		exit(0);
	}
	debugs = 1;
}

/* Some instructions; fewer where one is a call that waits. */
static void steps(pid_t pid, int count)
{
	while (count--) {
		ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
		for (double since = now(); waitpid(pid, 0, WNOHANG) == 0;) {
			if (now() - since > 0.001) {
				ptrace(PTRACE_INTERRUPT, pid, 0, 0);
				waitpid(pid, 0, 0);
				return;
			}
		}
	}
}

static void stops(pid_t pid)
{
	if (*freezer) {
		put(freezer, freeze);
	} else if (debugs) {
		static unsigned seed = 11;
		ptrace(PTRACE_INTERRUPT, pid, 0, 0);
		waitpid(pid, 0, 0);
		steps(pid, rand_r(&seed) % 300);
	} else {
		kill(pid, SIGSTOP);
		waitpid(pid, 0, WUNTRACED);
	}
}

static void goes_on(pid_t pid)
{
	if (*freezer)
		put(freezer, thaw);
	else if (debugs)
		ptrace(PTRACE_CONT, pid, 0, 0);
	else
		kill(pid, SIGCONT);
}

static void stopped(int rounds, int sends, char way)
{
	pid_t one = child(0, sends), other = child(1, sends);
	if (way == 'f')
		give_freezer(one);
	if (way == 'd')
		give_debugger(one);
	_Atomic uint64_t *moves = sends ? &counts->sent[1] : &counts->got[1];
	unsigned seed = 7;
	int still = 0;
	/* Both take part by then, and what the ring had before is read. */
	while (!sends && (counts->got[0] < 8 << 20 || counts->got[1] < 8 << 20))
		usleep(100);
	for (int i = 0; i < rounds && !still; i++) {
		usleep(500 + rand_r(&seed) % 3000);
		stops(one);
		uint64_t before = *moves;
		double since = now();
		while (*moves < before + 1000 && !(still = now() - since > 5))
			usleep(100);
		goes_on(one);
	}
	counts->stop = 1;
	if (still)
		printf("stood still\n");
	/* A stop that came too late for the last step. */
	for (int status; waitpid(one, &status, 0) == one && WIFSTOPPED(status);)
		ptrace(PTRACE_CONT, one, 0, 0);
	waitpid(other, 0, 0);
	if (*freezer) {
		*strrchr(freezer, '/') = 0;
		rmdir(freezer);
	}
}

/* Each sees the other's PID as nobody's, and yet it lives. */
static void apart(void)
{
	pid_t one = child(0, 1);
	if (unshare(CLONE_NEWPID)) {
		counts->stop = 1;
		printf("skipped: no PID namespaces\n");
		exit(0);
	}
	pid_t other = child(1, 1);
	/* Both take part, long enough to meet each other inside a call. */
	for (double since = now(); now() - since < 1 || counts->sent[0] < 1 << 20 || counts->sent[1] < 1 << 20;) {
		if (now() - since > 30) {
			printf("stood still\n");
			break;
		}
		usleep(1000);
	}
	counts->stop = 1;
	waitpid(one, 0, 0);
	waitpid(other, 0, 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int rounds = argc > 2 ? atoi(argv[2]) : 0, reads = rounds && argv[1][0] != 's';
	char c, buf[4096];
	setvbuf(stdout, 0, _IOLBF, 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	counts = mmap(0, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, 1))
		die("listen");
	getsockname(l, (struct sockaddr *)&at, &len);
	pid_t p = fork();
	if (!p) {
		close(l);
		peer(&at, reads);
	}
	s = accept(l, 0, 0);
	while (recv(s, &c, 1, 0) == 1 && c == 'p')
		send(s, &c, 1, 0);
	if (rounds)
		stopped(rounds, !reads, argv[1][0]);
	else if (argv[1][0] == 'a')
		apart();
	else
		realtime();
	/* What was still under way when the readers stopped. */
	for (ssize_t n; reads && (n = recv(s, buf, sizeof buf, 0)) > 0;)
		counts->got[0] += n;
	close(s);
	waitpid(p, 0, 0);
	uint64_t sent[] = {counts->sent[0], counts->sent[1]}, got[] = {counts->got[0], counts->got[1]};
	if (reads ? sent[0] == got[0] + got[1] : sent[0] == got[0] && sent[1] == got[1])
		printf("all there\n");
	else
		printf("sent %lu, %lu, got %lu, %lu\n", sent[0], sent[1], got[0], got[1]);
	return 0;
}
