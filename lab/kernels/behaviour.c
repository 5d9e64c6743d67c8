/* What programs rely on in a TCP connection, tried one by one, each on a busy connection of its own:
 *
 *   behaviour serve ADDRESS
 *   behaviour measure ADDRESS
 *
 * ADDRESS is as in sockets.h. The client's first connection tells the server what comes next and
 * takes its verdicts. Each connection is made busy by messages there and back, so that whatever
 * takes TCP's place has done so. Then one end does something, and the other looks.
 */
#include "sockets.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

enum { MESSAGE = 64, MESSAGES = 3000, LARGE = 1 << 20, SOON_MS = 50, LATE_MS = 2000 };

/* By then a sender whose bytes nobody reads must have been stopped. */
static const long most_unread = 256L << 20;

static void busy_client(int fd)
{
	char bytes[MESSAGE] = { 0 };

	for (int done = 0; done < MESSAGES; done++) {
		put(fd, bytes, MESSAGE);
		get(fd, bytes, MESSAGE);
	}
}

static void busy_server(int fd)
{
	char bytes[MESSAGE];

	for (int done = 0; done < MESSAGES; done++) {
		get(fd, bytes, MESSAGE);
		put(fd, bytes, MESSAGE);
	}
}

/* What poll tells within `ms`; 0: nothing. */
static int told(int fd, short events, int ms)
{
	struct pollfd one = { fd, events, 0 };

	return poll(&one, 1, ms) == 1 ? one.revents : 0;
}

/* Reads `len` bytes, none of which may be late. */
static int came(int fd, void *bytes, long len)
{
	long done = 0;

	while (done < len) {
		ssize_t now;

		if (!told(fd, POLLIN, LATE_MS))
			return 0;
		now = recv(fd, (char *)bytes + done, (size_t)(len - done), MSG_DONTWAIT);
		if (now == 0 || (now < 0 && errno != EAGAIN))
			return 0;
		done += now > 0 ? now : 0;
	}
	return 1;
}

static int ended(int fd)
{
	char byte;

	return told(fd, POLLIN, LATE_MS) && recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static int said(int fd, const char *text)
{
	char bytes[64] = { 0 };

	return came(fd, bytes, (long)strlen(text)) && !strcmp(bytes, text);
}

/* Whether all went; where it does not, the other end has given up. */
static int sent(int fd, const void *bytes, long len)
{
	long done = 0;
	ssize_t now;

	while (done < len && (now = send(fd, (const char *)bytes + done, (size_t)(len - done), MSG_NOSIGNAL)) > 0)
		done += now;
	return done == len;
}

static void say(int fd, const char *text)
{
	sent(fd, text, (long)strlen(text));
}

/* Until the other end has had time to look. */
static void later(void)
{
	poll(NULL, 0, 2 * SOON_MS);
}

static int nothing(int fd)
{
	(void)fd;
	return 1;
}

static int urgent_byte(int fd)
{
	say(fd, "before");
	if (send(fd, "!", 1, MSG_OOB | MSG_NOSIGNAL) != 1)
		return 0;
	say(fd, "after");
	return said(fd, "seen");
}

static int sees_urgent_byte(int fd)
{
	char byte = 0;
	int urgent = told(fd, POLLPRI, LATE_MS) & POLLPRI && recv(fd, &byte, 1, MSG_OOB) == 1;
	int right = urgent && byte == '!' && said(fd, "before") && said(fd, "after");

	say(fd, "seen");
	return right;
}

static int reads_three(int fd)
{
	int right = said(fd, "onetwothree");

	say(fd, "seen");
	return right;
}

static int three_messages(int fd)
{
	say(fd, "one");
	say(fd, "two");
	say(fd, "three");
	return said(fd, "seen");
}

static int counts_unread(int fd)
{
	int unread = 0, right;

	later();
	right = !ioctl(fd, FIONREAD, &unread) && unread == 11;
	return reads_three(fd) && right;
}

static int peeks(int fd)
{
	char bytes[8] = { 0 };
	int right;

	later();
	right = recv(fd, bytes, 6, MSG_PEEK | MSG_DONTWAIT) == 6 && !memcmp(bytes, "onetwo", 6);
	return reads_three(fd) && right;
}

static int waits_for_all(int fd)
{
	char bytes[12] = { 0 };
	int right;

	/* Ends a wait for bytes that do not come. */
	alarm(LATE_MS / 1000);
	right = recv(fd, bytes, 11, MSG_WAITALL) == 11 && !strcmp(bytes, "onetwothree");
	alarm(0);
	say(fd, "seen");
	return right;
}

static int slow_messages(int fd)
{
	say(fd, "one");
	later();
	say(fd, "two");
	later();
	say(fd, "three");
	return said(fd, "seen");
}

/* One more each time that it is asked to. */
static int messages_when_asked(int fd)
{
	say(fd, "one");
	if (!said(fd, "more"))
		return 0;
	say(fd, "two");
	if (!said(fd, "more"))
		return 0;
	say(fd, "three");
	return said(fd, "seen");
}

static int low_water_mark(int fd)
{
	int mark = 11, right;

	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark));
	say(fd, "more");
	/* "one" and "two" are there by then. */
	right = !(told(fd, POLLIN, 2 * SOON_MS) & POLLIN);
	say(fd, "more");
	right &= told(fd, POLLIN, LATE_MS) & POLLIN && said(fd, "onetwothree");
	mark = 1;
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark));
	say(fd, "seen");
	return right;
}

