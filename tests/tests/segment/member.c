/* A process that does with segments what it is told, a line at a time, and says what came of it:
 * "ok ...", or "error ERRNO SENTENCE". Through yasmin.h and nothing else; what tries to get round
 * it goes by the kernel. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yasmin.h>

static yasmin_segment *segment;
static volatile unsigned char *bytes;

static void ok(const char *format, ...)
{
	va_list rest;
	va_start(rest, format);
	printf("ok ");
	vprintf(format, rest);
	printf("\n");
	va_end(rest);
}

static void failed(void)
{
	printf("error %d %s\n", errno, yasmin_segment_error());
}

static void done(int result)
{
	result ? failed() : ok("");
}

/* Every way to write what may only be read. Each must fail: the first that does not is told. */
static void regain(void)
{
	uint64_t size = yasmin_segment_size(segment);
	char *start = (char *)bytes - 4096;
	if (!mprotect(start, size + 4096, PROT_READ | PROT_WRITE))
		return ok("mprotect");
	if (!madvise(start, 4096, MADV_REMOVE))
		return ok("madvise");
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;
	int seen = 0;
	while ((entry = readdir(fds))) {
		char path[300], target[300] = "";
		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		if (readlink(path, target, sizeof(target) - 1) < 0 || !strstr(target, "yasmin-segment"))
			continue;
		int fd = atoi(entry->d_name);
		seen++;
		fchmod(fd, 0666);
		chmod(path, 0666);
		if (open(path, O_RDWR) >= 0 || open(path, O_WRONLY) >= 0)
			return ok("reopened");
		if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
			return ok("mapped");
		if (!ftruncate(fd, 4096) || !fallocate(fd, 0, 0, 4096))
			return ok("truncated");
		if (pwrite(fd, "x", 1, 0) == 1)
			return ok("written");
	}
	closedir(fds);
	char path[100];
	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (long)start,
		 (long)(start + ((size + 4095) & ~4095ul) + 4096));
	if (open(path, O_RDWR) >= 0)
		return ok("by map_files");
	ok("nothing %d", seen);
}

/* A child of this process writes one byte, and says whether it could. */
static void write_in_child(uint64_t at, int value)
{
	int status;
	pid_t child = fork();
	if (!child) {
		bytes[at] = value;
		_exit(0);
	}
	waitpid(child, &status, 0);
	ok("%d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(void)
{
	char line[400], name[300], word[50];
	unsigned flags;
	uint64_t at;
	int value;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "create %299s %lu %u", name, &at, &flags) == 3) {
			done(yasmin_segment_create(name, at, flags));
		} else if (sscanf(line, "open %299s %u", name, &flags) == 2) {
			segment = yasmin_segment_open(name, flags);
			segment ? ok("%lu", yasmin_segment_size(segment)) : failed();
		} else if (sscanf(line, "attach %u", &flags) == 1) {
			bytes = yasmin_segment_attach(segment, flags);
			bytes ? ok("%lx", (unsigned long)bytes) : failed();
		} else if (sscanf(line, "allow %299s %d %u", name, &value, &flags) == 3) {
			done(yasmin_segment_allow(name, value, flags));
		} else if (sscanf(line, "remove %299s", name) == 1) {
			done(yasmin_segment_remove(name));
		} else if (sscanf(line, "write %lu %d", &at, &value) == 2) {
			bytes[at] = value;
			ok("");
		} else if (sscanf(line, "fork-write %lu %d", &at, &value) == 2) {
			write_in_child(at, value);
		} else if (sscanf(line, "read %lu", &at) == 1) {
			ok("%d", bytes[at]);
		} else if (sscanf(line, "point %lu", &at) == 1) {
			/* A pointer to its own place, for whoever reads it elsewhere. */
			*(volatile unsigned char *volatile *)(bytes + at) = bytes + at;
			ok("");
		} else if (sscanf(line, "follow %lu", &at) == 1) {
			ok("%lx", (unsigned long)*(volatile unsigned char *volatile *)(bytes + at));
		} else if (sscanf(line, "scribble %lu %d", &at, &value) == 2) {
			(bytes - 4096)[at] = value;
			ok("");
		} else if (sscanf(line, "occupy %lx", &at) == 1) {
			void *taken = mmap((void *)at, 4096, PROT_READ,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			taken == (void *)at ? ok("") : failed();
		} else if (sscanf(line, "%49s", word) == 1 && !strcmp(word, "detach")) {
			done(yasmin_segment_detach(segment));
		} else if (!strcmp(word, "close")) {
			yasmin_segment_close(segment);
			segment = NULL;
			ok("");
		} else if (!strcmp(word, "regain")) {
			regain();
		} else {
			printf("what is %s", line);
		}
	}
	return 0;
}
