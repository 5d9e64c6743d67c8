/* Setup, exit, information, threads; which memory is symmetric. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static long initialized[3] = { 1, 2, 3 }; /* .data */
long uninitialized[3]; /* .bss */
static const long constant = 7;
static int counted;

static void *thread(void *unused)
{
	(void)unused;
	for (int pe = 0; pe < shmem_n_pes(); pe++)
		shmem_atomic_inc(&counted, pe);
	return NULL;
}

int main(int argc, char **argv)
{
	int provided = -1, major, minor, status;
	char name[SHMEM_MAX_NAME_LEN];
	long local = 5;

	(void)argv;
	if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided))
		return 1;
	CHECK(provided == SHMEM_THREAD_MULTIPLE);
	shmem_query_thread(&provided);
	CHECK(provided == SHMEM_THREAD_MULTIPLE);
	int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n;
	CHECK(me >= 0 && me < n && _my_pe() == me && _num_pes() == n);
	shmem_info_get_version(&major, &minor);
	CHECK(major == 1 && minor == 5);
	shmem_info_get_name(name);
	CHECK(!strcmp(name, SHMEM_VENDOR_STRING));

	for (int pe = -1; pe <= n; pe++)
		CHECK(shmem_pe_accessible(pe) == (pe >= 0 && pe < n));
	long *heap = shmem_malloc(3 * sizeof(long));
	void *private = malloc(8);
	for (int pe = 0; pe < n; pe++) {
		CHECK(shmem_addr_accessible(&initialized, pe));
		CHECK(shmem_addr_accessible(&uninitialized, pe));
		CHECK(shmem_addr_accessible(heap, pe));
		CHECK(!shmem_addr_accessible(&local, pe));
		CHECK(!shmem_addr_accessible(private, pe));
		CHECK(!shmem_addr_accessible(&constant, pe));
		CHECK(!shmem_ptr(&local, pe));
	}
	CHECK(!shmem_ptr(heap, n) && !shmem_ptr(heap, -1));
	CHECK(shmem_ptr(heap, me) == heap && shmem_ptr(initialized, me) == initialized);

	/* What was there before is there still; what others store by a pointer is here. */
	CHECK(initialized[0] == 1 && initialized[2] == 3 && uninitialized[1] == 0);
	shmem_barrier_all();
	((long *)shmem_ptr(initialized, next))[1] = 100 + me;
	((long *)shmem_ptr(uninitialized, next))[2] = 200 + me;
	((long *)shmem_ptr(heap, next))[0] = 300 + me;
	shmem_barrier_all();
	int last = (me + n - 1) % n;
	CHECK(initialized[0] == 1 && initialized[1] == 100 + last && initialized[2] == 3);
	CHECK(uninitialized[2] == 200 + last && heap[0] == 300 + last);

	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&threads[i], NULL, thread, NULL));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	shmem_barrier_all();
	CHECK(counted == 3 * n);

	/* A child has variables of its own. */
	pid_t child = fork();
	if (!child) {
		uninitialized[0] = 77;
		initialized[0] = 77;
		_exit(uninitialized[0] == 77 && counted == 3 * n ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(uninitialized[0] == 0 && initialized[0] == 1);
	shmem_barrier_all();
	if (argc > 1)
		return 0; /* finalized by ending */
	shmem_finalize();
	return initialized[1] == 100 + last ? 0 : 1;
}
