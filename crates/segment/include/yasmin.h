/*
 * Segments: memory that programs ask for by name, mapped at one address in every process, so
 * that pointers mean the same everywhere. Link with -lyasmin-segment; see yasmin_segment(3).
 *
 *     yasmin_segment_create("table", 1 << 20, 0);
 *     yasmin_segment *segment = yasmin_segment_open("table", YASMIN_SEGMENT_WRITE);
 *     struct table *table = yasmin_segment_attach(segment, 0);
 *
 * Calls that fail give -1 or NULL, set errno, and leave a sentence in yasmin_segment_error().
 * Different threads may call at the same time, but not on the same segment.
 */
#ifndef YASMIN_H
#define YASMIN_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A segment that this process has open. */
typedef struct yasmin_segment yasmin_segment;

/* yasmin_segment_create: pages of 2 MiB, set aside at once. */
#define YASMIN_SEGMENT_HUGE 1u
/* yasmin_segment_create: removed when the process that made it has ended. */
#define YASMIN_SEGMENT_WITH_CREATOR 2u

/* yasmin_segment_open, yasmin_segment_allow: rights; who may write may read. 0: none. */
#define YASMIN_SEGMENT_READ 1u
#define YASMIN_SEGMENT_WRITE 2u
/* yasmin_segment_open: also where the control group could not hold all of it. */
#define YASMIN_SEGMENT_SPARSE 4u

/* yasmin_segment_attach: wherever there is room, for programs that go by offsets. */
#define YASMIN_SEGMENT_ANYWHERE 1u
/* yasmin_segment_attach: all of its memory now, and not where it is first written. */
#define YASMIN_SEGMENT_POPULATE 2u

/* yasmin_segment_allow: whoever is not named. */
#define YASMIN_SEGMENT_EVERYONE ((int64_t)-1)

/* Makes a segment of SIZE bytes, all zero. It belongs to the user who calls. */
int yasmin_segment_create(const char *name, uint64_t size, unsigned flags);

/* Opens a segment to read, or to read and write. */
yasmin_segment *yasmin_segment_open(const char *name, unsigned flags);

/* Maps it; gives its first byte, at the same address in every process. */
void *yasmin_segment_attach(yasmin_segment *segment, unsigned flags);

/* Maps SIZE of its bytes from OFFSET on once more, in place of what this process has at AT. All three
 * are multiples of 4096. */
int yasmin_segment_alias(const yasmin_segment *segment, void *at, uint64_t offset, size_t size);

/* Unmaps it. It stays open, and may be attached again. */
int yasmin_segment_detach(yasmin_segment *segment);

/* Unmaps it where it is mapped, and closes it. */
void yasmin_segment_close(yasmin_segment *segment);

/* Frees its name. Who has it keeps it; the memory goes with the last of them. */
int yasmin_segment_remove(const char *name);

/* Gives a user, by number, these rights in place of those he had. For the owner. */
int yasmin_segment_allow(const char *name, int64_t user, unsigned rights);

/* Its size in bytes, and the address it has in every process. */
uint64_t yasmin_segment_size(const yasmin_segment *segment);
uint64_t yasmin_segment_address(const yasmin_segment *segment);

/* What was wrong with this thread's last call that failed. Never NULL. */
const char *yasmin_segment_error(void);

/*
 * Locks and their like, for holders that may die: see yasmin_sync(3). They lie in the segment,
 * zeroed at first. As with pthread, calls give 0 or an error number, and EOWNERDEAD to who gets
 * what a dead one held. Deadlines are by CLOCK_MONOTONIC. FENCE, where it is not NULL, becomes the
 * number of the acquisition, greater than that of all earlier ones of that lock.
 */