static int tells_each_edge(int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int set = epoll_create1(EPOLL_CLOEXEC), edges = 0, right;

	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	for (int message = 0; message < 3; message++) {
		if (message)
			say(fd, "more");
		edges += epoll_wait(set, &event, 1, LATE_MS) == 1;
	}
	right = edges == 3 && said(fd, "onetwothree") && !epoll_wait(set, &event, 1, 0);
	close(set);
	say(fd, "seen");
	return right;
}

static int half_close(int fd)
{
	say(fd, "all");
	shutdown(fd, SHUT_WR);
	return said(fd, "answer") && ended(fd);
}

static int answers_half_close(int fd)
{
	struct epoll_event event = { .events = EPOLLRDHUP };
	int set = epoll_create1(EPOLL_CLOEXEC), right;

	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	right = epoll_wait(set, &event, 1, LATE_MS) == 1 && event.events & EPOLLRDHUP;
	close(set);
	right &= said(fd, "all") && ended(fd);
	say(fd, "answer");
	return right;
}

static int resets(int fd)
{
	struct linger at_once = { 1, 0 };
	int right = said(fd, "now");

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	return right;
}

static int sees_reset(int fd)
{
	char byte;

	say(fd, "now");
	return told(fd, POLLIN, LATE_MS) & POLLERR && recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET;
}

static int last_words(int fd)
{
	char *bytes = lab_memory(LARGE, 1);
	int right = sent(fd, bytes, LARGE);

	free(bytes);
	return right;
}

static int reads_last_words(int fd)
{
	char *bytes = lab_memory(LARGE, 1);
	int right;

	later();
	right = came(fd, bytes, LARGE) && ended(fd);
	free(bytes);
	return right;
}

static int gives_up_waiting(int fd)
{
	struct timeval soon = { 0, 1000 * SOON_MS }, never = { 0 };
	double begun = lab_now_s();
	char byte;
	int right;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	right = recv(fd, &byte, 1, 0) < 0 && errno == EAGAIN && lab_now_s() - begun > 0.9e-3 * SOON_MS;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never));
	say(fd, "now");
	return right && said(fd, "bytes");
}

static int sends_when_asked(int fd)
{
	int right = said(fd, "now");

	say(fd, "bytes");
	return right;
}

