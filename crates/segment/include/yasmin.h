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

#include <stdint.h>

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

#ifdef __cplusplus
}
#endif

#endif
