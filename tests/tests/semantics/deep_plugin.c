/* An object that is loaded with RTLD_DEEPBIND; see deep.c. Calls, and addresses, of libc's functions. */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t (*const reads_by)(int, void *, size_t) = read;

int waits(int fd)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };

	return poll(&one, 1, -1);
}

ssize_t receives(int fd, void *buffer, size_t bytes)
{
	return recv(fd, buffer, bytes, MSG_WAITALL);
}

ssize_t reads(int fd, void *buffer, size_t bytes)
{
	return reads_by(fd, buffer, bytes);
}
