/* The profiling names of shmem.h: pshmem_put_signal beside shmem_put_signal, and so on. */
#include <shmem.h>