/* Nobody reads: at some point no more is taken, and then all that was taken arrives. */
static int fills(int fd)
{
	char *bytes = lab_memory(LARGE, 1);
	long taken = 0, counted = 0;
	ssize_t now = 0;
	int right;

	while (taken < most_unread && (now = send(fd, bytes, LARGE, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
		taken += now;
	right = now < 0 && errno == EAGAIN;
	free(bytes);
	/* The server counts until the end. */
	shutdown(fd, SHUT_WR);
	return came(fd, &counted, sizeof(counted)) && counted == taken && right;
}

static int drains(int fd)
{
	char *bytes = lab_memory(LARGE, 1);
	long counted = 0;
	ssize_t now;

	poll(NULL, 0, 10 * SOON_MS);
	while (told(fd, POLLIN, LATE_MS) && (now = recv(fd, bytes, LARGE, MSG_DONTWAIT)) > 0)
		counted += now;
	free(bytes);
	return sent(fd, &counted, sizeof(counted));
}

static int file_of(const char *text)
{
	int file = memfd_create("behaviour", MFD_CLOEXEC);

	need(file >= 0 && write(file, text, strlen(text)) > 0, "memfd");
	return file;
}

static int sends_file(int fd)
{
	int file = file_of("onetwothree");
	off_t from = 0;
	int right = sendfile(fd, file, &from, 11) == 11;

	close(file);
	return right && said(fd, "seen");
}

static int splices(int fd)
{
	int ends[2], right;
	char bytes[12] = { 0 };

	later();
	need(!pipe2(ends, O_CLOEXEC), "pipe");
	right = splice(fd, NULL, ends[1], NULL, 11, SPLICE_F_NONBLOCK) == 11 && read(ends[0], bytes, 11) == 11;
	close(ends[0]);
	close(ends[1]);
	say(fd, "seen");
	return right && !strcmp(bytes, "onetwothree");
}

static int reads_by_child(int fd)
{
	int status = 0;
	pid_t child = fork();

	need(child >= 0, "fork");
	if (!child)
		_exit(reads_three(fd) ? 0 : 1);
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

static int reads_by_passed_descriptor(int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec one = { &byte, 1 };
	struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	struct cmsghdr *control = CMSG_FIRSTHDR(&message);
	int pair[2], passed, right;

	need(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(control), &fd, sizeof(int));
	need(sendmsg(pair[0], &message, 0) == 1, "sendmsg");
	need(recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC) == 1, "recvmsg");
	memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	right = reads_three(passed);
	close(passed);
	close(pair[0]);
	close(pair[1]);
	return right;
}

/* Both know each other's address and port. */
static int knows_its_peer(int fd)
{
	struct sockaddr_in peer = { 0 };
	socklen_t len = sizeof(peer);

	return !getpeername(fd, (struct sockaddr *)&peer, &len) && peer.sin_family == AF_INET && peer.sin_port;
}

static int kernel_counts(int fd)
{
	/* struct tcp_info of the kernel; libc's is shorter. */
	struct {
		char before[128];
		uint64_t bytes_received;
	} info = { 0 };
	socklen_t len = sizeof(info);

	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) &&
	       info.bytes_received >= (uint64_t)MESSAGE * MESSAGES;
}

/* What a child had sent when it was killed arrives, and then the end. */
static int is_killed(int fd)
{
	pid_t child = fork();

	need(child >= 0, "fork");
	if (!child) {
		say(fd, "onetwothree");
		kill(getpid(), SIGKILL);
	}
	return waitpid(child, NULL, 0) == child;
}

static int sees_killed(int fd)
{
	return said(fd, "onetwothree") && ended(fd);
}

/* `acts` is the client's part, `looks` the server's; it closes when both are done. */
static const struct {
	const char *name;
	int (*acts)(int fd), (*looks)(int fd);
} behaviours[] = {
	{ "urgent-byte", urgent_byte, sees_urgent_byte },
	{ "bytes-unread", three_messages, counts_unread },
	{ "peek", three_messages, peeks },
	{ "wait-for-all", slow_messages, waits_for_all },
	{ "low-water-mark", messages_when_asked, low_water_mark },
	{ "edges", messages_when_asked, tells_each_edge },
	{ "half-close", half_close, answers_half_close },
	{ "reset", resets, sees_reset },
	{ "last-words", last_words, reads_last_words },
	{ "killed-peer", is_killed, sees_killed },
	{ "time-out", sends_when_asked, gives_up_waiting },
	{ "back-pressure", fills, drains },
	{ "sendfile", sends_file, reads_three },
	{ "splice", three_messages, splices },
	{ "child", three_messages, reads_by_child },
	{ "passed-descriptor", three_messages, reads_by_passed_descriptor },
	{ "addresses", knows_its_peer, knows_its_peer },
	{ "kernel-counters", nothing, kernel_counts },
};

enum { COUNT = sizeof(behaviours) / sizeof(behaviours[0]) };

static int serve(const char *where)
{
	union address address;
	socklen_t address_len = address_of(where, &address);
	int listener = listener_at(&address, address_len), control = accepted(listener, &address);
	unsigned char next;

	for (get(control, &next, 1); next < COUNT; get(control, &next, 1)) {
		int fd = accepted(listener, &address);
		unsigned char right;

		busy_server(fd);
		right = (unsigned char)behaviours[next].looks(fd);
		close(fd);
		put(control, &right, 1);
	}
	return 0;
}

static int measure(const char *where)
{
	union address address;
	socklen_t address_len = address_of(where, &address);
	int control = connected(&address, address_len);
	char cpus[LAB_CPUS_LEN];

	for (unsigned char at = 0; at <= COUNT; at++) {
		unsigned char verdict;
		int fd, right;

		put(control, &at, 1);
		if (at == COUNT)
			break;
		fd = connected(&address, address_len);
		busy_client(fd);
		right = behaviours[at].acts(fd);
		close(fd);
		get(control, &verdict, 1);
		printf("behaves %s %d\n", behaviours[at].name, right && verdict == 1);
	}
	lab_cpus(cpus);
	lab_print_cpus(0, cpus);
	printf("moved %ld\n", 2L * COUNT * MESSAGES * MESSAGE);
	/* All were tried; what came of them are findings, not failures. */
	return lab_checked(COUNT, COUNT);
}

static void wakes(int number)
{
	(void)number;
}

int main(int argc, char **argv)
{
	struct sigaction interrupts = { .sa_handler = wakes };

	sigaction(SIGALRM, &interrupts, NULL);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "measure"))
		return measure(argv[2]);
	lab_die("usage", "behaviour serve ADDRESS | behaviour measure ADDRESS");
	return 2;
}
