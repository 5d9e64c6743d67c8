// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of Xen guests: a device "yasmin-region" in XenStore, whose other end dom0's broker keeps
 * (spec/wire.md section 14). dom0 has granted the pages, and lists the grants in pages that it has granted, too.
 *
 * Programs of a PV guest can map another domain's page only by a hypercall for each page and program,
 * and their children not at all: such guests get none.
 */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <xen/xen.h>

#include "backing.h"

#if IS_ENABLED(CONFIG_XEN)

#include <xen/grant_table.h>
#include <xen/page.h>
#include <xen/xenbus.h>

#include "grant.h"

#define UNMAP_BATCH 16

struct front {
	struct page **pages;
	grant_handle_t *handles;
	unsigned int count;
	/* NULL: not there yet, or no more. */
	struct region *region;
};

/* One page of the list, copied once. */
static int copy_list(domid_t domid, grant_ref_t ref, struct yasmin_grant_list *list)
{
	struct gnttab_copy copy = {
		.source = { .u.ref = ref, .domid = domid },
		.dest = { .u.gmfn = virt_to_gfn(list), .domid = DOMID_SELF },
		.len = PAGE_SIZE,
		.flags = GNTCOPY_source_gref,
	};

	gnttab_batch_copy(&copy, 1);
	return copy.status == GNTST_okay ? 0 : -EPROTO;
}

static int copy_refs(domid_t domid, grant_ref_t next, grant_ref_t *refs, unsigned int count)
{
	struct yasmin_grant_list *list = (void *)__get_free_page(GFP_KERNEL);
	int error = list ? 0 : -ENOMEM;

	while (!error && count) {
		unsigned int n = min_t(unsigned int, count, ARRAY_SIZE(list->refs));

		error = next ? copy_list(domid, next, list) : -EPROTO;
		if (error)
			break;
		memcpy(refs, list->refs, n * sizeof(*refs));
		next = list->next;
		refs += n;
		count -= n;
	}
	free_page((unsigned long)list);
	return error;
}

/* What is mapped, and the frames. In batches on the stack: it cannot fail for want of memory. */
static void unmap(struct xenbus_device *dev, struct front *front)
{
	struct gnttab_unmap_grant_ref ops[UNMAP_BATCH];
	struct page *pages[UNMAP_BATCH];
	unsigned int i, k, n = 0;

	for (i = 0; i < front->count; i++) {
		if (front->handles[i] != INVALID_GRANT_HANDLE) {
			gnttab_set_unmap_op(&ops[n], (unsigned long)page_address(front->pages[i]),
					    GNTMAP_host_map, front->handles[i]);
			pages[n++] = front->pages[i];
		}
		if (n < UNMAP_BATCH && i + 1 < front->count)
			continue;
		if (n && gnttab_unmap_refs(ops, NULL, pages, n))
			dev_err(&dev->dev, "pages cannot be unmapped\n");
		for (k = 0; k < n; k++)
			if (ops[k].status != GNTST_okay)
				dev_err(&dev->dev, "a page cannot be unmapped: %d\n", ops[k].status);
		n = 0;
	}
	if (front->count)
		gnttab_free_pages(front->count, front->pages);
	kvfree(front->pages);
	kvfree(front->handles);
	*front = (struct front){};
}

static int map(struct xenbus_device *dev, struct front *front, grant_ref_t list, unsigned int count, bool is_read_only)
{
	u32 flags = GNTMAP_host_map | (is_read_only ? GNTMAP_readonly : 0);
	struct gnttab_map_grant_ref *ops = kvcalloc(count, sizeof(*ops), GFP_KERNEL);
	grant_ref_t *refs = kvcalloc(count, sizeof(*refs), GFP_KERNEL);
	unsigned int i;
	int error = -ENOMEM;

	front->pages = kvcalloc(count, sizeof(*front->pages), GFP_KERNEL);
	front->handles = kvcalloc(count, sizeof(*front->handles), GFP_KERNEL);
	if (ops && refs && front->pages && front->handles)
		error = copy_refs(dev->otherend_id, list, refs, count);
	error = error ?: gnttab_alloc_pages(count, front->pages);
	if (error)
		goto out;
	front->count = count;
	for (i = 0; i < count; i++) {
		front->handles[i] = INVALID_GRANT_HANDLE;
		gnttab_set_map_op(&ops[i], (unsigned long)page_address(front->pages[i]), flags, refs[i],
				  dev->otherend_id);
	}
	error = gnttab_map_refs(ops, NULL, front->pages, count);
	for (i = 0; i < count; i++) {
		if (ops[i].status == GNTST_okay)
			front->handles[i] = ops[i].handle;
		else
			error = error ?: -EPROTO;
	}
out:
	kvfree(ops);
	kvfree(refs);
	if (error)
		unmap(dev, front);
	return error;
}

