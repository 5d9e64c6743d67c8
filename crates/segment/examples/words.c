/* Counts the words of its standard input in a table that other programs read meanwhile, in any
 * language and in any namespace: a list whose pointers mean the same to all of them.
 *
 *     cc -o words words.c $(pkg-config --cflags --libs yasmin-segment)
 *     ./words <text &
 *     python3 words.py
 *
 * One process writes, so there is no lock: a word is complete before it is put into the list. */
#include <err.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <yasmin.h>

#define NAME "words"
#define SIZE (1 << 20)

struct word {
	struct word *next; /* never changes once the word is in the list */
	_Atomic uint64_t count;
	char text[48];
};

/* What is at the beginning of the segment; all zero at first. */
struct table {
	struct word *_Atomic first;
	uint64_t used; /* words that were taken from those below */
	struct word words[];
};

static struct word *find(struct table *table, const char *text)
{
	struct word *word;
	for (word = atomic_load(&table->first); word; word = word->next)
		if (!strcmp(word->text, text))
			return word;
	if ((char *)&table->words[table->used + 1] > (char *)table + SIZE)
		errx(1, "the table is full");
	word = &table->words[table->used++];
	strcpy(word->text, text);
	word->next = atomic_load(&table->first);
	atomic_store(&table->first, word);
	return word;
}

int main(void)
{
	char text[48];
	int counted = 0;

	if (yasmin_segment_create(NAME, SIZE, 0))
		errx(1, "%s", yasmin_segment_error());
	yasmin_segment_allow(NAME, YASMIN_SEGMENT_EVERYONE, YASMIN_SEGMENT_READ);
	yasmin_segment *segment = yasmin_segment_open(NAME, YASMIN_SEGMENT_WRITE);
	struct table *table = segment ? yasmin_segment_attach(segment, 0) : NULL;
	if (!table)
		errx(1, "%s", yasmin_segment_error());
	printf("words at %p\n", (void *)table);
	fflush(stdout);
	while (scanf("%47s", text) == 1) {
		atomic_fetch_add(&find(table, text)->count, 1);
		printf("counted %d\n", ++counted);
		fflush(stdout);
	}
	/* Who has it open may still read it. */
	yasmin_segment_remove(NAME);
	yasmin_segment_close(segment);
	return 0;
}
