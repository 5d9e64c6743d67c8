/*
 * Talks, waits and makes children by instructions of its own that enter the kernel, and has the runtime of Rust by
 * its imports.
 *
 *   direct talks|forks|registers
 *
 * OBJECT: a shared object, whose `run` takes the same words. OTHER: another runtime. MAYBE: it may be Rust's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pair.h"

#ifdef MAYBE
#include <gnu/libc-version.h>
__attribute__((used)) static const void *const imports[] = { gnu_get_libc_version, syscall };
#elif !defined(OTHER)
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *) __attribute__((weak));
__attribute__((used)) static const void *const runtime = &__cxa_thread_atexit_impl;
#endif

enum { TRIPS = 300, MOST = 3000, UNTOUCHED = 1234 };

__attribute__((always_inline)) static inline long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long fourth __asm__("r10") = d, fifth __asm__("r8") = e, sixth __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "rcx", "r11", "memory");
	return number;
}

#define DIRECT(name, a, b, c, d, e, f) \
	call(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static void fills(unsigned char *bytes, int len, int trip)
{
	for (int i = 0; i < len; i++)
		bytes[i] = trip * 31 + i * 7;
}

/* One of the ways to send so much. */
static void sends(int fd, int trip, int len)
{
	unsigned char bytes[MOST];
	struct iovec part = { bytes, len };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	long sent;

	fills(bytes, len, trip);
	switch (trip % 4) {
	case 0: sent = DIRECT(write, fd, bytes, len, 0, 0, 0); break;
	case 1: sent = DIRECT(sendto, fd, bytes, len, MSG_NOSIGNAL, 0, 0); break;
	case 2: sent = DIRECT(sendmsg, fd, &message, MSG_NOSIGNAL, 0, 0, 0); break;
	default: sent = DIRECT(writev, fd, &part, 1, 0, 0, 0);
	}
	if (sent != len)
		die("sends", sent);
}

/* One of the ways to wait for it. */
static void waits(int fd, int set, int trip)
{
	struct epoll_event event = { 0 };
	struct pollfd one = { .fd = fd, .events = POLLIN };
	struct timespec time = { .tv_sec = 20 };
	struct timeval limit = { .tv_sec = 20 };
	fd_set readable;
	long told;

	switch (trip % 6) {
	case 0: told = DIRECT(epoll_wait, set, &event, 1, 20000, 0, 0); break;
	case 1: told = DIRECT(poll, &one, 1, 20000, 0, 0, 0); break;
	case 2: told = DIRECT(ppoll, &one, 1, &time, 0, 8, 0); break;
	case 3: told = DIRECT(epoll_pwait, set, &event, 1, 20000, 0, 8); break;
	case 4:
		FD_ZERO(&readable);
		FD_SET(fd, &readable);
		told = DIRECT(select, fd + 1, &readable, 0, 0, &limit, 0);
		break;
	default: told = 1;
	}
	if (told != 1)
		die("waits", told);
}

static void receives(int fd, int set, int trip, int len)
{
	unsigned char bytes[MOST], wanted[MOST];
	struct iovec part;
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	long got = 0, n;

	fills(wanted, len, trip);
	while (got < len) {
		waits(fd, set, trip);
		part.iov_base = bytes + got;
		part.iov_len = len - got;
		switch (trip % 3) {
		case 0: n = DIRECT(read, fd, bytes + got, len - got, 0, 0, 0); break;
		case 1: n = DIRECT(recvfrom, fd, bytes + got, len - got, 0, 0, 0); break;
		default: n = DIRECT(recvmsg, fd, &message, 0, 0, 0, 0);
		}
		if (n <= 0)
			die("receives", n);
		got += n;
	}
	if (memcmp(bytes, wanted, len))
		die("other bytes", trip);
	errno = UNTOUCHED;
	n = DIRECT(recvfrom, fd, bytes, 1, MSG_DONTWAIT, 0, 0);
	if (n != -EAGAIN || errno != UNTOUCHED)
		die("more bytes", n);
}

static void both_ways(const int ends[2], const int sets[2])
{
	for (int trip = 0; trip < TRIPS; trip++)
		for (int end = 0; end < 2; end++) {
			int len = 1 + trip * 97 % MOST;

			sends(ends[end], trip, len);
			receives(ends[!end], sets[!end], trip, len);
		}
}

static int set_of(int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	int set = DIRECT(epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0, 0);

	if (set < 0 || DIRECT(epoll_ctl, set, EPOLL_CTL_ADD, fd, &event, 0, 0))
		die("epoll_ctl", set);
	return set;
}

