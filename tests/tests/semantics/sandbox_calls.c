/*
 * Which system calls a program's calls lead to once it has a seccomp filter, one line each: a process traces its
 * child, which marks the beginning of each with getppid. The filter lets everything through.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "pair.h"

/* Two with nothing in them, two with bytes unread, one that will be closed with bytes unread, a Unix pair. */
static int one[2], other[2], unread[2], behind[2], left[2], pair[2], set, file, listener;
static char bytes[4000];

static void writes(void) { write(one[0], "x", 1); }
static void reads(void) { read(one[1], bytes, 1); }
static void sends(void) { send(one[0], "xy", 2, MSG_NOSIGNAL); }
static void peeks(void) { recv(one[1], bytes, 1, MSG_PEEK); }
static void receives(void) { recv(one[1], bytes, 2, MSG_DONTWAIT); }
static void finds_nothing(void) { recv(one[1], bytes, 2, MSG_DONTWAIT); }
static void sends_to(void) { sendto(one[0], "x", 1, 0, NULL, 0); }
static void receives_from(void) { recvfrom(one[1], bytes, 1, 0, NULL, NULL); }
static void writes_many(void) { writev(one[0], &(struct iovec){ "xyz", 3 }, 1); }
static void reads_many(void) { readv(one[1], &(struct iovec){ bytes, 3 }, 1); }
static void sends_message(void) { sendmsg(one[0], &(struct msghdr){ .msg_iov = &(struct iovec){ "x", 1 }, .msg_iovlen = 1 }, 0); }
static void receives_message(void) { recvmsg(one[1], &(struct msghdr){ .msg_iov = &(struct iovec){ bytes, 1 }, .msg_iovlen = 1 }, 0); }
static void sends_file(void) { sendfile(one[0], file, NULL, 5); }
static void asks_unread(void) { int count; ioctl(one[1], FIONREAD, &count); }
static void reads_ring(void) { read(unread[1], bytes, 10); }
static void peeks_ring(void) { recv(unread[1], bytes, 10, MSG_PEEK); }
static void asks_ring(void) { int count; ioctl(unread[1], FIONREAD, &count); }
static void polls_ring(void) { poll(&(struct pollfd){ unread[1], POLLIN, 0 }, 1, 0); }
static void waits_ring(void) { struct epoll_event event; epoll_wait(set, &event, 1, 0); }
static void drains_ring(void) { recv(unread[1], bytes, sizeof(bytes), 0); }
static void drains_more(void) { recv(unread[1], bytes, sizeof(bytes), MSG_DONTWAIT); }
static void polls(void) { poll(&(struct pollfd){ one[1], POLLIN | POLLOUT, 0 }, 1, 0); }
static void selects(void) { fd_set fds; FD_ZERO(&fds); FD_SET(one[1], &fds); select(one[1] + 1, &fds, NULL, NULL, &(struct timeval){ 0, 0 }); }
static void polls_masked(void) { ppoll(&(struct pollfd){ one[1], POLLIN, 0 }, 1, &(struct timespec){ 0, 0 }, NULL); }
static void makes_set(void) { close(epoll_create1(0)); }
static void registers(void) { struct epoll_event event = { .events = EPOLLIN }; epoll_ctl(set, EPOLL_CTL_ADD, other[1], &event); }
static void registers_anew(void) { struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT }; epoll_ctl(set, EPOLL_CTL_MOD, other[1], &event); }
static void waits(void) { struct epoll_event events[9]; epoll_wait(set, events, 9, 0); }
static void unregisters(void) { struct epoll_event event; epoll_ctl(set, EPOLL_CTL_DEL, other[1], &event); }
static void asks_option(void) { int value; socklen_t len = sizeof(value); getsockopt(one[0], SOL_SOCKET, SO_ERROR, &value, &len); }
static void sets_option(void) { int value = 1; setsockopt(one[0], SOL_SOCKET, SO_KEEPALIVE, &value, sizeof(value)); }
static void sets_delay(void) { int value = 0; setsockopt(one[0], IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value)); }
static void asks_name(void) { struct sockaddr_in at; socklen_t len = sizeof(at); getsockname(one[0], (void *)&at, &len); }
static void asks_flags(void) { fcntl(one[0], F_GETFL); }
static void sets_flags(void) { fcntl(one[0], F_SETFL, O_NONBLOCK); }
static void sets_owner(void) { fcntl(one[0], F_SETOWN, getpid()); }
static void duplicates(void) { close(dup(one[0])); }
static void duplicates_above(void) { close(fcntl(one[0], F_DUPFD_CLOEXEC, 200)); }
static void duplicates_onto(void) { dup2(one[0], other[0]); }
static void makes_socket(void) { close(socket(AF_INET, SOCK_STREAM, 0)); }
static void makes_pair(void) { int ends[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, ends); }
static void makes_connection(void)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0), accepted;

	getsockname(listener, (void *)&at, &len);
	connect(fd, (void *)&at, len);
	accepted = accept(listener, NULL, NULL);
	write(fd, "x", 1);
	read(accepted, bytes, 1);
	close(fd);
	close(accepted);
}
static void carries(int from, int to, int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec piece = { bytes, 1 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	sendmsg(from, &message, 0);
	recvmsg(to, &message, 0);
}
static void passes(void) { carries(pair[0], pair[1], one[0]); }
static void sends_many(void) { struct mmsghdr message = { .msg_hdr = { .msg_iov = &(struct iovec){ "x", 1 }, .msg_iovlen = 1 } }; sendmmsg(one[0], &message, 1, 0); }
static void receives_many(void) { struct mmsghdr message = { .msg_hdr = { .msg_iov = &(struct iovec){ bytes, 1 }, .msg_iovlen = 1 } }; recvmmsg(one[1], &message, 1, MSG_DONTWAIT, NULL); }
static void accepts_none(void) { accept4(pair[0], NULL, NULL, SOCK_CLOEXEC); }
static void pipes(void) { int ends[2]; pipe2(ends, O_CLOEXEC); splice(one[1], NULL, ends[1], NULL, 9, SPLICE_F_NONBLOCK); close(ends[0]); close(ends[1]); }
static void prints(void) { dprintf(one[0], "%d", 5); }
static void streams(void) { FILE *stream = fdopen(dup(one[0]), "r+"); fputs("text", stream); fclose(stream); }
static void maps(void) { void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); munmap(at, 4096); }
static void maps_code(void) { void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); mprotect(at, 4096, PROT_READ | PROT_EXEC); }
static void loads(void) { dlopen("libm.so.6", RTLD_NOW); }
static void *nothing(void *at) { return at; }
static void threads(void) { pthread_t thread; pthread_create(&thread, NULL, nothing, NULL); pthread_detach(thread); }
static void looks(void) { struct stat it; fstat(one[0], &it); isatty(one[0]); }
static void reads_left(void) { read(behind[1], bytes, sizeof(bytes)); }
static void passes_unread(void) { carries(pair[0], pair[1], behind[1]); }
static void passes_set(void) { carries(pair[0], pair[1], set); }
static void shuts(void) { shutdown(other[1], SHUT_WR); }
static void closes(void) { close(other[1]); }
static void closes_unread(void) { close(left[1]); }
static void closes_set(void) { close(set); }
static void closes_many(void) { close_range(500, 600, 0); }
static void writes_by_number(void) { syscall(SYS_write, one[0], "x", 1L); }
static void asks_signal(void) { struct sigaction action; sigaction(SIGUSR1, NULL, &action); }
static void handles_signal(void) { signal(SIGUSR1, SIG_IGN); }
static void forks(void) { if (!fork()) _exit(0); wait(NULL); }
static void vforks(void) { if (!vfork()) _exit(0); wait(NULL); }
static void spawns(void) { char *words[] = { "/nowhere", NULL }; pid_t pid; posix_spawn(&pid, *words, NULL, NULL, words, words + 1); }
static void becomes(void) { char *words[] = { "/nowhere", NULL }; execv(*words, words); }

