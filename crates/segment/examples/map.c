/* A map that programs of different languages share, in whatever container they are: this one
 * writes it, map.py reads and changes it by the same pointers. One lock guards it, which outlives
 * whoever dies with it.
 *
 *     cc -o map map.c $(pkg-config --cflags --libs yasmin-segment)
 *     echo 'colour red
 *     number 42' | ./map
 *     python3 map.py number */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yasmin.h>

#define NAME "map"
#define SIZE (4 << 20)
#define SLOTS 60
#define BUCKETS 64
#define HEAP_AT 8192

struct entry {
	struct entry *next;
	uint64_t reads;
	char *value;
	char key[];
};

/* What is at the beginning of the segment; all zero at first. map.py has the same. */
struct map {
	yasmin_slot slots[SLOTS];
	yasmin_rwlock lock;
	struct entry *buckets[BUCKETS];
};

static struct entry **bucket(struct map *map, const char *key)
{
	unsigned hash = 5381;
	while (*key)
		hash = hash * 33 + (unsigned char)*key++;
	return &map->buckets[hash % BUCKETS];
}

static void put(struct map *map, yasmin_heap *heap, const char *key, const char *value)
{
	struct entry *entry = yasmin_heap_alloc(heap, sizeof(*entry) + strlen(key) + 1);
	char *copy = yasmin_heap_alloc(heap, strlen(value) + 1);
	if (!entry || !copy)
		err(1, "the map is full");
	entry->reads = 0;
	entry->value = strcpy(copy, value);
	strcpy(entry->key, key);
	/* It is in the map by one store: who dies before has changed nothing that others see. */
	struct entry **first = bucket(map, key);
	entry->next = *first;
	*(struct entry *volatile *)first = entry;
}

int main(void)
{
	char key[100], value[100];

	if (yasmin_segment_create(NAME, SIZE, 0))
		errx(1, "%s", yasmin_segment_error());
	yasmin_segment *segment = yasmin_segment_open(NAME, YASMIN_SEGMENT_WRITE);
	struct map *map = segment ? yasmin_segment_attach(segment, 0) : NULL;
	yasmin_member *member = map ? yasmin_member_join(segment, map->slots, SLOTS) : NULL;
	yasmin_heap *heap =
		member ? yasmin_heap_create(member, (char *)map + HEAP_AT, SIZE - HEAP_AT) : NULL;
	if (!heap)
		errx(1, "%s", yasmin_segment_error());
	while (scanf("%99s %99s", key, value) == 2) {
		int result = yasmin_rwlock_wrlock(member, &map->lock, NULL);
		if (result == EOWNERDEAD) /* as said above, the map is whole */
			result = yasmin_rwlock_consistent(member, &map->lock);
		if (result)
			errx(1, "%s", yasmin_segment_error());
		put(map, heap, key, value);
		yasmin_rwlock_unlock(member, &map->lock);
		printf("%s is %s\n", key, value);
		fflush(stdout);
	}
	return 0;
}
