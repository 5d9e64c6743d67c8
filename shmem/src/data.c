/* The program's global and static variables, which are symmetric too.
 *
 * Its writable pages (.data and .bss, behind what the dynamic linker protects) are copied into this
 * PE's area of the segment, and the pages of the area are then mapped in their place, once more. So a
 * variable is one piece of memory with two addresses: the program's own, and the one by which other
 * PEs reach it.
 *
 * A child that is forked would share them with its parent, which no program expects: it gets a
 * copy of its own.
 */
#include "internal.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul

/* What the dynamic linker makes read-only when it is done. */
static void find_protected(const struct dl_phdr_info *info, uintptr_t *from, uintptr_t *to)
{
	*from = *to = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type != PT_GNU_RELRO)
			continue;
		*from = (info->dlpi_addr + part->p_vaddr) & ~(PAGE - 1);
		*to = (info->dlpi_addr + part->p_vaddr + part->p_memsz) & ~(PAGE - 1);
	}
}

static int look(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	uintptr_t protected_from, protected_to;
	find_protected(info, &protected_from, &protected_to);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + part->p_vaddr;
		uintptr_t start = at & ~(PAGE - 1);
		uintptr_t end = (at + part->p_memsz + PAGE - 1) & ~(PAGE - 1);
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_W))
			continue;
		if (start >= protected_from && start < protected_to)
			start = protected_to;
		if (start >= end)
			continue;
		if (job.data_bytes)
			fail("the program has more than one part with variables: link it with the "
			     "linker's own script");
		job.data = (char *)start;
		job.data_bytes = end - start;
	}
	return 1; /* the first is the program */
}

void data_find(void)
{
	dl_iterate_phdr(look, NULL);
}

static void in_child(void)
{
	/* It is no PE. */
	job.is_up = false;
	job.is_finalized = true;
	job.exit_fd = -1;
	if (!job.data_bytes)
		return;
	int kind = MAP_PRIVATE | MAP_ANONYMOUS;
	char *copy = mmap(NULL, job.data_bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
	if (copy == MAP_FAILED)
		fail("a forked child has no memory for variables of its own");
	memcpy(copy, job.data, job.data_bytes);
	if (mremap(copy, job.data_bytes, job.data_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, job.data) ==
	    MAP_FAILED)
		fail("a forked child gets no variables of its own");
}

void data_share(const yasmin_segment *segment, uint64_t at)
{
	char *area = job.own;
	sigset_t all, before;
	if (pthread_atfork(NULL, NULL, in_child))
		fail("no memory");
	if (!job.data_bytes)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	memcpy(area, job.data, job.data_bytes);
	int error = yasmin_segment_alias(segment, job.data, at, job.data_bytes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		fail("the program's variables cannot be shared: %s", yasmin_segment_error());
}
