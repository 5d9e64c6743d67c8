// SPDX-License-Identifier: GPL-2.0
/*
 * yasmin-grant.ko: in dom0, grants memory of its broker's to guests (spec/wire.md section 14).
 *
 * A grant outlives the broker that made it: its memory is pinned until the next one takes it back. Memory that
 * a guest has mapped cannot be taken from it, only be asked for: Xen gives it back when the guest ends.
 */
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <xen/grant_table.h>
#include <xen/page.h>
#include <xen/xen.h>

#include "grant.h"

#define LIST_REFS ARRAY_SIZE(((struct yasmin_grant_list *)0)->refs)

struct granted {
	struct list_head link;
	u64 number;
	domid_t domid;
	unsigned int flags, count, lists;
	/* Of those that are granted; a NULL page was taken back. */
	struct page **pages;
	grant_ref_t *refs;
	struct page **list_pages;
	grant_ref_t *list_refs;
};

static LIST_HEAD(all);
static DEFINE_MUTEX(lock);

static void granted_free(struct granted *granted)
{
	kvfree(granted->pages);
	kvfree(granted->refs);
	kvfree(granted->list_pages);
	kvfree(granted->list_refs);
	kfree(granted);
}

/* How many of these pages the domain still has. */
static unsigned int take_back(struct page **pages, grant_ref_t *refs, unsigned int count, bool are_pinned)
{
	unsigned int i, left = 0;

	for (i = 0; i < count; i++) {
		if (!pages[i])
			continue;
		/* Without a grant: it was never made. */
		if (refs[i] && !gnttab_try_end_foreign_access(refs[i])) {
			left++;
			continue;
		}
		if (are_pinned)
			unpin_user_pages_dirty_lock(&pages[i], 1, true);
		else
			__free_page(pages[i]);
		pages[i] = NULL;
		if (!(i % 1024))
			cond_resched();
	}
	return left;
}

static int granted_end(struct granted *granted)
{
	unsigned int left = take_back(granted->list_pages, granted->list_refs, granted->lists, false);

	left += take_back(granted->pages, granted->refs, granted->count, true);
	return left ? -EBUSY : 0;
}

static int grant_page(struct page *page, domid_t domid, bool is_read_only, grant_ref_t *ref)
{
	int got = gnttab_grant_foreign_access(domid, xen_page_to_gfn(page), is_read_only);

	if (got < 0)
		return got;
	*ref = got;
	return 0;
}

/* The last page first: each names the next one. */
static int make_lists(struct granted *granted)
{
	unsigned int i = granted->lists;

	while (i--) {
		unsigned int first = i * LIST_REFS, n = min_t(unsigned int, granted->count - first, LIST_REFS);
		struct yasmin_grant_list *list;
		int error;

		granted->list_pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!granted->list_pages[i])
			return -ENOMEM;
		list = page_address(granted->list_pages[i]);
		list->next = i + 1 < granted->lists ? granted->list_refs[i + 1] : 0;
		memcpy(list->refs, granted->refs + first, n * sizeof(*list->refs));
		error = grant_page(granted->list_pages[i], granted->domid, true, &granted->list_refs[i]);
		if (error)
			return error;
	}
	return 0;
}

static int granted_fill(struct granted *granted, unsigned long address)
{
	unsigned int i, pinned = 0;
	int error = 0;

	while (pinned < granted->count) {
		/* The caller has it mapped to write, whatever the guest may. */
		int got = pin_user_pages_fast(address + ((unsigned long)pinned << PAGE_SHIFT), granted->count - pinned,
					      FOLL_WRITE | FOLL_LONGTERM, granted->pages + pinned);

		if (got <= 0)
			return got ?: -EFAULT;
		pinned += got;
	}
	for (i = 0; i < granted->count && !error; i++) {
		error = grant_page(granted->pages[i], granted->domid, granted->flags & YASMIN_GRANT_READ_ONLY,
				   &granted->refs[i]);
		if (!(i % 1024))
			cond_resched();
	}
	return error ?: make_lists(granted);
}

/* Under lock. The one of this number, or the next larger one. */
static struct granted *find(domid_t domid, u64 number)
{
	struct granted *granted, *found = NULL;

