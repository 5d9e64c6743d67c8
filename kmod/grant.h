/* SPDX-License-Identifier: GPL-2.0 */
/* Between yasmin-grant.ko of dom0 and its broker, and what guests find (spec/wire.md section 14). */
#ifndef YASMIN_GRANT_H
#define YASMIN_GRANT_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Of one region: 64 GiB. */
#define YASMIN_GRANT_PAGES_MAX (1u << 24)

/* A page that lists grants, in the order of the region's pages. The guest may read it. */
struct yasmin_grant_list {
	/* The next such page's grant; 0: it is the last one. */
	__u32 next;
	__u32 refs[1023];
};

/* The guest may only read it. */
#define YASMIN_GRANT_READ_ONLY 1

/* Memory that is granted to a domain. `number`: the region's, which names it in that domain. */
struct yasmin_grant {
	__u64 number;
	/* Where the caller has it mapped, and its length in bytes: multiples of a page. Not in answers. */
	__u64 address;
	__u64 bytes;
	__u32 domid;
	__u32 flags;
	/* The first page of the list, as answered. */
	__u32 list;
	__u32 reserved;
};

/* Grants it, until YASMIN_GRANT_END; the caller may unmap it, and end. EEXIST: that domain has one of this
 * number. ENOSPC: the grant table is full. */
#define YASMIN_GRANT_MAKE _IOWR('y', 16, struct yasmin_grant)
/* Takes it back. EBUSY: the domain has pages of it mapped; what it has not is taken back. ENOENT: there is none. */
#define YASMIN_GRANT_END _IOW('y', 17, struct yasmin_grant)
/* The one of this domain that has this number, or the next larger one. ENOENT: there is none. */
#define YASMIN_GRANT_NEXT _IOWR('y', 18, struct yasmin_grant)

#endif