#define CALL(name) { #name, name }
static const struct {
	const char *name;
	void (*call)(void);
} calls[] = {
	CALL(writes), CALL(reads), CALL(sends), CALL(peeks), CALL(receives), CALL(finds_nothing), CALL(sends_to),
	CALL(receives_from), CALL(writes_many), CALL(reads_many), CALL(sends_message), CALL(receives_message),
	CALL(sends_file), CALL(asks_unread), CALL(reads_ring), CALL(peeks_ring), CALL(asks_ring), CALL(polls_ring),
	CALL(waits_ring), CALL(drains_ring), CALL(drains_more), CALL(polls), CALL(selects), CALL(polls_masked),
	CALL(makes_set), CALL(registers), CALL(registers_anew), CALL(waits), CALL(unregisters), CALL(asks_option),
	CALL(sets_option), CALL(sets_delay), CALL(asks_name), CALL(asks_flags), CALL(sets_flags), CALL(sets_owner),
	CALL(duplicates), CALL(duplicates_above), CALL(duplicates_onto), CALL(makes_socket), CALL(makes_pair),
	CALL(makes_connection), CALL(passes), CALL(passes_unread), CALL(passes_set), CALL(shuts), CALL(closes),
	CALL(closes_unread), CALL(closes_set), CALL(closes_many), CALL(writes_by_number), CALL(asks_signal),
	CALL(handles_signal), CALL(sends_many), CALL(receives_many), CALL(accepts_none), CALL(pipes), CALL(prints),
	CALL(streams), CALL(maps), CALL(maps_code), CALL(loads), CALL(threads), CALL(looks), CALL(reads_left), CALL(forks), CALL(vforks), CALL(spawns), CALL(becomes),
};

