/* Setup and exit: one segment for a job, which PE 0 makes and the others wait for. Its name is
 * gone as soon as all have it, so nothing stays behind, however they end. */
#include "internal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x4d454853534d5359ull /* "YSMSHMEM" */
#define PAGE 4096ul
#define MAX_PES 4096
/* For each PE, without SHMEM_SYMMETRIC_SIZE. */
#define HEAP_BYTES (64ul << 20)

struct job job = { .exit_fd = -1 };

void fail(const char *format, ...)
{
	va_list rest;
	fprintf(stderr, "shmem: PE %d: ", job.me);
	va_start(rest, format);
	vfprintf(stderr, format, rest);
	va_end(rest);
	fputc('\n', stderr);
	_exit(EXIT_FAILURE);
}

void fail_remote(const char *call, const void *at, size_t len, int pe)
{
	check_up(call);
	if (pe < 0 || pe >= job.pes)
		fail("%s: there is no PE %d, but 0 to %d", call, pe, job.pes - 1);
	fail("%s: %zu bytes at %p are not symmetric: give memory of shmem_malloc, or a global or "
	     "static variable of the program itself", call, len, at);
}

void look_again(unsigned *looks)
{
	unsigned n = (*looks)++;
	if (n < job.spins) {
		__builtin_ia32_pause();
	} else if (n < job.spins + 100) {
		sched_yield();
	} else {
		unsigned naps = n - job.spins - 100;
		struct timespec nap = { .tv_nsec = naps < 20 ? 50000 * (naps + 1) : 1000000 };
		nanosleep(&nap, NULL);
	}
}

/* A number from oshrun, or `other` where it did not start this. */
static long number(const char *name, long least, long most, long other)
{
	const char *text = getenv(name);
	char *end;
	if (!text)
		return other;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < least || value > most)
		fail("%s is '%s': start the program with oshrun", name, text);
	return value;
}

static size_t heap_size(void)
{
	const char *name = "SHMEM_SYMMETRIC_SIZE", *text = getenv(name);
	if (!text)
		text = getenv(name = "SMA_SYMMETRIC_SIZE");
	if (!text)
		return HEAP_BYTES;
	char *end;
	errno = 0;
	double value = strtod(text, &end);
	switch (*end) {
	case 'T': case 't': value *= 1024; /* fall through */
	case 'G': case 'g': value *= 1024; /* fall through */
	case 'M': case 'm': value *= 1024; /* fall through */
	case 'K': case 'k': value *= 1024; end++;
	}
	if (errno || end == text || *end || !(value >= 1) || value > 1e15)
		fail("%s is '%s': give bytes, such as 1048576, 512K, 1.5G", name, text);
	return (size_t)value;
}

/* CPUs that this process may use. */
static int cpus(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

static yasmin_segment *make(const char *name, size_t size)
{
	/* Where the broker does not see this process, it cannot tell when it ends. */
	if (yasmin_segment_create(name, size, YASMIN_SEGMENT_WITH_CREATOR) &&
	    (errno != EOPNOTSUPP || yasmin_segment_create(name, size, 0)))
		fail("%s (SHMEM_SYMMETRIC_SIZE says how much each PE has; oshrun starts a broker)",
		     yasmin_segment_error());
	return yasmin_segment_open(name, YASMIN_SEGMENT_WRITE);
}

/* One that was there before, with room for a job behind its first `at` bytes. oshrun has zeroed the
 * job's first page. */
static yasmin_segment *given(const char *name, uint64_t at, size_t size)
{
	yasmin_segment *segment = yasmin_segment_open(name, YASMIN_SEGMENT_WRITE);
	if (segment && yasmin_segment_size(segment) < at + size)
		fail("segment %s has %lu bytes; for %d PEs of %zu and what they share it needs %lu "
		     "(SHMEM_SYMMETRIC_SIZE says how much each PE has)",
		     name, (unsigned long)yasmin_segment_size(segment), job.pes, job.area_bytes,
		     (unsigned long)(at + size));
	return segment;
}

static yasmin_segment *await(const char *name)
{
	yasmin_segment *segment;
	unsigned looks = job.spins;
	/* oshrun ends this PE if PE 0 ends. */
	while (!(segment = yasmin_segment_open(name, YASMIN_SEGMENT_WRITE)) && errno == ENOENT)
		look_again(&looks);
	return segment;
}

static void end_with_parent(pid_t launcher)
{
	if (launcher && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != launcher))
		fail("oshrun has ended");
}

