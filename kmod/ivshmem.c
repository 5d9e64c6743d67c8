// SPDX-License-Identifier: GPL-2.0
/*
 * yasmin-ivshmem.ko: memory that two KVM guests map, in slices (spec/wire.md section 13).
 *
 * The host's broker plugs an ivshmem-plain device for a pair of guests. Its memory is a region, and a
 * slice of it holds the channel of one connection. This driver binds the device, if what lies there is a
 * region, and gives root's broker a character device, /dev/yasmin-regionN. From there the broker gets a
 * descriptor for each slice, which can map that slice and nothing beside it, and hands it to a library.
 *
 * The other guest writes the region at any time. The driver reads of it the identity, which it passes on
 * unchecked, and the two words of each channel, which it parks and never believes.
 *
 * When the device goes, a slice that somebody has mapped goes on as a private copy:
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
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/path.h>
#include <linux/pci.h>
#include <linux/poll.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <asm/sync_bitops.h>

#include "ivshmem.h"

#define BAR 2
/* Slices that one region has at most at a time, and freed ones that were not told of. */
#define SLICES_MAX 4096
/* Where the words lie in a channel's first page. */
#define WORD_0 0x400
#define WORD_1 0x600

struct region {
	struct kref refs;
	struct miscdevice device;
	int number;
	phys_addr_t start;
	u64 bytes;
	/* NULL once the device is gone. Under sem. */
	void *memory;
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
		unsigned long pfn = (region->start >> PAGE_SHIFT) + fault->pgoff;

		result = vmf_insert_pfn(fault->vma, fault->address, pfn);
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
	    wanted->offset < PAGE_SIZE || wanted->offset > region->bytes ||
	    wanted->bytes > region->bytes - wanted->offset ||
	    wanted->flags & ~(u64)(YASMIN_SLICE_SEGMENT | YASMIN_SLICE_READ_ONLY))
		return -EINVAL;
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
	error = region->memory ? 0 : -ENODEV;
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