typedef struct { uint64_t opaque[8]; } yasmin_slot;
typedef struct { uint64_t opaque[4]; } yasmin_mutex;
typedef struct { uint64_t opaque[32]; } yasmin_rwlock;
typedef struct { uint64_t opaque[4]; } yasmin_sequence;
typedef struct { uint64_t opaque[4]; } yasmin_once;
typedef struct { uint64_t opaque[2]; } yasmin_semaphore;
typedef struct { uint64_t opaque[2]; } yasmin_condition;
typedef struct { uint64_t opaque[32]; } yasmin_barrier;

/* This process as one that locks in a segment. */
typedef struct yasmin_member yasmin_member;

/* Joins. All members have their COUNT slots (up to 4095) at one place in the segment. */
yasmin_member *yasmin_member_join(const yasmin_segment *segment, yasmin_slot *slots, unsigned count);
/* In a forked child, which is no member before. */
int yasmin_member_renew(yasmin_member *member);
/* Before the segment is detached. What it holds goes to the next ones as that of a dead owner. */
void yasmin_member_leave(yasmin_member *member);
/* A number that no other member of the segment ever has; 0: it is none. */
uint32_t yasmin_member_number(const yasmin_member *member);

#define YASMIN_MUTEX_PLAIN 0u
#define YASMIN_MUTEX_ERRORCHECK 1u
#define YASMIN_MUTEX_RECURSIVE 2u
/* A zeroed one is plain. */
int yasmin_mutex_init(yasmin_mutex *mutex, unsigned kind);
int yasmin_mutex_lock(const yasmin_member *member, yasmin_mutex *mutex, uint64_t *fence);
int yasmin_mutex_trylock(const yasmin_member *member, yasmin_mutex *mutex, uint64_t *fence);
int yasmin_mutex_timedlock(const yasmin_member *member, yasmin_mutex *mutex,
			   const struct timespec *until, uint64_t *fence);
int yasmin_mutex_unlock(const yasmin_member *member, yasmin_mutex *mutex);
/* After EOWNERDEAD, when the data is whole again. Unlocked without: ENOTRECOVERABLE for all. */
int yasmin_mutex_consistent(const yasmin_member *member, yasmin_mutex *mutex);

/* Up to 28 processes read at a time, each with many threads. Writers go first. */
int yasmin_rwlock_rdlock(const yasmin_member *member, yasmin_rwlock *lock, uint64_t *fence);
int yasmin_rwlock_tryrdlock(const yasmin_member *member, yasmin_rwlock *lock, uint64_t *fence);
int yasmin_rwlock_timedrdlock(const yasmin_member *member, yasmin_rwlock *lock,
			      const struct timespec *until, uint64_t *fence);
int yasmin_rwlock_wrlock(const yasmin_member *member, yasmin_rwlock *lock, uint64_t *fence);
int yasmin_rwlock_trywrlock(const yasmin_member *member, yasmin_rwlock *lock, uint64_t *fence);
int yasmin_rwlock_timedwrlock(const yasmin_member *member, yasmin_rwlock *lock,
			      const struct timespec *until, uint64_t *fence);
int yasmin_rwlock_unlock(const yasmin_member *member, yasmin_rwlock *lock);
int yasmin_rwlock_consistent(const yasmin_member *member, yasmin_rwlock *lock);

/* Writers exclude each other. */
int yasmin_sequence_write(const yasmin_member *member, yasmin_sequence *sequence, uint64_t *fence);
int yasmin_sequence_trywrite(const yasmin_member *member, yasmin_sequence *sequence,
			     uint64_t *fence);
int yasmin_sequence_timedwrite(const yasmin_member *member, yasmin_sequence *sequence,
			       const struct timespec *until, uint64_t *fence);
int yasmin_sequence_finish(const yasmin_member *member, yasmin_sequence *sequence);
/* Readers write nothing and need no right to: begin (EBUSY while somebody writes), copy, and
 * begin again unless the copy is whole. */
