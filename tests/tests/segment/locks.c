/* A process that does with the locks and the heap of a segment what it is told, a line at a time;
 * as member.c. What all of them have lies at the beginning of the segment "locks". */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yasmin.h>

#define SLOTS 32
#define HEAP_AT 16384
#define HEAP_SIZE (1 << 20)

struct node {
	struct node *next;
	uint64_t value;
};

struct shared {
	yasmin_slot slots[SLOTS];
	yasmin_mutex mutex[3]; /* of each kind */
	yasmin_rwlock rwlock;
	yasmin_sequence sequence;
	yasmin_once once;
	yasmin_semaphore semaphore;
	yasmin_condition condition;
	yasmin_barrier barrier;
	yasmin_mutex counted;
	uint64_t counter;
	uint64_t pair[2]; /* written under the sequence lock: always equal */
	struct node *list;
};

static yasmin_segment *segment;
static yasmin_member *member;
static yasmin_heap *heap;
static struct shared *shared;

static void say(int result, uint64_t value)
{
	if (result <= 0)
		printf("ok %d %lu\n", result, value);
	else
		printf("error %d %s\n", result, yasmin_segment_error());
}

static struct timespec soon(long ms)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	now.tv_sec += ms / 1000;
	now.tv_nsec += ms % 1000 * 1000000;
	if (now.tv_nsec >= 1000000000) {
		now.tv_sec++;
		now.tv_nsec -= 1000000000;
	}
	return now;
}

/* Adds to the counter under the lock, as often as told; what a dead one left is whole anyway. */
static int count(int times)
{
	for (; times; times--) {
		int result = yasmin_mutex_lock(member, &shared->counted, NULL);
		if (result == EOWNERDEAD)
			result = yasmin_mutex_consistent(member, &shared->counted);
		if (result)
			return result;
		shared->counter++;
		if ((result = yasmin_mutex_unlock(member, &shared->counted)))
			return result;
	}
	return 0;
}

static int mutex(const char *verb, int kind, uint64_t *fence)
{
	yasmin_mutex *mutex = &shared->mutex[kind];
	struct timespec until = soon(30);
	if (!strcmp(verb, "init"))
		return yasmin_mutex_init(mutex, kind);
	if (!strcmp(verb, "lock"))
		return yasmin_mutex_lock(member, mutex, fence);
	if (!strcmp(verb, "trylock"))
		return yasmin_mutex_trylock(member, mutex, fence);
	if (!strcmp(verb, "timedlock"))
		return yasmin_mutex_timedlock(member, mutex, &until, fence);
	if (!strcmp(verb, "consistent"))
		return yasmin_mutex_consistent(member, mutex);
	return yasmin_mutex_unlock(member, mutex);
}

static int rwlock(const char *verb, uint64_t *fence)
{
	struct timespec until = soon(30);
	if (!strcmp(verb, "rdlock"))
		return yasmin_rwlock_rdlock(member, &shared->rwlock, fence);
	if (!strcmp(verb, "tryrdlock"))
		return yasmin_rwlock_tryrdlock(member, &shared->rwlock, fence);
	if (!strcmp(verb, "timedrdlock"))
		return yasmin_rwlock_timedrdlock(member, &shared->rwlock, &until, fence);
	if (!strcmp(verb, "wrlock"))
		return yasmin_rwlock_wrlock(member, &shared->rwlock, fence);
	if (!strcmp(verb, "trywrlock"))
		return yasmin_rwlock_trywrlock(member, &shared->rwlock, fence);
	if (!strcmp(verb, "timedwrlock"))
		return yasmin_rwlock_timedwrlock(member, &shared->rwlock, &until, fence);
	if (!strcmp(verb, "consistent"))
		return yasmin_rwlock_consistent(member, &shared->rwlock);
	return yasmin_rwlock_unlock(member, &shared->rwlock);
}

