// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that several guests map, in slices (spec/wire.md section 13).
 *
 * The host's broker gives a region to a pair of guests, and a slice of it holds the channel of one
 * connection. Where a guest has got one (ivshmem.c: KVM, xenregion.c: Xen), root's broker has a character
 * device, /dev/yasmin-regionN. From there it gets a descriptor for each slice, which can map that slice
 * and nothing beside it, and hands it to a library.
 *
 * The other guest writes the region at any time. The driver reads of it the identity, which it passes on
 * unchecked, and the two words of each channel, which it parks and never believes.
 *
 * When the region goes, a slice that somebody has mapped goes on as a private copy:
 *
 *   1. its mappings are taken away; who touches one waits;
 *   2. both words are parked in the shared memory: the other guest publishes nothing from then on;
 *   3. its pages are copied, and the copy's words are parked: an offer of the other guest's after step 2
 *      is not seen;
 *   4. who waited goes on with the copy.
 *
 * So all that was published before is read, all that follows goes by TCP, and nothing faults.
 *
 * A region may hold a segment instead, which programs of its guests share by name. The slices of that
 * overlap, and have no copy: who touches one when the device has gone gets SIGBUS.
 *
 * Lock order: mmap_lock, region->sem, region->lock.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/path.h>
#include <linux/poll.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <asm/sync_bitops.h>

#include "backing.h"
#include "region.h"

/* Slices that one region has at most at a time, and freed ones that were not told of. */
#define SLICES_MAX 4096
/* Where the words lie in a channel's first page. */
#define WORD_0 0x400
#define WORD_1 0x600

struct region {
	struct kref refs;
	struct miscdevice device;
	int number;
	struct backing backing;
	/* The region has gone. Under sem. */
	bool has_gone;
	struct rw_semaphore sem;
	/* Of the lists and the count. */
	struct mutex lock;
	struct list_head live, freed;
	unsigned int slices;
	wait_queue_head_t news;
};

struct slice {
	struct list_head link;
	struct region *region;
	u64 offset, bytes, grant, flags;
	/* The character device as it was opened: its inode knows the slice's mappings. */
	struct path path;
	struct address_space *mapping;
	/* The copy: a page for each, NULL one of zeros. NULL while the device is there. Under sem. */
	struct page **copy;
	/* There was no memory for the copy, or nothing to copy from: zeros. Under sem. */
	bool gone;
};

static DEFINE_IDA(numbers);

static void region_free(struct kref *refs)
{
	struct region *region = container_of(refs, struct region, refs);
	struct slice *slice, *next;

	list_for_each_entry_safe(slice, next, &region->freed, link)
		kfree(slice);
	ida_free(&numbers, region->number);
	kfree(region->device.name);
	kfree(region);
}

/* A page of it, as the kernel has it. */
static void *region_page(const struct region *region, unsigned long index)
{
	const struct backing *backing = &region->backing;

	return backing->pages ? page_address(backing->pages[index]) : backing->base + (index << PAGE_SHIFT);
}

static unsigned long region_pfn(const struct region *region, unsigned long index)
{
	const struct backing *backing = &region->backing;

	return backing->pages ? page_to_pfn(backing->pages[index]) : (backing->start >> PAGE_SHIFT) + index;
}

/* ---- Slices ---- */

static vm_fault_t slice_fault(struct vm_fault *fault)
{
	struct slice *slice = fault->vma->vm_file->private_data;
	struct region *region = slice->region;
	unsigned long index = fault->pgoff - (slice->offset >> PAGE_SHIFT);
	vm_fault_t result;

	if (index >= slice->bytes >> PAGE_SHIFT)
		return VM_FAULT_SIGBUS;
	down_read(&region->sem);
	if (!slice->gone) {
		result = vmf_insert_pfn(fault->vma, fault->address, region_pfn(region, fault->pgoff));
	} else if (!slice->copy) {
		result = VM_FAULT_SIGBUS;
	} else {
		struct page *page = READ_ONCE(slice->copy[index]);

		if (!page) {
			struct page *fresh = alloc_page(GFP_KERNEL | __GFP_ZERO);

			if (!fresh) {
				up_read(&region->sem);
				return VM_FAULT_OOM;
			}
			page = cmpxchg(&slice->copy[index], NULL, fresh);
			if (page)
				__free_page(fresh);
			else
				page = fresh;
		}
		result = vmf_insert_pfn(fault->vma, fault->address, page_to_pfn(page));
	}
	up_read(&region->sem);
	return result;
}

