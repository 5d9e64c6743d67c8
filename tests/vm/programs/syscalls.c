// SPDX-License-Identifier: MIT OR Apache-2.0
/* Prints what a system call that does nothing costs. */
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TIMES 100000

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000l + now.tv_nsec;
}

int main(void)
{
	long started = now_ns();

	for (int i = 0; i < TIMES; i++)
		syscall(SYS_getppid);
	printf("costs: system-call %ld ns\n", (now_ns() - started) / TIMES);
	return 0;
}