	list_for_each_entry(granted, &all, link)
		if (granted->domid == domid && granted->number >= number && (!found || granted->number < found->number))
			found = granted;
	return found;
}

static int make(struct yasmin_grant *said)
{
	struct granted *granted;
	u64 count = said->bytes >> PAGE_SHIFT;
	int error = -ENOMEM;

	if (!PAGE_ALIGNED(said->address) || !PAGE_ALIGNED(said->bytes) || !count || count > YASMIN_GRANT_PAGES_MAX ||
	    said->domid >= DOMID_FIRST_RESERVED || said->flags & ~YASMIN_GRANT_READ_ONLY || said->reserved)
		return -EINVAL;
	granted = find(said->domid, said->number);
	if (granted && granted->number == said->number)
		return -EEXIST;
	granted = kzalloc(sizeof(*granted), GFP_KERNEL);
	if (!granted)
		return -ENOMEM;
	granted->number = said->number;
	granted->domid = said->domid;
	granted->flags = said->flags;
	granted->count = count;
	granted->lists = DIV_ROUND_UP(granted->count, LIST_REFS);
	granted->pages = kvcalloc(granted->count, sizeof(*granted->pages), GFP_KERNEL);
	granted->refs = kvcalloc(granted->count, sizeof(*granted->refs), GFP_KERNEL);
	granted->list_pages = kvcalloc(granted->lists, sizeof(*granted->list_pages), GFP_KERNEL);
	granted->list_refs = kvcalloc(granted->lists, sizeof(*granted->list_refs), GFP_KERNEL);
	if (granted->pages && granted->refs && granted->list_pages && granted->list_refs)
		error = granted_fill(granted, said->address);
	if (error) {
		/* The guest was not told of it, but may have guessed a grant. */
		if (granted->pages && granted->refs && granted->list_pages && granted->list_refs && granted_end(granted)) {
			__module_get(THIS_MODULE);
			list_add_tail(&granted->link, &all);
			return error;
		}
		granted_free(granted);
		return error;
	}
	__module_get(THIS_MODULE);
	list_add_tail(&granted->link, &all);
	said->list = granted->list_refs[0];
	return 0;
}

static int end(const struct yasmin_grant *said)
{
	struct granted *granted = find(said->domid, said->number);
	int error;

	if (!granted || granted->number != said->number)
		return -ENOENT;
	error = granted_end(granted);
	if (error)
		return error;
	list_del(&granted->link);
	granted_free(granted);
	module_put(THIS_MODULE);
	return 0;
}

static int next(struct yasmin_grant *said)
{
	struct granted *granted = find(said->domid, said->number);

	if (!granted)
		return -ENOENT;
	*said = (struct yasmin_grant){
		.number = granted->number,
		.bytes = (u64)granted->count << PAGE_SHIFT,
		.domid = granted->domid,
		.flags = granted->flags,
		.list = granted->list_refs[0],
	};
	return 0;
}

static long grant_ioctl(struct file *file, unsigned int what, unsigned long argument)
{
	struct yasmin_grant __user *user = (void __user *)argument;
	struct yasmin_grant said;
	int error;

	if (what != YASMIN_GRANT_MAKE && what != YASMIN_GRANT_END && what != YASMIN_GRANT_NEXT)
		return -ENOTTY;
	if (copy_from_user(&said, user, sizeof(said)))
		return -EFAULT;
	mutex_lock(&lock);
	error = what == YASMIN_GRANT_MAKE ? make(&said) : what == YASMIN_GRANT_END ? end(&said) : next(&said);
	mutex_unlock(&lock);
	if (!error && what != YASMIN_GRANT_END && copy_to_user(user, &said, sizeof(said)))
		return -EFAULT;
	return error;
}

static const struct file_operations grant_ops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = grant_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice grant_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "yasmin-grant",
	.fops = &grant_ops,
	.mode = 0600,
};

static int __init grant_init(void)
{
	return xen_domain() ? misc_register(&grant_device) : -ENODEV;
}
module_init(grant_init);

static void __exit grant_exit(void)
{
	misc_deregister(&grant_device);
}
module_exit(grant_exit);

MODULE_DESCRIPTION("Grants memory of dom0's broker to guests, for YASMIN");
MODULE_LICENSE("GPL");
