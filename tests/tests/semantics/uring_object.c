/* As liburing sets a ring up: by a system call of its own. */
#include <sys/syscall.h>

int io_uring_queue_init_params(unsigned entries, void *ring, void *params)
{
	long ret = SYS_io_uring_setup;

	(void)ring;
	__asm__ volatile("syscall" : "+a"(ret) : "D"((long)entries), "S"(params) : "rcx", "r11", "memory");
	return (int)ret;
}
