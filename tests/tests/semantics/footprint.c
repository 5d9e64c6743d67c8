/*
 * What the library takes of a program's memory.
 *
 *   footprint limits    mlockall as a user who may lock 16 MiB; connections in an address space
 *                       that has 4 MiB left
 *   footprint locked    connections of a program that has all its memory locked
 *   footprint group DIR connections with large messages to a process in a control group
 *   footprint descriptors    connections that are offered, then shared with a child, then closed: their channels
 *                       come while they are shared
 *   footprint echo PORT      the other end of that, which offers when its connections have proven busy
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECTIONS = 40, MESSAGES = 100 };

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static long status_kib(const char *name)
{
	char line[256];
	long kib = -1;
	FILE *file = fopen("/proc/self/status", "r");
	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)))
			kib = atol(line + strlen(name) + 1);
	if (file)
		fclose(file);
	return kib;
}

/* Every connection with a process of its own at the other end, which echoes. */
static void exchange(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int ends[CONNECTIONS], l = socket(AF_INET, SOCK_STREAM, 0);
	char sent[300], got[300];
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, CONNECTIONS))
		die("listen");
	getsockname(l, (struct sockaddr *)&at, &len);
	pid_t pid = fork();
	if (!pid) {
		for (int i = 0; i < CONNECTIONS; i++) {
			ends[i] = socket(AF_INET, SOCK_STREAM, 0);
			if (connect(ends[i], (struct sockaddr *)&at, sizeof at))
				die("connect");
		}
		for (int k = 0; k < MESSAGES * CONNECTIONS; k++) {
			int s = ends[k % CONNECTIONS];
			if (recv(s, got, sizeof got, MSG_WAITALL) != sizeof got)
				die("the peer's recv");
			if (send(s, got, sizeof got, 0) != sizeof got)
				die("the peer's send");
		}
		/* The other end looks at its memory while the channels are there. */
		recv(ends[0], got, 1, 0);
		_exit(0);
	}
	for (int i = 0; i < CONNECTIONS; i++)
		if ((ends[i] = accept(l, 0, 0)) < 0)
			die("accept");
	for (int k = 0; k < MESSAGES * CONNECTIONS; k++) {
		int s = ends[k % CONNECTIONS];
		memset(sent, k, sizeof sent);
		if (send(s, sent, sizeof sent, 0) != sizeof sent)
			die("send");
		if (recv(s, got, sizeof got, MSG_WAITALL) != sizeof got)
			die("recv");
		if (memcmp(sent, got, sizeof sent))
			die("other bytes");
	}
}

enum { SHARED = 4, PINGS = 60, LOW = 256 };

/* Descriptors at low numbers, or those of channels at any number. */
static int descriptors(int of_channels)
{
	int count = 0;
	DIR *folder = opendir("/proc/self/fd");
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		char path[300], name[300] = "";
		int fd = atoi(entry->d_name);
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		if (entry->d_name[0] == '.' || readlink(path, name, sizeof name - 1) < 0)
			continue;
		count += of_channels ? strstr(name, "memfd:yasmin") != 0 : fd < LOW;
	}
	closedir(folder);
	return count;
}

static void echo(const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < SHARED; i++) {
		char byte;
		int s = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(s, (struct sockaddr *)&at, sizeof at))
			die("connect");
		while (recv(s, &byte, 1, 0) == 1)
			if (send(s, &byte, 1, MSG_NOSIGNAL) != 1)
				break;
		close(s);
	}
}

static void share_and_close(const char *self)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int l = socket(AF_INET, SOCK_STREAM, 0), before, waited = 0, low_while = 0;
	char port[16], byte = 'x';
	pid_t peer, children[SHARED];
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, SHARED))
		die("listen");
	getsockname(l, (struct sockaddr *)&at, &len);
	snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
	if (!(peer = fork())) {
		unsetenv("YASMIN_PROMOTE_MESSAGES");
		execl(self, self, "echo", port, (char *)0);
		die("exec");
	}
	before = descriptors(0);
	for (int i = 0; i < SHARED; i++) {
		int s = accept(l, 0, 0);
		if (s < 0)
			die("accept");
		if (!(children[i] = fork())) {
			pause();
			_exit(0);
		}
		for (int k = 0; k < PINGS; k++)
			if (send(s, &byte, 1, 0) != 1 || recv(s, &byte, 1, 0) != 1)
				die("ping");
		waited += descriptors(1) > 0;
		low_while += descriptors(0) - before - 1;
		shutdown(s, SHUT_RDWR);
		close(s);
	}
	if (!waited)
		printf("no channel came while its connection was shared\n");
	else if (low_while || descriptors(0) != before || descriptors(1))
		printf("%d more at low numbers meanwhile; %d before, %d after, %d of channels\n", low_while, before,
		       descriptors(0), descriptors(1));
	else
		printf("added little\n");
	for (int i = 0; i < SHARED; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], 0, 0);
	}
	waitpid(peer, 0, 0);
}