static const struct vm_operations_struct slice_vm_ops = { .fault = slice_fault };

static int slice_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct slice *slice = file->private_data;
	unsigned long pages = slice->bytes >> PAGE_SHIFT;

	/* MAP_SHARED: VM_SHARED too is of those that may write. */
	if (!(vma->vm_flags & VM_MAYSHARE) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	if (vma->vm_pgoff > pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -EINVAL;
	/* Mappings of different slices lie in one address space, each at its place. */
	vma->vm_pgoff += slice->offset >> PAGE_SHIFT;
	vma->vm_ops = &slice_vm_ops;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
#else
	vma->vm_flags |= VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP;
	vma->vm_flags &= ~VM_MAYEXEC;
#endif
	return 0;
}

static int slice_release(struct inode *inode, struct file *file)
{
	struct slice *slice = file->private_data;
	struct region *region = slice->region;

	/* `remove` copies what is in the list, all of it under the lock. */
	mutex_lock(&region->lock);
	list_del(&slice->link);
	mutex_unlock(&region->lock);
	if (slice->copy) {
		unsigned long i;

		for (i = 0; i < slice->bytes >> PAGE_SHIFT; i++)
			if (slice->copy[i])
				__free_page(slice->copy[i]);
		kvfree(slice->copy);
		slice->copy = NULL;
	}
	path_put(&slice->path);
	mutex_lock(&region->lock);
	list_add_tail(&slice->link, &region->freed);
	mutex_unlock(&region->lock);
	wake_up_interruptible(&region->news);
	kref_put(&region->refs, region_free);
	return 0;
}

static const struct file_operations slice_ops = {
	.owner = THIS_MODULE,
	.mmap = slice_mmap,
	.release = slice_release,
	.llseek = noop_llseek,
};

/* A descriptor for a slice that overlaps no other one. */
static long slice_get(struct file *control, struct region *region, const struct yasmin_slice *wanted)
{
	struct slice *slice, *other;
	struct file *file;
	long error;
	int fd;

	/* The first page is the region's own. */
	if (!PAGE_ALIGNED(wanted->offset) || !PAGE_ALIGNED(wanted->bytes) || !wanted->bytes ||
	    wanted->offset < PAGE_SIZE || wanted->offset > region->backing.bytes ||
	    wanted->bytes > region->backing.bytes - wanted->offset ||
	    wanted->flags & ~(u64)(YASMIN_SLICE_SEGMENT | YASMIN_SLICE_READ_ONLY))
		return -EINVAL;
	if (region->backing.is_read_only && !(wanted->flags & YASMIN_SLICE_READ_ONLY))
		return -EACCES;
	slice = kzalloc(sizeof(*slice), GFP_KERNEL);
	if (!slice)
		return -ENOMEM;
	slice->region = region;
	slice->offset = wanted->offset;
	slice->bytes = wanted->bytes;
	slice->grant = wanted->grant;
	slice->flags = wanted->flags;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		kfree(slice);
		return fd;
	}
	down_read(&region->sem);
	mutex_lock(&region->lock);
	error = region->has_gone ? -ENODEV : 0;
	if (region->slices >= SLICES_MAX)
		error = -ENOSPC;
	list_for_each_entry(other, &region->live, link)
		if (wanted->offset < other->offset + other->bytes &&
		    other->offset < wanted->offset + wanted->bytes &&
		    !(wanted->flags & other->flags & YASMIN_SLICE_SEGMENT))
			error = -EBUSY;
	if (!error) {
		file = anon_inode_getfile("[yasmin-slice]", &slice_ops, slice,
					  slice->flags & YASMIN_SLICE_READ_ONLY ? O_RDONLY : O_RDWR);
		error = PTR_ERR_OR_ZERO(file);
	}
	if (!error) {
		slice->path = control->f_path;
		path_get(&slice->path);
		slice->mapping = file_inode(control)->i_mapping;
		file->f_mapping = slice->mapping;
		kref_get(&region->refs);
		list_add_tail(&slice->link, &region->live);
		region->slices++;
	}
	mutex_unlock(&region->lock);
	up_read(&region->sem);
	if (error) {
		put_unused_fd(fd);
		kfree(slice);
		return error;
	}
	fd_install(fd, file);
	return fd;
}

