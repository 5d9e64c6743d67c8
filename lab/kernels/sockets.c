/* Stream sockets as OSU's micro-benchmarks measure MPI:
 *
 *   latency       a message there and back, one by one; half of that time
 *   bandwidth     64 messages in a row, then one byte back for all of them
 *   connections   connect, a byte there and back, close, one by one
 *
 * The message rate is the bandwidth run's. One side serves, the other measures and checks:
 *
 *   sockets serve ADDRESS
 *   sockets measure ADDRESS MOST                   latency and bandwidth of 1, 4, 16 ... MOST bytes
 *   sockets measure ADDRESS latency|bandwidth LEN  one of them, for a second
 *   sockets measure ADDRESS connections COUNT
 *
 * ADDRESS is as in sockets.h. The server prints "listens" once it does, and ends with its first
 * client. It sends back what it gets in a latency run; of a bandwidth run it looks at each byte,
 * untimed, in a last message.
 */
#include "sockets.h"

enum { WINDOW = 64 };

static const long most_repetitions = 10000, volume_bytes = 40000000, warm_up = 100;

/* Of one size alone: until a connection is as fast as it will be, and then. */
static const double settling_s = 0.2, measuring_s = 0.8;

/* What the client says before each run; the last one has no answers. */
struct plan {
	long len;
	/* Answers that the server gives, each to `window` messages. */
	long answers;
	/* 0: not on this connection, but one on each of `answers` new ones. */
	long window;
	long answer_len;
};

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

static void serve_new_connections(int listener, long count, const union address *address)
{
	for (long done = 0; done < count; done++) {
		int fd = accepted(listener, address);
		char byte;

		get(fd, &byte, 1);
		put(fd, &byte, 1);
		close(fd);
	}
}

static int serve(const char *where)
{
	union address address;
	socklen_t address_len = address_of(where, &address);
	int listener = listener_at(&address, address_len), fd = accepted(listener, &address);
	struct plan plan;

	for (get(fd, &plan, sizeof(plan)); plan.answers; get(fd, &plan, sizeof(plan))) {
		unsigned char *bytes;
		unsigned char right;

		if (!plan.window) {
			serve_new_connections(listener, plan.answers, &address);
			continue;
		}
		bytes = lab_memory((size_t)plan.len, 1);
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

/* A connection to the server, and what was measured on it. */
struct client {
	union address address;
	socklen_t address_len;
	int fd;
	/* Messages that the server looked at, and those of them that were intact. */
	long all, right;
	double moved;
};

static double one_run(struct client *client, struct plan plan, unsigned char *bytes)
{
	client->all++;
	return run(client->fd, plan, bytes, &client->right, &client->moved);
}

static void print_point(long len, double there_s, double message_s)
{
	double bytes_s = message_s > 0 ? (double)len / message_s : 0;

	printf("point %ld %.3f %.3f %.3f\n", len, 1e9 * there_s, bytes_s,
	       message_s > 0 ? 1 / message_s : 0);
}

static void all_sizes(struct client *client, long most)
{
	unsigned char *bytes = lab_memory((size_t)most, 1);

	for (long len = 1; len <= most; len *= 4) {
		struct plan latency = { len, repetitions_of(len), 1, len };
		struct plan bandwidth = { len, repetitions_of(len) / WINDOW + 1, WINDOW, 1 };
		double there = one_run(client, latency, bytes) / 2;

		print_point(len, there, one_run(client, bandwidth, bytes) / WINDOW);
	}
	free(bytes);
}

/* Seconds for an answer, the mean of many runs. */
static double for_a_second(struct client *client, struct plan plan)
{
	unsigned char *bytes = lab_memory((size_t)plan.len, 1);
	double begun = lab_now_s(), sum = 0;
	long runs = 0;

	while (lab_now_s() < begun + settling_s)
		one_run(client, plan, bytes);
	for (begun = lab_now_s(); !runs || lab_now_s() < begun + measuring_s; runs++)
		sum += one_run(client, plan, bytes);
	free(bytes);
	return sum / (double)runs;
}

static void new_connections(struct client *client, long count)
{
	struct plan plan = { 1, count, 0, 1 };
	double begun;

	put(client->fd, &plan, sizeof(plan));
	begun = lab_now_s();
	for (long done = 0; done < count; done++) {
		int fd = connected(&client->address, client->address_len);
		char sent = (char)done, came;

		put(fd, &sent, 1);
		get(fd, &came, 1);
		client->right += came == sent;
		client->all++;
		close(fd);
	}
	printf("connections %.3f\n", (double)count / (lab_now_s() - begun));
}

static int measure(const char *where, const char *what, const char *number)
{
	struct client client = { 0 };
	char cpus[LAB_CPUS_LEN];

	client.address_len = address_of(where, &client.address);
	client.fd = connected(&client.address, client.address_len);
	if (!what) {
		all_sizes(&client, lab_number(number, 1, 1 << 26));
	} else if (!strcmp(what, "latency")) {
		long len = lab_number(number, 1, 1 << 26);
		struct plan plan = { len, 1000, 1, len };

		print_point(len, for_a_second(&client, plan) / 2, 0);
	} else if (!strcmp(what, "bandwidth")) {
		long len = lab_number(number, 1, 1 << 26);
		struct plan plan = { len, repetitions_of(len) / WINDOW + 1, WINDOW, 1 };
		double message_s = for_a_second(&client, plan) / WINDOW;

		print_point(len, 0, message_s);
	} else if (!strcmp(what, "connections")) {
		new_connections(&client, lab_number(number, 1, 1 << 20));
	} else {
		lab_die("neither latency nor bandwidth nor connections", what);
	}
	put(client.fd, &(struct plan){ 0 }, sizeof(struct plan));
	lab_cpus(cpus);
	lab_print_cpus(0, cpus);
	printf("moved %.0f\n", client.moved);
	return lab_checked(client.right, client.all);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "measure"))
		return measure(argv[2], NULL, argv[3]);
	if (argc == 5 && !strcmp(argv[1], "measure"))
		return measure(argv[2], argv[3], argv[4]);
	lab_die("usage", "sockets serve ADDRESS | sockets measure ADDRESS [WHAT] NUMBER");
	return 2;
}