static void layout(void)
{
	job.heap_bytes = (heap_size() + PAGE - 1) & ~(PAGE - 1);
	/* So that an alignment of up to this is the same offset in all PEs. */
	job.area_bytes = (job.data_bytes + job.heap_bytes + MOST_ALIGNMENT - 1) & ~(MOST_ALIGNMENT - 1);
	job.meeting_bytes =
		(sizeof(struct meeting) + (size_t)job.pes * sizeof(uint64_t) + 63) & ~63ul;
	size_t teams = (size_t)job.pes * TEAMS * job.meeting_bytes;
	job.areas_at = (PAGE + teams + PAGE - 1) & ~(PAGE - 1);
}

static void implied(int status, void *unused);

static void begin(int level)
{
	if (job.is_up)
		fail("shmem_init twice");
	if (job.is_finalized)
		fail("shmem_init behind shmem_finalize");
	job.pes = (int)number("YASMIN_SHMEM_PES", 1, MAX_PES, 1);
	job.me = (int)number("YASMIN_SHMEM_PE", 0, job.pes - 1, 0);
	job.exit_fd = (int)number("YASMIN_SHMEM_EXIT_FD", 0, 1 << 20, -1);
	/* Of a process that oshrun did not start itself, such as under a debugger, it is another. */
	pid_t launcher = (pid_t)number("YASMIN_SHMEM_LAUNCHER", 1, INT32_MAX, 0);
	if (launcher == getppid())
		end_with_parent(launcher);
	job.thread_level = level;
	/* Those elsewhere have other CPUs. */
	job.spins = cpus() >= number("YASMIN_SHMEM_PES_HERE", 1, job.pes, job.pes) ? 2000 : 0;
	job.debug = getenv("SHMEM_DEBUG") || getenv("SMA_DEBUG");
	char name[64];
	const char *id = getenv("YASMIN_SHMEM_JOB"), *place = getenv("YASMIN_SHMEM_SEGMENT");
	uint64_t at = (uint64_t)number("YASMIN_SHMEM_OFFSET", 0, 1 << 30, 0);
	if (place)
		snprintf(name, sizeof(name), "%s", place);
	else if (id)
		snprintf(name, sizeof(name), "shmem-%s", id);
	else
		snprintf(name, sizeof(name), "shmem-%d-%lx", (int)getpid(), (long)time(NULL));
	data_find();
	layout();
	size_t size = job.areas_at + (size_t)job.pes * job.area_bytes;
	yasmin_segment *segment =
		place ? given(name, at, size) : job.me ? await(name) : make(name, size);
	if (!segment || !(job.base = yasmin_segment_attach(segment, 0)))
		fail("%s", yasmin_segment_error());
	job.base += at;
	struct control *control = (struct control *)job.base;
	if (!job.me) {
		/* What a job before this one has left. */
		if (place)
			memset(job.base + PAGE, 0, size - PAGE);
		control->pes = (uint64_t)job.pes;
		control->data_bytes = job.data_bytes;
		control->heap_bytes = job.heap_bytes;
		__atomic_store_n(&control->ready, MAGIC, __ATOMIC_RELEASE);
	}
	unsigned looks = 0;
	while (__atomic_load_n(&control->ready, __ATOMIC_ACQUIRE) != MAGIC)
		look_again(&looks);
	if (control->pes != (uint64_t)job.pes || control->data_bytes != job.data_bytes ||
	    control->heap_bytes != job.heap_bytes)
		fail("this is another program than PE 0's, or SHMEM_SYMMETRIC_SIZE is another: "
		     "%zu bytes of globals and %zu of heap here, %zu and %zu there",
		     job.data_bytes, job.heap_bytes, (size_t)control->data_bytes,
		     (size_t)control->heap_bytes);
	job.own = job.base + job.areas_at + (size_t)job.me * job.area_bytes;
	job.heap = job.own + job.data_bytes;
	data_share(segment, at + (uint64_t)(job.own - job.base));
	heap_begin();
	team_begin();
	job.is_up = true;
	__atomic_fetch_add(&control->attached, 1, __ATOMIC_ACQ_REL);
	for (looks = 0; __atomic_load_n(&control->attached, __ATOMIC_ACQUIRE) < (uint64_t)job.pes;)
		look_again(&looks);
	if (!job.me && !place)
		yasmin_segment_remove(name);
	on_exit(implied, NULL);
	if (!job.me && (getenv("SHMEM_VERSION") || getenv("SMA_VERSION")))
		printf("%s, OpenSHMEM %d.%d\n", SHMEM_VENDOR_STRING, SHMEM_MAJOR_VERSION,
		       SHMEM_MINOR_VERSION);
	if (!job.me && (getenv("SHMEM_INFO") || getenv("SMA_INFO")))
		printf("SHMEM_SYMMETRIC_SIZE=%zu: bytes of each PE's symmetric heap\n"
		       "SHMEM_VERSION: print the version at the start\n"
		       "SHMEM_INFO: print this\n"
		       "SHMEM_DEBUG: check that all PEs ask for the same memory\n", job.heap_bytes);
	pshmem_barrier_all();
}

