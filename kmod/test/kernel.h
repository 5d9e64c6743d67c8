/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What ring.c has of the kernel, for its build in user space: by GCC's atomics. */
#ifndef YASMIN_TEST_KERNEL_H
#define YASMIN_TEST_KERNEL_H

#include <string.h>

#define min(a, b) ((a) < (b) ? (a) : (b))

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELAXED)
#define virt_load_acquire(at) __atomic_load_n(at, __ATOMIC_ACQUIRE)
#define virt_store_release(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)
#define virt_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* What was there. */
#define sync_cmpxchg(at, from, to) ({ \
	__typeof__(*(at)) was = (from); \
	__atomic_compare_exchange_n(at, &was, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	was; \
})

#endif