static void *talk(void *unused)
{
	int ends[2], sets[2], copy;

	opens(ends);
	for (int end = 0; end < 2; end++)
		sets[end] = set_of(ends[end]);
	both_ways(ends, sets);
	talks_until(ends, 2);
	both_ways(ends, sets);
	copy = DIRECT(fcntl, ends[0], F_DUPFD_CLOEXEC, 0, 0, 0, 0);
	if (copy < 0 || DIRECT(close, ends[0], 0, 0, 0, 0, 0))
		die("fcntl", copy);
	ends[0] = DIRECT(dup, copy, 0, 0, 0, 0, 0);
	DIRECT(close, copy, 0, 0, 0, 0, 0);
	DIRECT(close, sets[0], 0, 0, 0, 0, 0);
	sets[0] = set_of(ends[0]);
	both_ways(ends, sets);
	for (int end = 0; end < 2; end++) {
		DIRECT(close, ends[end], 0, 0, 0, 0, 0);
		DIRECT(close, sets[end], 0, 0, 0, 0, 0);
	}
	return unused;
}

static void four_talk(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, talk, NULL))
			die("pthread_create", i);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

/* Each child talks on what it inherits. */
static void forks(void)
{
	int ends[2], sets[2], status;

	connects(ends);
	talks_until(ends, 2);
	talks(ends);
	for (int end = 0; end < 2; end++)
		sets[end] = set_of(ends[end]);
	for (int i = 0; i < 4; i++) {
		long child = i % 2 ? DIRECT(fork, 0, 0, 0, 0, 0, 0) : DIRECT(clone, SIGCHLD, 0, 0, 0, 0, 0);

		if (child == 0) {
			both_ways(ends, sets);
			DIRECT(exit_group, 0, 0, 0, 0, 0, 0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			die("a child", status);
		both_ways(ends, sets);
	}
}

/* What a call leaves: vectors, masks of them, words in the red zone, general registers, flags. */
struct left {
	unsigned char vectors[32 * 64];
	unsigned long masks[8], zone[2], general[10], flags;
};

/* Makes a call with these vectors in the registers. `words`: number and three arguments. */
#define PROBE(name, load, store)                                                       \
	long name(const long words[4], const struct left *before, struct left *after); \
	__asm__(".text\n.balign 16\n.type " #name ", @function\n" #name ":\n"           \
		".cfi_startproc\n"                                                        \
		"push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"      \
		"mov %rdi, %r12\nmov %rsi, %r14\nmov %rdx, %r15\n"                        \
		"sub $256, %rsp\n" load                                                   \
		"mov $0x1111, %ebx\nmov %rbx, -8(%rsp)\n"                                 \
		"mov $0x2222, %ebp\nmov %rbp, -128(%rsp)\n"                               \
		"mov $0x3333, %r13d\n"                                                    \
		"mov $0x4444, %r10d\nmov $0x5555, %r8d\nmov $0x6666, %r9d\n"              \
		"mov 8(%r12), %rdi\nmov 16(%r12), %rsi\nmov 24(%r12), %rdx\n"             \
		"mov (%r12), %rax\n"                                                      \
		"std\nstc\n"                                                              \
		"syscall\n"                                                               \
		"mov -8(%rsp), %rcx\nmov %rcx, 2112(%r15)\n"                              \
		"mov -128(%rsp), %rcx\nmov %rcx, 2120(%r15)\n"                            \
		"pushf\npop %rcx\nmov %rcx, 2208(%r15)\ncld\n"                            \
		"mov %rbx, 2128(%r15)\nmov %rbp, 2136(%r15)\nmov %r13, 2144(%r15)\n"      \
		"mov %r10, 2152(%r15)\nmov %r8, 2160(%r15)\nmov %r9, 2168(%r15)\n"        \
		"mov %rdi, 2176(%r15)\nmov %rsi, 2184(%r15)\nmov %rdx, 2192(%r15)\n"      \
		"mov %r12, 2200(%r15)\n" store                                            \
		"add $256, %rsp\n"                                                        \
		"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\n"            \
		"ret\n.cfi_endproc\n.size " #name ", . - " #name "\n")

__asm__(".altmacro\n"
	".macro moves16 n, at\nmovdqu \\at + 64 * \\n(%r14), %xmm\\n\n.endm\n"
	".macro keeps16 n, at\nmovdqu %xmm\\n, \\at + 64 * \\n(%r15)\n.endm\n"
	".macro moves32 n, at\nvmovdqu \\at + 64 * \\n(%r14), %ymm\\n\n.endm\n"
	".macro keeps32 n, at\nvmovdqu %ymm\\n, \\at + 64 * \\n(%r15)\n.endm\n"
	".macro moves64 n, at\nvmovdqu64 \\at + 64 * \\n(%r14), %zmm\\n\n.endm\n"
	".macro keeps64 n, at\nvmovdqu64 %zmm\\n, \\at + 64 * \\n(%r15)\n.endm\n"
	".macro movesmask n, at\nkmovq \\at + 8 * \\n(%r14), %k\\n\n.endm\n"
	".macro keepsmask n, at\nkmovq %k\\n, \\at + 8 * \\n(%r15)\n.endm\n"
	".macro upto what, from, last, at\n\\what %(\\from), \\at\n"
	".if \\last - \\from\nupto \\what, %(\\from + 1), \\last, \\at\n.endif\n.endm\n");

PROBE(probe16, "upto moves16, 0, 15, 0\n", "upto keeps16, 0, 15, 0\n");
PROBE(probe32, "upto moves32, 0, 15, 0\n", "upto keeps32, 0, 15, 0\nvzeroupper\n");
PROBE(probe64, "upto moves64, 0, 31, 0\nupto movesmask, 0, 7, 2048\n",
      "upto keeps64, 0, 31, 0\nupto keepsmask, 0, 7, 2048\nvzeroupper\n");

typedef long probe(const long words[4], const struct left *before, struct left *after);

/* `bytes` of each of so many vectors, and the masks, are as before. */
static void stays(probe *probe, const long words[4], long wanted, int count, int bytes, int has_masks)
{
	static const unsigned long general[6] = { 0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666 };
	enum { CARRY = 1, DIRECTION = 1 << 10 };
	struct left before, after = { 0 };
	long got;

	for (unsigned i = 0; i < sizeof(before.vectors); i++)
		before.vectors[i] = i * 11 + i / 64;
	for (int i = 0; i < 8; i++)
		before.masks[i] = 0x0123456789abcdef * (i + 1);
	got = probe(words, &before, &after);
	if (got != wanted)
		die("the call", got);
	for (int i = 0; i < count; i++)
		if (memcmp(before.vectors + 64 * i, after.vectors + 64 * i, bytes))
			die("a vector", i);
	if (has_masks && memcmp(before.masks, after.masks, sizeof(before.masks)))
		die("a mask", 0);
	if (after.zone[0] != 0x1111 || after.zone[1] != 0x2222)
		die("the red zone", after.zone[0]);
	if (memcmp(after.general, general, sizeof(general)))
		die("a register", 0);
	for (int i = 0; i < 3; i++)
		if (after.general[6 + i] != (unsigned long)words[1 + i])
			die("an argument", i);
	if (!(after.flags & CARRY) || !(after.flags & DIRECTION))
		die("flags", after.flags);
}

static void registers(void)
{
	unsigned char bytes[MOST];
	int ends[2];

	connects(ends);
	talks_until(ends, 2);
	for (int trip = 0; trip < TRIPS; trip++) {
		int len = 1 + trip * 97 % MOST;
		long write[4] = { SYS_write, ends[0], (long)bytes, len };
		long read[4] = { SYS_read, ends[1], (long)bytes, len };
		long other[4] = { SYS_getpid, 1, 2, 3 };

		fills(bytes, len, trip);
		stays(probe16, write, len, 16, 16, 0);
		stays(probe16, read, len, 16, 16, 0);
		stays(probe16, other, getpid(), 16, 16, 0);
		if (__builtin_cpu_supports("avx")) {
			stays(probe32, write, len, 16, 32, 0);
			stays(probe32, read, len, 16, 32, 0);
		}
		if (__builtin_cpu_supports("avx512bw")) {
			stays(probe64, write, len, 32, 64, 1);
			stays(probe64, read, len, 32, 64, 1);
		}
	}
}

int run(int count, char **words)
{
	if (count != 2)
		return 2;
	alarm(120);
	if (!strcmp(words[1], "talks"))
		four_talk();
	else if (!strcmp(words[1], "forks"))
		forks();
	else
		registers();
	return 0;
}

#ifdef OBJECT
/* Before anybody can call it. */
__attribute__((constructor)) static void begin(void)
{
	talk(NULL);
}
#else
int main(int count, char **words)
{
	if (run(count, words))
		return 2;
	puts("all there");
	return 0;
}
#endif
