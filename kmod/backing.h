/* SPDX-License-Identifier: GPL-2.0 */
/* yasmin-region.ko: between regions and what brings them. */
#ifndef YASMIN_BACKING_H
#define YASMIN_BACKING_H

#include <linux/types.h>

struct device;
struct page;
struct region;

/* A region's memory. */
struct backing {
	/* A page for each of its pages; NULL: it is in one piece. */
	struct page **pages;
	/* Of one piece: where it begins, and as the kernel has it mapped. */
	phys_addr_t start;
	void *base;
	u64 bytes;
	/* Whoever writes there gets a fault: no slice can be written. */
	bool is_read_only;
};

struct region *yasmin_region_add(struct device *parent, const struct backing *backing);
void yasmin_region_remove(struct region *region, bool is_readable);

/* ivshmem.c: KVM. xenregion.c: Xen; elsewhere it does nothing. */
int yasmin_ivshmem_start(void);
void yasmin_ivshmem_stop(void);
int yasmin_xenregion_start(void);
void yasmin_xenregion_stop(void);

#endif