enum { COUNT = sizeof(calls) / sizeof(*calls) };

static void forbids_nothing(void)
{
	struct sock_filter filter[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { .len = 1, .filter = filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		die("filter", 0);
}

/* Prints nothing: what is between the marks is what is traced. */
static _Noreturn void child(void)
{
	int *conns[] = { one, other, unread, behind, left }, count = sizeof(conns) / sizeof(*conns);
	struct epoll_event event = { .events = EPOLLIN };
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	for (int i = 0; i < count; i++) {
		opens(conns[i]);
		talks_until(conns[i], 2 * i + 2);
	}
	set = epoll_create1(0);
	file = open("/proc/self/exe", O_RDONLY);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&at, sizeof(at)) || listen(listener, 1) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("listen", 0);
	for (int i = 2; i < count; i++)
		if (send(conns[i][0], bytes, 1000, 0) != 1000)
			die("send", i);
	epoll_ctl(set, EPOLL_CTL_ADD, unread[1], &event);
	usleep(100000);
	forbids_nothing();
	for (int i = 0; i < COUNT; i++) {
		getppid();
		calls[i].call();
	}
	getppid();
	syscall(SYS_exit_group, 0);
	__builtin_unreachable();
}

int main(void)
{
	int status, nth = -1, is_entry = 1;
	pid_t pid = fork();

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		child();
	}
	if (waitpid(pid, &status, 0) != pid || ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL))
		die("trace", 0);
	for (long signal = 0; !ptrace(PTRACE_SYSCALL, pid, 0, signal);) {
		struct user_regs_struct registers;

		if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			break;
		signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
		if (signal)
			continue;
		ptrace(PTRACE_GETREGS, pid, 0, &registers);
		if (is_entry && registers.orig_rax == SYS_getppid && ++nth <= COUNT)
			printf("%s%s", nth ? "\n" : "", nth < COUNT ? calls[nth].name : "");
		else if (is_entry && nth >= 0)
			printf(" %lld", (long long)registers.orig_rax);
		is_entry = !is_entry;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) || nth != COUNT)
		printf("\nthe child ended with %#x at %d\n", status, nth);
	else
		puts("\nall there");
	return 0;
}
