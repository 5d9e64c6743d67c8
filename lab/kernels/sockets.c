/* Stream sockets as OSU's micro-benchmarks measure MPI, for sizes 1, 4, 16 ... MOST:
 *
 *   latency     a message there and back, one by one; half of that time
 *   bandwidth   64 messages in a row, then one byte back for all of them
 *
 * The message rate is the bandwidth run's. One side serves, the other measures and checks:
 *
 *   sockets serve ADDRESS
 *   sockets measure ADDRESS MOST
 *
 * ADDRESS is a.b.c.d:PORT for TCP, or a path that begins with / for a Unix socket. The server
 * prints "listens" once it does, and ends with its first client. It sends back what it gets in a
 * latency run; of a bandwidth run it looks at each byte, untimed, in a last message.
 */
#include "lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { WINDOW = 64 };

static const long most_repetitions = 10000, volume_bytes = 40000000, warm_up = 100;

/* What the client says before each run; the last one has no messages. */
struct plan {
	long len;
	/* Answers that the server gives, each to `window` messages. */
	long answers;
	long window;
	long answer_len;
};

union address {
	struct sockaddr any;
	struct sockaddr_in tcp;
	struct sockaddr_un unix_path;
};

static socklen_t address_of(const char *text, union address *address)
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

static void need(int done, const char *what)
{
	if (!done)
		lab_die(what, strerror(errno));
}

static int open_socket(const union address *address)
{
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	need(fd >= 0, "socket");
	return fd;
}

static void send_at_once(int fd, const union address *address)
{
	int on = 1;

	if (address->any.sa_family == AF_INET)
		need(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "TCP_NODELAY");
}

static void put(int fd, const void *bytes, long len)
{
	for (long done = 0; done < len;) {
		ssize_t now = send(fd, (const char *)bytes + done, (size_t)(len - done), MSG_NOSIGNAL);

		if (now < 0 && errno == EINTR)
			continue;
		need(now > 0, "send");
		done += now;
	}
}

static void get(int fd, void *bytes, long len)
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

static unsigned char byte_of(long at, long len)
{
	return (unsigned char)(at * 7 + len);
}

static int is_intact(const unsigned char *bytes, long len)
{
	int right = 1;

	for (long at = 0; at < len; at++)
		right &= bytes[at] == byte_of(at, len);
	return right;
}

static int serve(const char *where)
{
	union address address;
	socklen_t address_len = address_of(where, &address);
	int listener = open_socket(&address), on = 1, fd;
	struct plan plan;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	need(!bind(listener, &address.any, address_len), "bind");
	need(!listen(listener, 1), "listen");
	printf("listens\n");
	fflush(stdout);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	need(fd >= 0, "accept");
	send_at_once(fd, &address);
	for (get(fd, &plan, sizeof(plan)); plan.answers; get(fd, &plan, sizeof(plan))) {
		unsigned char *bytes = lab_memory((size_t)plan.len, 1);
		unsigned char right;

		for (long answer = 0; answer < plan.answers; answer++) {
			for (long message = 0; message < plan.window; message++)
				get(fd, bytes, plan.len);
			put(fd, bytes, plan.answer_len);
		}
		get(fd, bytes, plan.len);
		right = (unsigned char)is_intact(bytes, plan.len);
		put(fd, &right, 1);
		free(bytes);
	}
	return 0;
}

/* Returns seconds for one answer, warm-up apart. Adds to `right` what the server found intact. */
static double run(int fd, struct plan plan, unsigned char *bytes, long *right, double *moved)
{
	long repetitions = plan.answers;
	double begun = 0, seconds;
	unsigned char verdict;

	plan.answers += warm_up / plan.window + 1;
	*moved += (double)(plan.answers * (plan.window * plan.len + plan.answer_len) + plan.len);
	put(fd, &plan, sizeof(plan));
	for (long answer = 0; answer < plan.answers; answer++) {
		if (answer == plan.answers - repetitions)
			begun = lab_now_s();
		for (long message = 0; message < plan.window; message++)
			put(fd, bytes, plan.len);
		get(fd, bytes, plan.answer_len);
	}
	seconds = (lab_now_s() - begun) / (double)repetitions;
	for (long at = 0; at < plan.len; at++)
		bytes[at] = byte_of(at, plan.len);
	put(fd, bytes, plan.len);
	get(fd, &verdict, 1);
	*right += verdict == 1;
	return seconds;
}

static long repetitions_of(long len)
{
	long repetitions = len * most_repetitions > volume_bytes ? volume_bytes / len : most_repetitions;

	return repetitions < 1 ? 1 : repetitions;
}

static int measure(const char *where, long most)
{
	union address address;
	socklen_t address_len = address_of(where, &address);
	int fd = open_socket(&address);
	unsigned char *bytes = lab_memory((size_t)most, 1);
	long right = 0, all = 0;
	double moved = 0;
	char cpus[LAB_CPUS_LEN];

	need(!connect(fd, &address.any, address_len), "connect");
	send_at_once(fd, &address);
	for (long len = 1; len <= most; len *= 4) {
		struct plan latency = { len, repetitions_of(len), 1, len };
		struct plan bandwidth = { len, repetitions_of(len) / WINDOW + 1, WINDOW, 1 };
		double there = run(fd, latency, bytes, &right, &moved) / 2;
		double message = run(fd, bandwidth, bytes, &right, &moved) / WINDOW;

		printf("point %ld %.3f %.3f %.3f\n", len, 1e9 * there, (double)len / message, 1 / message);
		all += 2;
	}
	put(fd, &(struct plan){ 0 }, sizeof(struct plan));
	lab_cpus(cpus);
	lab_print_cpus(0, cpus);
	printf("moved %.0f\n", moved);
	return lab_checked(right, all);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "measure"))
		return measure(argv[2], lab_number(argv[3], 1, 1 << 26));
	lab_die("usage", "sockets serve ADDRESS | sockets measure ADDRESS MOST");
	return 2;
}
