/*
 * Loads an object again and again, beside threads that load others, and has it do what it is for.
 *
 *   arrives OBJECT WORD
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "pair.h"

enum { TIMES = 3, THREADS = 3 };

static volatile int is_over;

static void *loads_others(void *name)
{
	while (!is_over) {
		void *object = dlopen(name, RTLD_NOW);

		if (!object)
			die(dlerror(), 0);
		dlclose(object);
	}
	return NULL;
}

int main(int count, char **words)
{
	static char *const others[THREADS] = { "libz.so.1", "libutil.so.1", "libanl.so.1" };
	pthread_t threads[THREADS];
	int ends[2];

	if (count != 3)
		return 2;
	connects(ends);
	talks_until(ends, 2);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, loads_others, others[i]))
			die("pthread_create", i);
	for (int i = 0; i < TIMES; i++) {
		void *object = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
		int (*run)(int, char **) = object ? (int (*)(int, char **))dlsym(object, "run") : NULL;

		if (!run)
			die(dlerror(), 0);
		if (i == TIMES - 1) {
			is_over = 1;
			for (int thread = 0; thread < THREADS; thread++)
				pthread_join(threads[thread], NULL);
			if (run(2, words + 1))
				return 2;
			talks(ends);
		}
		dlclose(object);
	}
	puts("all there");
	return 0;
}