enum { LARGE = 200000, MANY = 100, ROUNDS = 20 };

static void serve(int l, const char *group)
{
	static char buf[65536];
	static struct pollfd all[MANY];
	char path[512];
	snprintf(path, sizeof path, "%s/cgroup.procs", group);
	FILE *file = fopen(path, "w");
	if (!file || fputs("0", file) < 0 || fclose(file))
		die(path);
	for (int i = 0; i < MANY; i++)
		all[i] = (struct pollfd){.fd = accept(l, 0, 0), .events = POLLIN};
	for (int open = MANY; open && poll(all, MANY, -1) > 0;)
		for (int i = 0; i < MANY; i++) {
			if (!all[i].revents)
				continue;
			ssize_t n = recv(all[i].fd, buf, sizeof buf, 0);
			if (n <= 0 || send(all[i].fd, buf, n, MSG_NOSIGNAL) != n) {
				all[i].fd = -1;
				open--;
			}
		}
	_exit(0);
}

static void group(const char *group)
{
	static char sent[LARGE], got[LARGE];
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int ends[MANY], l = socket(AF_INET, SOCK_STREAM, 0), how;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, MANY))
		die("listen");
	getsockname(l, (struct sockaddr *)&at, &len);
	pid_t pid = fork();
	if (!pid)
		serve(l, group);
	for (int i = 0; i < MANY; i++) {
		ends[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(ends[i], (struct sockaddr *)&at, sizeof at))
			die("connect");
	}
	for (int k = 0; k < ROUNDS * MANY; k++) {
		memset(sent, k, sizeof sent);
		if (send(ends[k % MANY], sent, LARGE, MSG_NOSIGNAL) != LARGE)
			die("send");
		if (recv(ends[k % MANY], got, LARGE, MSG_WAITALL) != LARGE)
			die("recv");
		if (memcmp(sent, got, LARGE))
			die("other bytes");
	}
	for (int i = 0; i < MANY; i++)
		close(ends[i]);
	waitpid(pid, &how, 0);
	printf(how ? "killed\n" : "added little\n");
}

int main(int argc, char **argv)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "limits")) {
		struct rlimit lock = {16 << 20, 16 << 20};
		pid_t pid = fork();
		int how;
		if (!pid) {
			setrlimit(RLIMIT_MEMLOCK, &lock);
			if (getuid() == 0 && setuid(65534))
				die("setuid");
			if (mlockall(MCL_CURRENT | MCL_FUTURE))
				die("mlockall");
			exit(0);
		}
		waitpid(pid, &how, 0);
		struct rlimit space;
		space.rlim_cur = space.rlim_max = (status_kib("VmSize:") << 10) + (4 << 20);
		setrlimit(RLIMIT_AS, &space);
		exchange();
		printf("added %s\n", status_kib("VmSize:") < 16 << 10 ? "little" : "much");
	} else if (argc > 2 && !strcmp(argv[1], "echo")) {
		echo(argv[2]);
	} else if (argc > 1 && !strcmp(argv[1], "descriptors")) {
		share_and_close(argv[0]);
	} else if (argc > 2) {
		signal(SIGCHLD, SIG_DFL);
		group(argv[2]);
	} else {
		if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
			printf("skipped: cannot lock memory\n");
			return 0;
		}
		long before = status_kib("VmLck:");
		exchange();
		long locked = status_kib("VmLck:") - before, resident = status_kib("VmRSS:");
		if (locked < 8 << 10 && resident < 24 << 10)
			printf("added little\n");
		else
			printf("%ld KiB more are locked, %ld KiB resident\n", locked, resident);
	}
	return 0;
}
