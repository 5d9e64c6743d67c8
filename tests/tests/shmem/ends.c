/* Ends of all kinds, as told: PE 1 does it, or all do. The others wait for ever. */
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	static long never;
	long local = 0;

	if (!strcmp(how, "before"))
		return getenv("YASMIN_SHMEM_PE")[0] == '0' ? 9 : (shmem_init(), 0);
	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes();
	if (!strcmp(how, "pid")) {
		printf("PE %d of %d is %d\n", me, n, (int)getpid());
		fflush(stdout);
	}
	if (me != 1 % n || !strcmp(how, "pid"))
		shmem_long_wait_until(&never, SHMEM_CMP_NE, 0);
	if (!strcmp(how, "code"))
		exit(7);
	else if (!strcmp(how, "kill"))
		raise(SIGKILL);
	else if (!strcmp(how, "global"))
		shmem_global_exit(42);
	else if (!strcmp(how, "global0"))
		shmem_global_exit(0);
	else if (!strcmp(how, "local"))
		shmem_long_p(&local, 1, 0);
	else if (!strcmp(how, "pe"))
		shmem_long_p(&never, 1, n);
	else if (!strcmp(how, "behind"))
		shmem_putmem(&never, &local, 1ul << 40, 0);
	else if (!strcmp(how, "free"))
		shmem_malloc(8), shmem_free(&local);
	else if (!strcmp(how, "twice"))
		shmem_init();
	return 0;
}
