/*
 * A program and an object that it loads with RTLD_DEEPBIND use one connection by turns. The object looks
 * for names in itself, and in libc, before it looks where others do.
 *
 *   deep early|late|moved OBJECT
 *   deep keeps-address|keeps-next|keeps-default|early-address OBJECT
 *   deep plain-next|plain-default OBJECT
 *   deep handle LIBC
 *
 * early: it is loaded before the connection is made. moved: what was loaded before it is unloaded.
 * keeps: as soon as it is loaded, it keeps pointers to the functions. plain: the same, without RTLD_DEEPBIND.
 * handle: the functions are looked up in libc's own handle, as foreign-function interfaces do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>

#include "peer.h"

enum { TRIPS = 3000, BYTES = 100, PATIENCE_S = 30 };

typedef ssize_t receive(int fd, void *buffer, size_t bytes);

static int s;
static int (*waits)(int fd);
static receive *receives, *reads;
static int (*libc_poll)(struct pollfd *, nfds_t, int);
static ssize_t (*libc_recv)(int, void *, size_t, int);

static int waits_by_libc(int fd)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };

	return libc_poll(&one, 1, -1);
}

static ssize_t receives_by_libc(int fd, void *buffer, size_t bytes)
{
	return libc_recv(fd, buffer, bytes, MSG_WAITALL);
}

static void load_libc(const char *path)
{
	void *object = dlopen(path, RTLD_LAZY);

	if (!object)
		die(dlerror(), 0);
	libc_poll = (int (*)(struct pollfd *, nfds_t, int))dlsym(object, "poll");
	libc_recv = (ssize_t(*)(int, void *, size_t, int))dlvsym(object, "recv", "GLIBC_2.2.5");
	reads = (receive *)dlsym(object, "read");
	if (!libc_poll || !libc_recv || !reads || dlsym(object, "no such function"))
		die("dlsym", 0);
	waits = waits_by_libc;
	receives = receives_by_libc;
}

static void load(const char *path, const char *how)
{
	int is_deep = strncmp(how, "plain", 5) != 0;
	void *object = dlopen(path, RTLD_LAZY | (is_deep ? RTLD_GLOBAL | RTLD_DEEPBIND : 0));
	const char *kept = strchr(how, '-');
	int (*keeps)(char);

	if (!object)
		die(dlerror(), 0);
	waits = (int (*)(int))dlsym(object, "waits");
	receives = (receive *)dlsym(object, "receives");
	reads = (receive *)dlsym(object, "reads");
	keeps = (int (*)(char))dlsym(object, "keeps");
	if (!waits || !receives || !reads || !keeps || (kept && !keeps(kept[1])))
		die("dlsym", 0);
}

static void talk(int is_by_object)
{
	char sent[BYTES], got[BYTES];
	ssize_t n;

	for (int trip = 0; trip < TRIPS; trip++) {
		memset(sent, trip, BYTES);
		if (send(s, sent, BYTES, MSG_NOSIGNAL) != BYTES)
			die("send", trip);
		if (!is_by_object)
			n = recv(s, got, BYTES, MSG_WAITALL);
		else if (waits(s) != 1)
			die("poll", trip);
		else
			n = (trip % 2 ? receives : reads)(s, got, BYTES);
		if (n != BYTES || memcmp(sent, got, BYTES))
			die(is_by_object ? "the object's recv" : "recv", trip);
	}
}

int main(int count, char **words)
{
	void *other = NULL;

	if (count != 3)
		return 2;
	alarm(PATIENCE_S);
	if (!strncmp(words[1], "early", 5))
		load(words[2], words[1]);
	s = echoing_peer();
	talk(0);
	if (!strcmp(words[1], "handle"))
		load_libc(words[2]);
	else if (!strcmp(words[1], "moved") && !(other = dlopen("libresolv.so.2", RTLD_LAZY)))
		die(dlerror(), 0);
	else if (!waits)
		load(words[2], words[1]);
	if (other)
		dlclose(other);
	talk(0);
	talk(1);
	talk(0);
	puts("all there");
	return 0;
}
