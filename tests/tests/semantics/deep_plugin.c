/* An object that is loaded with RTLD_DEEPBIND; see deep.c. Calls, and addresses, of libc's functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t (*const reads_by)(int, void *, size_t) = read;

/* What it keeps for later, where nobody but itself finds it. */
static struct kept {
	int (*poll)(struct pollfd *, nfds_t, int);
	ssize_t (*recv)(int, void *, size_t, int);
	ssize_t (*read)(int, void *, size_t);
} *kept;

/* By address, behind itself, or in the usual order. */
int keeps(char how)
{
	void *where = how == 'n' ? RTLD_NEXT : RTLD_DEFAULT;

	kept = malloc(sizeof(*kept));
	if (how == 'a') {
		*kept = (struct kept){ poll, recv, read };
		return 1;
	}
	kept->poll = (int (*)(struct pollfd *, nfds_t, int))dlsym(where, "poll");
	kept->recv = (ssize_t(*)(int, void *, size_t, int))dlvsym(where, "recv", "GLIBC_2.2.5");
	kept->read = (ssize_t(*)(int, void *, size_t))dlsym(where, "read");
	return kept->poll && kept->recv && kept->read && !dlsym(where, "no such function");
}

int waits(int fd)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };

	return (kept ? kept->poll : poll)(&one, 1, -1);
}

ssize_t receives(int fd, void *buffer, size_t bytes)
{
	return (kept ? kept->recv : recv)(fd, buffer, bytes, MSG_WAITALL);
}

ssize_t reads(int fd, void *buffer, size_t bytes)
{
	return (kept ? kept->read : reads_by)(fd, buffer, bytes);
}
