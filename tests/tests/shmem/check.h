/* For programs that check every value and end with a failure at the first wrong one. */
#define _GNU_SOURCE
#include <shmem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: PE %d: not so: %s\n", __FILE__, __LINE__, \
				shmem_my_pe(), #what); \
			exit(1); \
		} \
	} while (0)