PUBLIC(void, init, void)
{
	begin(SHMEM_THREAD_SINGLE);
}

PUBLIC(int, init_thread, int requested, int *provided)
{
	if (requested < SHMEM_THREAD_SINGLE || requested > SHMEM_THREAD_MULTIPLE)
		return -1;
	begin(requested);
	if (provided)
		*provided = requested;
	return 0;
}

PUBLIC(void, query_thread, int *provided)
{
	*provided = job.thread_level;
}

void start_pes(int npes)
{
	(void)npes;
	if (!job.is_up)
		begin(SHMEM_THREAD_SINGLE);
}

PUBLIC(void, finalize, void)
{
	if (!job.is_up)
		return;
	pshmem_barrier_all();
	job.is_up = false;
	job.is_finalized = true;
	if (job.exit_fd >= 0)
		close(job.exit_fd);
	job.exit_fd = -1;
}

/* A program that ends well without saying so finalizes, as start_pes has it. */
static void implied(int status, void *unused)
{
	(void)unused;
	if (!status)
		pshmem_finalize();
}

__attribute__((noreturn)) PUBLIC(void, global_exit, int status)
{
	check_up("shmem_global_exit");
	fflush(NULL);
	unsigned char byte = (unsigned char)status;
	if (job.exit_fd >= 0 && write(job.exit_fd, &byte, 1) == 1) {
		/* oshrun ends all PEs, this one too. */
		for (;;)
			pause();
	}
	job.is_up = false;
	_exit(status);
}

PUBLIC(int, my_pe, void)
{
	check_up("shmem_my_pe");
	return job.me;
}

PUBLIC(int, n_pes, void)
{
	check_up("shmem_n_pes");
	return job.pes;
}
OLD_NAME(int, _my_pe, my_pe, void)
OLD_NAME(int, _num_pes, n_pes, void)

PUBLIC(int, pe_accessible, int pe)
{
	check_up("shmem_pe_accessible");
	return pe >= 0 && pe < job.pes;
}

PUBLIC(int, addr_accessible, const void *addr, int pe)
{
	return pshmem_ptr(addr, pe) != NULL;
}

PUBLIC(void *, ptr, const void *dest, int pe)
{
	check_up("shmem_ptr");
	if (pe < 0 || pe >= job.pes || !symmetric(dest, 1, pe))
		return NULL;
	/* One's own is where it is. */
	return pe == job.me ? (void *)dest : symmetric(dest, 1, pe);
}

PUBLIC(void *, team_ptr, shmem_team_t team, const void *dest, int pe)
{
	if (team == SHMEM_TEAM_INVALID)
		return NULL;
	struct yasmin_shmem_team *of = team_of("shmem_team_ptr", team);
	return pe < 0 || pe >= of->size ? NULL : pshmem_ptr(dest, of->pes[pe]);
}

PUBLIC(void, info_get_version, int *major, int *minor)
{
	*major = SHMEM_MAJOR_VERSION;
	*minor = SHMEM_MINOR_VERSION;
}

PUBLIC(void, info_get_name, char *name)
{
	strcpy(name, SHMEM_VENDOR_STRING);
}

PUBLIC(void, pcontrol, int level, ...)
{
	(void)level;
}