/* No sender publishes after this. Bit 0 first: of OFFERED (1), OPEN (2) can come in between. With a
 * bus lock even where the kernel believes that it is alone: the other guest is not. */
static void park(void *page)
{
	static const unsigned int words[] = { WORD_0, WORD_1 };
	int i;

	for (i = 0; i < ARRAY_SIZE(words); i++) {
		unsigned long *word = page + words[i];

		sync_clear_bit(0, word);
		sync_clear_bit(1, word);
	}
}

/* The region is going: from now on the slice is a copy. Under sem, to write. */
static void slice_copy(struct slice *slice, bool is_readable)
{
	struct region *region = slice->region;
	unsigned long pages = slice->bytes >> PAGE_SHIFT, first = slice->offset >> PAGE_SHIFT, i;

	unmap_mapping_range(slice->mapping, slice->offset, slice->bytes, 1);
	slice->gone = true;
	if (slice->flags & YASMIN_SLICE_SEGMENT)
		return;
	slice->copy = kvcalloc(pages, sizeof(*slice->copy), GFP_KERNEL);
	if (!slice->copy || !is_readable)
		return;
	if (!region->backing.is_read_only)
		park(region_page(region, first));
	for (i = 0; i < pages; i++) {
		void *from = region_page(region, first + i);
		struct page *page;

		if (!memchr_inv(from, 0, PAGE_SIZE))
			continue;
		page = alloc_page(GFP_KERNEL);
		if (!page) {
			/* Half a copy would be other bytes. Zeros break the connection, and it is reset. */
			while (i--) {
				if (slice->copy[i])
					__free_page(slice->copy[i]);
				slice->copy[i] = NULL;
			}
			return;
		}
		memcpy(page_address(page), from, PAGE_SIZE);
		slice->copy[i] = page;
	}
	if (slice->copy[0])
		park(page_address(slice->copy[0]));
}

/* ---- The broker's device ---- */

static int control_open(struct inode *inode, struct file *file)
{
	struct region *region = container_of(file->private_data, struct region, device);

	kref_get(&region->refs);
	file->private_data = region;
	return 0;
}

static int control_release(struct inode *inode, struct file *file)
{
	struct region *region = file->private_data;

	kref_put(&region->refs, region_free);
	return 0;
}

/* The beginning of the region: who it is. */
static ssize_t control_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	struct region *region = file->private_data;
	u8 identity[YASMIN_IDENTITY_BYTES];

	if (count < sizeof(identity))
		return -EINVAL;
	down_read(&region->sem);
	if (!region->has_gone)
		memcpy(identity, region_page(region, 0), sizeof(identity));
	else
		count = 0;
	up_read(&region->sem);
	if (!count)
		return -ENODEV;
	return copy_to_user(to, identity, sizeof(identity)) ? -EFAULT : sizeof(identity);
}

static void slice_tell(const struct slice *slice, struct yasmin_slice *said)
{
	said->offset = slice->offset;
	said->bytes = slice->bytes;
	said->grant = slice->grant;
	said->flags = slice->flags;
}

static long control_ioctl(struct file *file, unsigned int what, unsigned long argument)
{
	struct region *region = file->private_data;
	struct yasmin_slice __user *user = (void __user *)argument;
	struct yasmin_slice said = {};
	struct slice *slice, *found = NULL;
	long result;

	if (what != YASMIN_SLICE_FREED && copy_from_user(&said, user, sizeof(said)))
		return -EFAULT;
	switch (what) {
	case YASMIN_SLICE_GET:
		return slice_get(file, region, &said);
	case YASMIN_SLICE_NEXT:
		mutex_lock(&region->lock);
		list_for_each_entry(slice, &region->live, link)
			if (slice->offset >= said.offset && (!found || slice->offset < found->offset))
				found = slice;
		if (found)
			slice_tell(found, &said);
		mutex_unlock(&region->lock);
		result = found ? 0 : -ENOENT;
		break;
	case YASMIN_SLICE_FREED:
		mutex_lock(&region->lock);
		found = list_first_entry_or_null(&region->freed, struct slice, link);
		if (found) {
			list_del(&found->link);
			region->slices--;
			slice_tell(found, &said);
		}
		mutex_unlock(&region->lock);
		result = found ? 0 : -EAGAIN;
		kfree(found);
		break;
	default:
		return -ENOTTY;
	}
	if (!result && copy_to_user(user, &said, sizeof(said)))
		return -EFAULT;
	return result;
}