static int sequence(const char *verb, uint64_t *value)
{
	yasmin_sequence *sequence = &shared->sequence;
	int result;
	if (!strcmp(verb, "write"))
		return yasmin_sequence_write(member, sequence, value);
	if (!strcmp(verb, "half")) {
		shared->pair[0]++;
		return 0;
	}
	if (!strcmp(verb, "other-half")) {
		shared->pair[1] = shared->pair[0];
		return 0;
	}
	if (!strcmp(verb, "abandoned")) {
		*value = yasmin_sequence_is_abandoned(segment, shared->slots, SLOTS, sequence);
		return 0;
	}
	if (!strcmp(verb, "read")) {
		uint64_t snapshot, pair[2];
		if ((result = yasmin_sequence_begin(sequence, &snapshot)))
			return result;
		pair[0] = *(volatile uint64_t *)&shared->pair[0];
		pair[1] = *(volatile uint64_t *)&shared->pair[1];
		*value = pair[0];
		return yasmin_sequence_is_whole(sequence, snapshot) && pair[0] == pair[1] ? 0 : EIO;
	}
	return yasmin_sequence_finish(member, sequence);
}

static int once(const char *verb)
{
	if (!strcmp(verb, "begin"))
		return yasmin_once_begin(member, &shared->once);
	if (!strcmp(verb, "give-up"))
		return yasmin_once_give_up(member, &shared->once);
	return yasmin_once_finish(member, &shared->once);
}

static int semaphore(const char *verb, uint64_t *value)
{
	struct timespec until = soon(30);
	unsigned now = 0;
	int result = 0;
	if (!strcmp(verb, "init"))
		return yasmin_semaphore_init(&shared->semaphore, 2);
	if (!strcmp(verb, "wait"))
		return yasmin_semaphore_wait(member, &shared->semaphore);
	if (!strcmp(verb, "trywait"))
		return yasmin_semaphore_trywait(member, &shared->semaphore);
	if (!strcmp(verb, "timedwait"))
		return yasmin_semaphore_timedwait(member, &shared->semaphore, &until);
	if (!strcmp(verb, "value")) {
		result = yasmin_semaphore_value(&shared->semaphore, &now);
		*value = now;
		return result;
	}
	return yasmin_semaphore_post(member, &shared->semaphore);
}

static int condition(const char *verb, uint64_t *value)
{
	yasmin_mutex *mutex = &shared->mutex[0];
	struct timespec until = soon(30);
	int result;
	if (!strcmp(verb, "signal"))
		return yasmin_condition_signal(member, &shared->condition);
	if (!strcmp(verb, "broadcast"))
		return yasmin_condition_broadcast(member, &shared->condition);
	if (!strcmp(verb, "timedwait"))
		return yasmin_condition_timedwait(member, &shared->condition, mutex, &until, value);
	/* Until the counter is not 0. */
	if ((result = yasmin_mutex_lock(member, mutex, NULL)))
		return result;
	while (!result && !shared->counter)
		result = yasmin_condition_wait(member, &shared->condition, mutex, NULL);
	*value = shared->counter;
	return result ? result : yasmin_mutex_unlock(member, mutex);
}

static int push(uint64_t value)
{
	struct node *node = yasmin_heap_alloc(heap, sizeof(*node));
	if (!node)
		return errno;
	node->value = value;
	node->next = shared->list;
	shared->list = node;
	return 0;
}

/* In a child: it is no member before it says so, and then another one. */
static void in_child(void)
{
	uint32_t parent = yasmin_member_number(member);
	int status;
	pid_t child = fork();
	if (!child) {
		int result = yasmin_mutex_lock(member, &shared->mutex[0], NULL);
		if (result != ENOTCONN || yasmin_member_number(member))
			_exit(1);
		if (yasmin_member_renew(member) || yasmin_member_number(member) == parent)
			_exit(2);
		if (count(100))
			_exit(3);
		_exit(0);
	}
	waitpid(child, &status, 0);
	say(yasmin_member_number(member) == parent ? 0 : EIO, status);
}

