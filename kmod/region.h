/* SPDX-License-Identifier: GPL-2.0 */
/* Between yasmin-region.ko and the broker (spec/wire.md section 13.1). */
#ifndef YASMIN_REGION_H
#define YASMIN_REGION_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* First 8 bytes of a region. */
#define YASMIN_REGION_MAGIC "YASMINRG"
/* What a read of the device gives: the region's beginning. */
#define YASMIN_IDENTITY_BYTES 32

/* A part of a segment: it may overlap other such parts. When the device goes, who touches it gets SIGBUS: a
 * private copy would be another memory than the one that the others share. */
#define YASMIN_SLICE_SEGMENT 1
/* The descriptor maps it for reading only. */
#define YASMIN_SLICE_READ_ONLY 2

/* Offset and length in bytes, multiples of a page. The grant is the host's number for what it gave: the
 * driver keeps it with the slice, and says it with it. */
struct yasmin_slice {
	__u64 offset;
	__u64 bytes;
	__u64 grant;
	__u64 flags;
};

/* Gives a descriptor that maps this slice. EBUSY: it overlaps one that somebody has. A driver that parks the
 * words of channels of version 1 has number 1; one that knows no flags has another size. */
#define YASMIN_SLICE_GET _IOW('y', 4, struct yasmin_slice)
/* The first slice that somebody has at `offset` or behind. ENOENT: there is none. */
#define YASMIN_SLICE_NEXT _IOWR('y', 2, struct yasmin_slice)
/* A slice that nobody has any more, once each. EAGAIN: there is none. */
#define YASMIN_SLICE_FREED _IOR('y', 3, struct yasmin_slice)

#endif