int yasmin_sequence_begin(const yasmin_sequence *sequence, uint64_t *snapshot);
int yasmin_sequence_is_whole(const yasmin_sequence *sequence, uint64_t snapshot);
/* For who finds EBUSY for long: whether its writer died. */
int yasmin_sequence_is_abandoned(const yasmin_segment *segment, const yasmin_slot *slots,
				 unsigned count, const yasmin_sequence *sequence);

/* yasmin_once_begin: the caller makes it, then says finish or give_up. EOWNERDEAD: the same, and
 * another one died while it made it. 0: it is made. */
#define YASMIN_ONCE_MAKE (-1)
int yasmin_once_begin(const yasmin_member *member, yasmin_once *once);
int yasmin_once_finish(const yasmin_member *member, yasmin_once *once);
int yasmin_once_give_up(const yasmin_member *member, yasmin_once *once);

/* Nobody owns what a semaphore counts: a death gives nothing back. */
int yasmin_semaphore_init(yasmin_semaphore *semaphore, unsigned value);
int yasmin_semaphore_wait(const yasmin_member *member, yasmin_semaphore *semaphore);
int yasmin_semaphore_trywait(const yasmin_member *member, yasmin_semaphore *semaphore);
int yasmin_semaphore_timedwait(const yasmin_member *member, yasmin_semaphore *semaphore,
			       const struct timespec *until);
int yasmin_semaphore_post(const yasmin_member *member, yasmin_semaphore *semaphore);
int yasmin_semaphore_value(const yasmin_semaphore *semaphore, unsigned *value);

/* As pthread's: look again at what one waits for. */
int yasmin_condition_wait(const yasmin_member *member, yasmin_condition *condition,
			  yasmin_mutex *mutex, uint64_t *fence);
int yasmin_condition_timedwait(const yasmin_member *member, yasmin_condition *condition,
			       yasmin_mutex *mutex, const struct timespec *until, uint64_t *fence);
int yasmin_condition_signal(const yasmin_member *member, yasmin_condition *condition);
int yasmin_condition_broadcast(const yasmin_member *member, yasmin_condition *condition);

/* yasmin_barrier_wait: to the one in each round that came last. EOWNERDEAD: a party died, and the
 * barrier is broken until somebody initialises it again, while nobody waits. */
#define YASMIN_BARRIER_SERIAL (-1)
int yasmin_barrier_init(yasmin_barrier *barrier, unsigned parties);
int yasmin_barrier_wait(const yasmin_member *member, yasmin_barrier *barrier);
int yasmin_barrier_timedwait(const yasmin_member *member, yasmin_barrier *barrier,
			     const struct timespec *until);

/*
 * A heap in a segment: blocks that every member uses and frees by the same pointers. After a kill
 * at any step it is whole. START is a multiple of 4096; SIZE is the same for all. Pointers: NULL
 * and errno, as malloc.
 */
typedef struct yasmin_heap yasmin_heap;

/* Makes an empty one in zeroed memory: one process does, before others open it. */
yasmin_heap *yasmin_heap_create(const yasmin_member *member, void *start, size_t size);
yasmin_heap *yasmin_heap_open(const yasmin_member *member, void *start, size_t size);
/* Its blocks stay. Before the member leaves. */
void yasmin_heap_close(yasmin_heap *heap);
/* Aligned to 16. What is in it is whatever was there. */
void *yasmin_heap_alloc(const yasmin_heap *heap, size_t size);
void *yasmin_heap_aligned_alloc(const yasmin_heap *heap, size_t alignment, size_t size);
/* After an error, or the caller's death, the old block is as it was. */
void *yasmin_heap_realloc(const yasmin_heap *heap, void *block, size_t size);
int yasmin_heap_free(const yasmin_heap *heap, void *block);
/* What a block has, which may be more than was asked for; 0: it is none. */
size_t yasmin_heap_block_size(const yasmin_heap *heap, void *block);
/* Looks at everything: 0, or EUCLEAN and a sentence. Counts blocks in use, and their bytes. */
int yasmin_heap_check(const yasmin_heap *heap, size_t *blocks, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
