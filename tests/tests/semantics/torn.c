/*
 * Messages that are sent by one call each. Of several threads or processes that send on one connection, without a
 * lock of their own, no message comes in the middle of another one; and no receive ends inside a message, though others are
 * unread before it. That is what TCP gives on loopback as long as its buffers have room.
 *
 *   torn              prints a line for each way: how many messages were torn, or ended a receive early
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pair.h"

/* No more is unread at a time: TCP's first window takes that, and small rings do not. */
enum { UNREAD_MAX = 24 << 10, RECEIVE_MAX = 60000, MESSAGES = 600, BYTES_MAX = 60000, SENDERS_MAX = 8 };

static struct shared {
	_Atomic long unread;
} *shared;

struct sender {
	int fd, number, count, bytes, pieces, flags;
	long unread_max;
};

static void wait_for_room(int bytes, long most)
{
	while (atomic_fetch_add(&shared->unread, bytes) + bytes > most) {
		atomic_fetch_sub(&shared->unread, bytes);
		usleep(20);
	}
}

/* Each byte says who sent it. */
static void *sends(void *argument)
{
	struct sender *sender = argument;
	char message[BYTES_MAX];

	memset(message, sender->number, sender->bytes);
	for (int i = 0; i < sender->count; i++) {
		struct iovec pieces[] = { { message, sender->bytes / 2 },
					  { message, sender->bytes - sender->bytes / 2 } };
		ssize_t sent;

		wait_for_room(sender->bytes, sender->unread_max);
		sent = sender->pieces == 2 ? writev(sender->fd, pieces, 2) :
					     send(sender->fd, message, sender->bytes, sender->flags);
		if (sent != sender->bytes)
			die("send", sent);
	}
	return NULL;
}

static long reads(int fd, long messages, int bytes)
{
	char message[BYTES_MAX];
	long torn = 0;

	for (long i = 0; i < messages; i++) {
		if (recv(fd, message, bytes, MSG_WAITALL) != bytes)
			die("recv", i);
		atomic_fetch_sub(&shared->unread, bytes);
		torn += memcmp(message, message + 1, bytes - 1) != 0;
	}
	return torn;
}

static void by_many(int processes, int count, int bytes, int pieces)
{
	struct sender senders[SENDERS_MAX];
	pthread_t threads[SENDERS_MAX];
	int ends[2];
	long torn;

	connects(ends);
	atomic_store(&shared->unread, 0);
	for (int at = 0; at < count; at++) {
		senders[at] = (struct sender){ ends[0], at + 1, MESSAGES / count, bytes, pieces, 0, UNREAD_MAX };
		if (!processes) {
			pthread_create(&threads[at], NULL, sends, &senders[at]);
		} else if (!fork()) {
			sends(&senders[at]);
			_exit(0);
		}
	}
	torn = reads(ends[1], MESSAGES / count * count, bytes);
	for (int at = 0; at < count; at++)
		if (processes)
			wait(NULL);
		else
			pthread_join(threads[at], NULL);
	printf("%d %s, %d bytes in %d pieces: %ld torn\n", count, processes ? "processes" : "threads", bytes, pieces, torn);
	fflush(stdout);
	close(ends[0]);
	close(ends[1]);
}

/* The other end reads meanwhile. */
static void behind_others(int unread, int bytes, int flags)
{
	static char bytes_in[1 << 20];
	long split = 0, left = (long)MESSAGES * bytes;
	struct sender sender;
	pthread_t thread;
	int ends[2];

	connects(ends);
	atomic_store(&shared->unread, 0);
	sender = (struct sender){ ends[0], 1, MESSAGES, bytes, 1, flags, (long)unread * bytes };
	pthread_create(&thread, NULL, sends, &sender);
	while (left > 0) {
		ssize_t got = recv(ends[1], bytes_in, sizeof(bytes_in), 0);

		if (got <= 0)
			die("recv", got);
		atomic_fetch_sub(&shared->unread, got);
		left -= got;
		split += left % bytes != 0;
	}
	pthread_join(thread, NULL);
	printf("%d unread, %d bytes, flags %x: %ld receives end inside a message\n", unread, bytes, flags, split);
	fflush(stdout);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	static const int sizes[] = { 100, 1000, 4000, 16000 }, counts[] = { 2, SENDERS_MAX };
	static const int behind[] = { 700, 3000, 14000, 30000 };

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int processes = 0; processes < 2; processes++)
		for (int count = 0; count < 2; count++)
			for (int size = 0; size < 4; size++)
				for (int pieces = 1; pieces <= 2; pieces++)
					by_many(processes, counts[count], sizes[size], pieces);
	for (int unread = 1; unread <= 8; unread *= 2)
		for (int size = 0; size < 4; size++)
			for (int flags = 0; flags <= MSG_DONTWAIT; flags += MSG_DONTWAIT)
				if (unread * behind[size] <= RECEIVE_MAX)
					behind_others(unread, behind[size], flags);
	return 0;
}
