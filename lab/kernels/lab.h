/* What all kernels share: the clock, numbers from the command line, and the lines they print.
 *
 * Every kernel prints lines of a name and numbers, which `yasmin lab` reads:
 *
 *   cpus WORKER LIST        the CPUs that this worker may use, as in 0-1,4
 *   moved BYTES             payload that workers sent to other workers, warm-up included
 *   seconds S               the timed part
 *   mops M                  IS only: million keys ranked a second
 *   point LEN_BYTES NS BYTES_S MESSAGES_S    one message size; 0 where it has no meaning
 *   connections RATE        short ones a second
 *   behaves NAME 0|1        whether something that programs rely on is as on TCP
 *   checked PASSED ALL      the kernel's own checks; it exits with 1 unless all passed
 */
#ifndef LAB_H
#define LAB_H

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double lab_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void lab_die(const char *what, const char *value)
{
	fprintf(stderr, "lab: %s: %s\n", what, value);
	exit(2);
}

static inline long lab_number(const char *text, long least, long most)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < least || value > most) {
		fprintf(stderr, "lab: \"%s\" is no number from %ld to %ld\n", text, least, most);
		exit(2);
	}
	return value;
}

static inline void *lab_memory(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory) {
		fprintf(stderr, "lab: no memory for %zu times %zu bytes\n", count, size);
		exit(2);
	}
	return memory;
}

enum { LAB_CPUS_LEN = 128 };

/* The CPUs that the calling thread may use. */
static inline void lab_cpus(char text[LAB_CPUS_LEN])
{
	cpu_set_t set;
	size_t len = 0;

	text[0] = '\0';
	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE && len + 16 < LAB_CPUS_LEN; cpu++) {
		int last = cpu;

		if (!CPU_ISSET(cpu, &set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
			last++;
		len += (size_t)sprintf(text + len, last > cpu ? "%s%d-%d" : "%s%d", len ? "," : "", cpu, last);
		cpu = last;
	}
}

static inline void lab_print_cpus(int worker, const char *cpus)
{
	printf("cpus %d %s\n", worker, cpus);
}

/* The last line; the kernel's exit code. */
static inline int lab_checked(long passed, long all)
{
	printf("checked %ld %ld\n", passed, all);
	return passed == all ? 0 : 1;
}

/* Of `total` things, the first one of worker `worker`: parts differ by one at most. */
static inline long lab_first(long total, int worker, int workers)
{
	return total / workers * worker + (total % workers < worker ? total % workers : worker);
}

#endif
