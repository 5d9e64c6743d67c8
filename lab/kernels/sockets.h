/* Stream sockets of either kind, for kernels with a client and a server.
 *
 * An address is a.b.c.d:PORT for TCP, or a path that begins with / for a Unix socket.
 */
#ifndef SOCKETS_H
#define SOCKETS_H

#include "lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in tcp;
	struct sockaddr_un unix_path;
};

static inline socklen_t address_of(const char *text, union address *address)
{
	char host[64];
	const char *colon = strrchr(text, ':');

	memset(address, 0, sizeof(*address));
	if (*text == '/') {
		if (strlen(text) >= sizeof(address->unix_path.sun_path))
			lab_die("the path is too long", text);
		address->unix_path.sun_family = AF_UNIX;
		strcpy(address->unix_path.sun_path, text);
		return sizeof(address->unix_path);
	}
	if (!colon || colon - text >= (long)sizeof(host))
		lab_die("neither a.b.c.d:PORT nor a path", text);
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	address->tcp.sin_family = AF_INET;
	address->tcp.sin_port = htons((uint16_t)lab_number(colon + 1, 1, 65535));
	if (inet_pton(AF_INET, host, &address->tcp.sin_addr) != 1)
		lab_die("no IPv4 address", host);
	return sizeof(address->tcp);
}

static inline void need(int done, const char *what)
{
	if (!done)
		lab_die(what, strerror(errno));
}

static inline int open_socket(const union address *address)
{
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	need(fd >= 0, "socket");
	return fd;
}

static inline void send_at_once(int fd, const union address *address)
{
	int on = 1;

	if (address->any.sa_family == AF_INET)
		need(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "TCP_NODELAY");
}

static inline void put(int fd, const void *bytes, long len)
{
	for (long done = 0; done < len;) {
		ssize_t now = send(fd, (const char *)bytes + done, (size_t)(len - done), MSG_NOSIGNAL);

		if (now < 0 && errno == EINTR)
			continue;
		need(now > 0, "send");
		done += now;
	}
}

static inline void get(int fd, void *bytes, long len)
{
	for (long done = 0; done < len;) {
		ssize_t now = recv(fd, (char *)bytes + done, (size_t)(len - done), 0);

		if (now < 0 && errno == EINTR)
			continue;
		if (now == 0)
			lab_die("recv", "the other side has gone");
		need(now > 0, "recv");
		done += now;
	}
}

/* Says so once it listens. */
static inline int listener_at(const union address *address, socklen_t address_len)
{
	int listener = open_socket(address), on = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	need(!bind(listener, &address->any, address_len), "bind");
	need(!listen(listener, SOMAXCONN), "listen");
	printf("listens\n");
	fflush(stdout);
	return listener;
}

static inline int accepted(int listener, const union address *address)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	need(fd >= 0, "accept");
	send_at_once(fd, address);
	return fd;
}

static inline int connected(const union address *address, socklen_t address_len)
{
	int fd = open_socket(address);

	need(!connect(fd, &address->any, address_len), "connect");
	send_at_once(fd, address);
	return fd;
}

#endif