static void connect(struct xenbus_device *dev, struct front *front)
{
	unsigned int list, count, is_read_only;
	struct backing backing;
	int error;

	if (xen_pv_domain()) {
		xenbus_dev_fatal(dev, -EOPNOTSUPP, "a PV guest's programs cannot map other domains' memory; PVH and HVM guests can");
		return;
	}
	error = xenbus_gather(XBT_NIL, dev->otherend, "list", "%u", &list, "pages", "%u", &count,
			      "read-only", "%u", &is_read_only, NULL);

	if (error) {
		xenbus_dev_fatal(dev, error, "reading %s", dev->otherend);
		return;
	}
	if (!count || count > YASMIN_GRANT_PAGES_MAX) {
		xenbus_dev_fatal(dev, -EINVAL, "%u pages", count);
		return;
	}
	error = map(dev, front, list, count, is_read_only);
	if (error) {
		xenbus_dev_fatal(dev, error, "mapping %u pages", count);
		return;
	}
	backing = (struct backing){
		.pages = front->pages,
		.bytes = (u64)count << PAGE_SHIFT,
		.is_read_only = is_read_only,
	};
	front->region = yasmin_region_add(&dev->dev, &backing);
	if (IS_ERR(front->region)) {
		error = PTR_ERR(front->region);
		unmap(dev, front);
		xenbus_dev_fatal(dev, error, "making its device");
		return;
	}
	xenbus_switch_state(dev, XenbusStateConnected);
}

static void let_go(struct xenbus_device *dev)
{
	struct front *front = dev_get_drvdata(&dev->dev);

	if (!front->region)
		return;
	yasmin_region_remove(front->region, true);
	unmap(dev, front);
}

static int front_probe(struct xenbus_device *dev, const struct xenbus_device_id *id)
{
	struct front *front;

	front = kzalloc(sizeof(*front), GFP_KERNEL);
	if (!front)
		return -ENOMEM;
	dev_set_drvdata(&dev->dev, front);
	return 0;
}

static void otherend_changed(struct xenbus_device *dev, enum xenbus_state state)
{
	struct front *front = dev_get_drvdata(&dev->dev);

	switch (state) {
	case XenbusStateConnected:
		if (!front->region && dev->state == XenbusStateInitialising)
			connect(dev, front);
		break;
	case XenbusStateClosing:
	case XenbusStateClosed:
		let_go(dev);
		if (dev->state != XenbusStateClosed)
			xenbus_frontend_closed(dev);
		break;
	default:
		break;
	}
}

static void front_remove(struct xenbus_device *dev)
{
	let_go(dev);
	kfree(dev_get_drvdata(&dev->dev));
}

/* Grants do not go with a guest that is saved: who has a segment then gets SIGBUS. */
static int front_suspend(struct xenbus_device *dev)
{
	let_go(dev);
	return 0;
}

static const struct xenbus_device_id front_ids[] = {
	{ "yasmin-region" },
	{ "" },
};
MODULE_DEVICE_TABLE(xen, front_ids);
MODULE_ALIAS("xen:yasmin-region");

static struct xenbus_driver front_driver = {
	.ids = front_ids,
	.not_essential = true,
	.probe = front_probe,
	.remove = front_remove,
	.suspend = front_suspend,
	.otherend_changed = otherend_changed,
};

int yasmin_xenregion_start(void)
{
	return xen_domain() ? xenbus_register_frontend(&front_driver) : 0;
}

void yasmin_xenregion_stop(void)
{
	if (xen_domain())
		xenbus_unregister_driver(&front_driver);
}

#else

int yasmin_xenregion_start(void)
{
	return 0;
}

void yasmin_xenregion_stop(void)
{
}

#endif