int main(void)
{
	char line[200], verb[50], rest[50];
	uint64_t value;
	int kind, result;

	setvbuf(stdout, NULL, _IOLBF, 0);
	segment = yasmin_segment_open("locks", YASMIN_SEGMENT_WRITE);
	shared = segment ? yasmin_segment_attach(segment, 0) : NULL;
	member = shared ? yasmin_member_join(segment, shared->slots, SLOTS) : NULL;
	if (!member) {
		printf("error %d %s\n", errno, yasmin_segment_error());
		return 1;
	}
	printf("joined %u\n", yasmin_member_number(member));
	while (fgets(line, sizeof(line), stdin)) {
		value = 0;
		rest[0] = 0;
		if (sscanf(line, "mutex %49s %d", verb, &kind) == 2 && kind >= 0 && kind < 3) {
			result = mutex(verb, kind, &value);
			say(result, value);
		} else if (sscanf(line, "rwlock %49s", verb) == 1) {
			result = rwlock(verb, &value);
			say(result, value);
		} else if (sscanf(line, "sequence %49s", verb) == 1) {
			result = sequence(verb, &value);
			if (result == EBUSY)
				printf("error %d busy\n", result);
			else
				say(result, value);
		} else if (sscanf(line, "once %49s", verb) == 1) {
			say(once(verb), 0);
		} else if (sscanf(line, "semaphore %49s", verb) == 1) {
			result = semaphore(verb, &value);
			say(result, value);
		} else if (sscanf(line, "condition %49s", verb) == 1) {
			result = condition(verb, &value);
			say(result, value);
		} else if (sscanf(line, "barrier %49s", verb) == 1) {
			say(!strcmp(verb, "init") ? yasmin_barrier_init(&shared->barrier, 2)
						  : yasmin_barrier_wait(member, &shared->barrier), 0);
		} else if (sscanf(line, "count %d", &kind) == 1) {
			result = count(kind);
			say(result, shared->counter);
		} else if (sscanf(line, "heap %49s %49s", verb, rest) >= 1) {
			char *start = (char *)shared + HEAP_AT;
			if (!strcmp(verb, "create") || !strcmp(verb, "open")) {
				heap = *verb == 'c' ? yasmin_heap_create(member, start, HEAP_SIZE)
						    : yasmin_heap_open(member, start, HEAP_SIZE);
				say(heap ? 0 : errno, 0);
			} else if (!strcmp(verb, "push")) {
				say(push(atoi(rest)), 0);
			} else if (!strcmp(verb, "sum")) {
				for (struct node *node = shared->list; node; node = node->next)
					value = value * 10 + node->value;
				say(0, value);
			} else if (!strcmp(verb, "clear")) {
				result = 0;
				while (shared->list && !result) {
					struct node *node = shared->list;
					shared->list = node->next;
					result = yasmin_heap_free(heap, node);
				}
				say(result, 0);
			} else if (!strcmp(verb, "twice")) {
				void *block = yasmin_heap_alloc(heap, 100);
				yasmin_heap_free(heap, block);
				say(yasmin_heap_free(heap, block), 0);
			} else if (!strcmp(verb, "huge")) {
				say(yasmin_heap_alloc(heap, 2 * HEAP_SIZE) ? 0 : errno, 0);
			} else if (!strcmp(verb, "move")) {
				char *block = yasmin_heap_aligned_alloc(heap, 4096, 100);
				if (!block || (uintptr_t)block % 4096) {
					say(EIO, 0);
					continue;
				}
				memset(block, 'x', 100);
				block = yasmin_heap_realloc(heap, block, 50000);
				result = !block || yasmin_heap_block_size(heap, block) < 50000 ? EIO : 0;
				for (kind = 0; !result && kind < 100; kind++)
					result = block[kind] == 'x' ? 0 : EIO;
				say(result ? result : yasmin_heap_free(heap, block), 0);
			} else if (!strcmp(verb, "churn")) {
				/* Until it is killed. */
				void *blocks[64] = {0};
				printf("ok churning\n");
				for (unsigned n = 1;; n = n * 1103515245 + 12345) {
					void **block = &blocks[n >> 8 & 63];
					if (n >> 16 & 1) {
						*block = yasmin_heap_realloc(heap, *block, n >> 17 & 8191);
					} else {
						yasmin_heap_free(heap, *block);
						*block = NULL;
					}
				}
			} else {
				size_t blocks = 0;
				result = yasmin_heap_check(heap, &blocks, NULL);
				say(result, blocks);
			}
		} else if (!strncmp(line, "fork", 4)) {
			in_child();
		} else if (!strncmp(line, "exit", 4)) {
			break;
		} else if (!strncmp(line, "leave", 5)) {
			yasmin_member_leave(member);
			member = NULL;
			say(yasmin_mutex_lock(member, &shared->mutex[0], NULL), 0);
		} else {
			printf("what is %s", line);
		}
	}
	return 0;
}