/* The device is going: from now on the slice is a copy. Under sem, to write. */
static void slice_copy(struct slice *slice, void *memory)
{
	unsigned long pages = slice->bytes >> PAGE_SHIFT, i;

	unmap_mapping_range(slice->mapping, slice->offset, slice->bytes, 1);
	slice->gone = true;
	if (slice->flags & YASMIN_SLICE_SEGMENT)
		return;
	slice->copy = kvcalloc(pages, sizeof(*slice->copy), GFP_KERNEL);
	if (!slice->copy || !memory)
		return;
	park(memory + slice->offset);
	for (i = 0; i < pages; i++) {
		void *from = memory + slice->offset + (i << PAGE_SHIFT);
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
	if (region->memory)
		memcpy(identity, region->memory, sizeof(identity));
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

/* Readable: a slice was freed. Hung up: the device is gone. */
static __poll_t control_poll(struct file *file, struct poll_table_struct *table)
{
	struct region *region = file->private_data;
	__poll_t events = 0;

	poll_wait(file, &region->news, table);
	mutex_lock(&region->lock);
	if (!list_empty(&region->freed))
		events |= EPOLLIN | EPOLLRDNORM;
	mutex_unlock(&region->lock);
	if (!READ_ONCE(region->memory))
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

/* ---- The PCI device ---- */

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(0x1af4, 0x1110) },
	{ 0 }
};
MODULE_DEVICE_TABLE(pci, ids);

static bool lacks_room(struct pci_dev *pci)
{
	return !pci->resource[BAR].parent;
}

/* What finds no room now gets none. */
static bool is_making_room;

/* A device behind a port that has no addresses for its memory; referenced. */
static struct pci_dev *find_without_room(void)
{
	struct pci_dev *pci = NULL;

	while ((pci = pci_get_device(ids[0].vendor, ids[0].device, pci)))
		if (pci->bus->self && lacks_room(pci))
			return pci;
	return NULL;
}

/*
 * Firmware leaves an empty port 2 MiB of addresses, unless it is told to reserve more, and hot-plugging
 * by ACPI takes what is there, and forgets what finds no place. So the device is found anew, and its
 * port's window becomes larger. Not in probe(), since whoever plugs holds the lock.
 */
static void make_room(struct work_struct *work)
{
	struct pci_dev *pci, *ports[16];
	size_t count = 0;

	pci_lock_rescan_remove();
	while (count < ARRAY_SIZE(ports) && (pci = find_without_room())) {
		ports[count++] = pci_dev_get(pci->bus->self);
		pci_stop_and_remove_bus_device(pci);
		pci_dev_put(pci);
	}
	WRITE_ONCE(is_making_room, true);
	while (count) {
		pci = ports[--count];
		pci_scan_child_bus(pci->subordinate);
		pci_assign_unassigned_bridge_resources(pci);
		pci_bus_add_devices(pci->subordinate);
		pci_dev_put(pci);
	}
	WRITE_ONCE(is_making_room, false);
	pci_unlock_rescan_remove();
}
static DECLARE_WORK(room_work, make_room);

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct region *region;
	int error;

	if (lacks_room(pci)) {
		if (READ_ONCE(is_making_room))
			pci_warn(pci, "no addresses for its memory: reserve some at its port (pref64-reserve)\n");
		else
			schedule_work(&room_work);
		return -ENODEV;
	}
	error = pci_enable_device_mem(pci);
	if (error)
		return error;
	error = pci_request_region(pci, BAR, "yasmin");
	if (error)
		goto disable;
	region = kzalloc(sizeof(*region), GFP_KERNEL);
	error = -ENOMEM;
	if (!region)
		goto release;
	kref_init(&region->refs);
	init_rwsem(&region->sem);
	mutex_init(&region->lock);
	INIT_LIST_HEAD(&region->live);
	INIT_LIST_HEAD(&region->freed);
	init_waitqueue_head(&region->news);
	region->start = pci_resource_start(pci, BAR);
	region->bytes = pci_resource_len(pci, BAR);
	error = -ENODEV;
	if (!PAGE_ALIGNED(region->start) || region->bytes < 2 * PAGE_SIZE)
		goto free;
	/* Ordinary memory, and so are the mappings of its slices: they ask what this one is. */
	region->memory = memremap(region->start, region->bytes, MEMREMAP_WB);
	error = -ENOMEM;
	if (!region->memory)
		goto free;
	/* Others use such devices too. */
	error = -ENODEV;
	if (memcmp(region->memory, YASMIN_REGION_MAGIC, 8))
		goto unmap;
	region->number = ida_alloc(&numbers, GFP_KERNEL);
	error = region->number;
	if (region->number < 0)
		goto unmap;
	region->device.minor = MISC_DYNAMIC_MINOR;
	region->device.fops = &control_ops;
	region->device.mode = 0600;
	region->device.parent = &pci->dev;
	region->device.name = kasprintf(GFP_KERNEL, "yasmin-region%d", region->number);
	error = -ENOMEM;
	if (!region->device.name)
		goto number;
	pci_set_drvdata(pci, region);
	error = misc_register(&region->device);
	if (error)
		goto name;
	pci_info(pci, "region of %llu MiB at %s\n", region->bytes >> 20, region->device.name);
	return 0;

name:
	kfree(region->device.name);
number:
	ida_free(&numbers, region->number);
unmap:
	memunmap(region->memory);
free:
	kfree(region);
release:
	pci_release_region(pci, BAR);
disable:
	pci_disable_device(pci);
	return error;
}

static void remove(struct pci_dev *pci)
{
	struct region *region = pci_get_drvdata(pci);
	void *memory = region->memory;
	struct slice *slice;

	misc_deregister(&region->device);
	down_write(&region->sem);
	WRITE_ONCE(region->memory, NULL);
	mutex_lock(&region->lock);
	/* A device that was torn out reads as ones. */
	list_for_each_entry(slice, &region->live, link)
		slice_copy(slice, pci_device_is_present(pci) ? memory : NULL);
	mutex_unlock(&region->lock);
	up_write(&region->sem);
	wake_up_interruptible(&region->news);
	memunmap(memory);
	kref_put(&region->refs, region_free);
	pci_release_region(pci, BAR);
	pci_disable_device(pci);
}

static struct pci_driver region_driver = {
	.name = "yasmin-ivshmem",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};

static int __init region_init(void)
{
	return pci_register_driver(&region_driver);
}
module_init(region_init);

static void __exit region_exit(void)
{
	pci_unregister_driver(&region_driver);
	cancel_work_sync(&room_work);
}
module_exit(region_exit);

MODULE_DESCRIPTION("Slices of memory that two KVM guests map, for YASMIN");
MODULE_LICENSE("GPL");