/* Readable: a slice was freed. Hung up: the region is gone. */
static __poll_t control_poll(struct file *file, struct poll_table_struct *table)
{
	struct region *region = file->private_data;
	__poll_t events = 0;

	poll_wait(file, &region->news, table);
	mutex_lock(&region->lock);
	if (!list_empty(&region->freed))
		events |= EPOLLIN | EPOLLRDNORM;
	mutex_unlock(&region->lock);
	if (READ_ONCE(region->has_gone))
		events |= EPOLLHUP;
	return events;
}

static const struct file_operations control_ops = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.read = control_read,
	.unlocked_ioctl = control_ioctl,
	.poll = control_poll,
	.llseek = noop_llseek,
};

/* ---- A region's life ---- */

/**
 * yasmin_region_add() - there is a region: its character device comes
 * @parent: the device that has brought it.
 * @backing: its memory; stays the caller's, and there, until yasmin_region_remove() has returned.
 *
 * Return: it, or an error: -ENODEV if what lies there is no region, -ENOMEM, or of the number or the device.
 */
struct region *yasmin_region_add(struct device *parent, const struct backing *backing)
{
	struct region *region;
	int error;

	if (backing->bytes < 2 * PAGE_SIZE)
		return ERR_PTR(-ENODEV);
	region = kzalloc(sizeof(*region), GFP_KERNEL);
	if (!region)
		return ERR_PTR(-ENOMEM);
	kref_init(&region->refs);
	init_rwsem(&region->sem);
	mutex_init(&region->lock);
	INIT_LIST_HEAD(&region->live);
	INIT_LIST_HEAD(&region->freed);
	init_waitqueue_head(&region->news);
	region->backing = *backing;
	error = -ENODEV;
	if (memcmp(region_page(region, 0), YASMIN_REGION_MAGIC, 8))
		goto free;
	region->number = ida_alloc(&numbers, GFP_KERNEL);
	error = region->number;
	if (region->number < 0)
		goto free;
	region->device.minor = MISC_DYNAMIC_MINOR;
	region->device.fops = &control_ops;
	region->device.mode = 0600;
	region->device.parent = parent;
	region->device.name = kasprintf(GFP_KERNEL, "yasmin-region%d", region->number);
	error = -ENOMEM;
	if (!region->device.name)
		goto number;
	error = misc_register(&region->device);
	if (error)
		goto name;
	dev_info(parent, "region of %llu KiB at %s\n", backing->bytes >> 10, region->device.name);
	return region;

name:
	kfree(region->device.name);
number:
	ida_free(&numbers, region->number);
free:
	kfree(region);
	return ERR_PTR(error);
}

/**
 * yasmin_region_remove() - its memory goes
 * @region: not to be used by the caller any more.
 * @is_readable: what lies in it can still be read; a device that was torn out reads as ones.
 *
 * When it returns nothing maps the memory, and nothing reads it.
 */
void yasmin_region_remove(struct region *region, bool is_readable)
{
	struct slice *slice;

	misc_deregister(&region->device);
	down_write(&region->sem);
	WRITE_ONCE(region->has_gone, true);
	mutex_lock(&region->lock);
	list_for_each_entry(slice, &region->live, link)
		slice_copy(slice, is_readable);
	mutex_unlock(&region->lock);
	up_write(&region->sem);
	wake_up_interruptible(&region->news);
	kref_put(&region->refs, region_free);
}

static int __init region_init(void)
{
	int error = yasmin_ivshmem_start();

	if (error)
		return error;
	error = yasmin_xenregion_start();
	if (error)
		yasmin_ivshmem_stop();
	return error;
}
module_init(region_init);

static void __exit region_exit(void)
{
	yasmin_xenregion_stop();
	yasmin_ivshmem_stop();
}
module_exit(region_exit);

MODULE_DESCRIPTION("Slices of memory that several guests map, for YASMIN");
MODULE_LICENSE("GPL");
