/*
 * A static program that loads another one, PROGRAM, into its memory and becomes it without exec.
 * To be linked where PROGRAM is not.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void maps(const Elf64_Phdr *part, int file)
{
	int prot = (part->p_flags & PF_R ? PROT_READ : 0) | (part->p_flags & PF_W ? PROT_WRITE : 0) |
		   (part->p_flags & PF_X ? PROT_EXEC : 0);
	uintptr_t begin = part->p_vaddr & -PAGE, of_file = part->p_vaddr + part->p_filesz,
		  whole = (of_file + PAGE - 1) & -PAGE, end = part->p_vaddr + part->p_memsz;

	if (mmap((void *)begin, of_file - begin, prot, MAP_PRIVATE | MAP_FIXED, file, (off_t)(part->p_offset & -PAGE)) ==
	    MAP_FAILED)
		die("mmap");
	if (end > of_file)
		memset((void *)of_file, 0, (end < whole ? end : whole) - of_file);
	if (end > whole &&
	    mmap((void *)whole, end - whole, prot, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		die("more");
}

int main(int count, char **arguments)
{
	static char head[PAGE];
	const Elf64_Ehdr *file_head = (void *)head;
	const Elf64_Phdr *parts = (void *)(head + sizeof(*file_head));
	int file = open(PROGRAM, O_RDONLY | O_CLOEXEC);
	char **word = arguments + count + 1;

	if (file < 0 || read(file, head, PAGE) != PAGE)
		die(PROGRAM);
	for (int i = 0; i < file_head->e_phnum; i++)
		if (parts[i].p_type == PT_LOAD && parts[i].p_memsz)
			maps(&parts[i], file);
	close(file);
	while (*word)
		word++;
	for (Elf64_auxv_t *value = (void *)(word + 1); value->a_type != AT_NULL; value++)
		switch (value->a_type) {
		case AT_PHDR:
			value->a_un.a_val = parts[0].p_vaddr - parts[0].p_offset + file_head->e_phoff;
			break;
		case AT_PHNUM:
			value->a_un.a_val = file_head->e_phnum;
			break;
		}
	/* As the kernel begins a program: the count of arguments lies right before them. */
	__asm__ volatile("mov %0, %%rsp\n\txor %%edx, %%edx\n\tjmp *%1"
			 :
			 : "r"(arguments - 1), "r"(file_head->e_entry)
			 : "memory");
	__builtin_unreachable();
}
