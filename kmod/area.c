// SPDX-License-Identifier: GPL-2.0
/*
 * Pages shared with a peer. Whoever made them grants them and ends the grants once; the other maps them
 * by references that it has copied out once. Neither reads a reference from shared memory again.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <xen/page.h>

#include "yasmin.h"

/* Granted pages come in runs of so many: 64 KiB. */
#define RUN_ORDER 4

struct totals yasmin_totals;

static int alloc_area(struct area *area, unsigned int count, bool mapped)
{
	*area = (struct area){ .mapped = mapped };
	area->pages = kvcalloc(count, sizeof(*area->pages), GFP_KERNEL);
	area->addresses = kvcalloc(count, sizeof(*area->addresses), GFP_KERNEL);
	area->refs = kvcalloc(count, sizeof(*area->refs), GFP_KERNEL);
	if (mapped)
		area->handles = kvcalloc(count, sizeof(*area->handles), GFP_KERNEL);
	if (!area->pages || !area->addresses || !area->refs || (mapped && !area->handles))
		return -ENOMEM;
	return 0;
}

static void free_area(struct area *area)
{
	kvfree(area->pages);
	kvfree(area->addresses);
	kvfree(area->refs);
	kvfree(area->handles);
	*area = (struct area){};
}

/*
 * Zeroed pages, some of them one after the other, so that copies are long; one at a time if memory is in
 * pieces. Returns the first of 1 << *order. Other users of the machine come first: nobody is killed for a
 * larger ring.
 */
static struct page *make_pages(unsigned int wanted, unsigned int *order)
{
	gfp_t flags = GFP_KERNEL | __GFP_ZERO | __GFP_NORETRY | __GFP_NOWARN;
	struct page *page;

	*order = min_t(unsigned int, ilog2(wanted), RUN_ORDER);
	page = alloc_pages(flags, *order);
	if (page) {
		split_page(page, *order);
		return page;
	}
	*order = 0;
	return alloc_page(flags);
}

/* Grants one page and takes it in. */
static int add_page(struct area *area, domid_t domid, struct page *page)
{
	int ref = gnttab_grant_foreign_access(domid, xen_page_to_gfn(page), 0);

	if (ref < 0)
		return ref;
	area->pages[area->count] = page;
	area->addresses[area->count] = page_address(page);
	area->refs[area->count] = ref;
	area->count++;
	atomic_long_inc(&yasmin_totals.granted_pages);
	return 0;
}

/* Makes `count` zeroed pages and grants them; -ENOMEM, -ENOSPC: there is nothing to undo. */
int yasmin_area_grant(struct area *area, domid_t domid, unsigned int count)
{
	int err = alloc_area(area, count, false);

	while (!err && area->count < count) {
		/* The first page is the header: the rings begin where a run begins. */
		unsigned int i, order, wanted = area->count ? count - area->count : 1;
		struct page *page = make_pages(wanted, &order);

		if (!page)
			err = -ENOMEM;
		for (i = 0; page && i < 1u << order; i++) {
			err = err ?: add_page(area, domid, page + i);
			if (err)
				__free_page(page + i);
		}
	}
	if (err)
		yasmin_area_grant_end(area);
	return err;
}

/* Ends the grants. A page that the peer still maps is freed by the grant table when it lets go. */
void yasmin_area_grant_end(struct area *area)
{
	unsigned int i;

	for (i = 0; i < area->count; i++) {
		gnttab_end_foreign_access(area->refs[i], area->pages[i]);
		atomic_long_dec(&yasmin_totals.granted_pages);
	}
	free_area(area);
}

static int copy_refs(domid_t domid, grant_ref_t indirect, grant_ref_t *refs, unsigned int count)
{
	struct page *page = alloc_page(GFP_KERNEL);
	struct gnttab_copy copy = {
		.source = { .u.ref = indirect, .domid = domid },
		.dest = { .domid = DOMID_SELF },
		.len = count * sizeof(*refs),
		.flags = GNTCOPY_source_gref,
	};

	if (!page)
		return -ENOMEM;
	copy.dest.u.gmfn = xen_page_to_gfn(page);
	gnttab_batch_copy(&copy, 1);
	if (copy.status == GNTST_okay)
		memcpy(refs, page_address(page), count * sizeof(*refs));
	__free_page(page);
	return copy.status == GNTST_okay ? 0 : -EPROTO;
}

/* Copies the list of grants out of the peer's pages, one or two, once. */
int yasmin_area_copy_refs(domid_t domid, const grant_ref_t *indirect, grant_ref_t *refs, unsigned int count)
{
	unsigned int first = min_t(unsigned int, count, WIRE_INDIRECT_REFS);
	int err = copy_refs(domid, indirect[0], refs, first);

	if (!err && count > first)
		err = copy_refs(domid, indirect[1], refs + first, count - first);
	return err;
}

static int by_address(const void *a, const void *b)
{
	const struct page *left = *(struct page **)a, *right = *(struct page **)b;

	return left < right ? -1 : left > right;
}

/* Frames for a peer's pages, in order. To find and sort them costs two thirds of mapping, so some are kept. */
#define KEPT_MAX 4
static struct kept {
	struct page **pages;
	unsigned int count;
} kept[KEPT_MAX];
static unsigned int kept_next;
static DEFINE_SPINLOCK(kept_lock);

static int take_frames(struct area *area, unsigned int count)
{
	struct page **pages = NULL;
	unsigned int i;
	int err;

	spin_lock(&kept_lock);
	for (i = 0; i < KEPT_MAX && !pages; i++) {
		if (kept[i].count != count)
			continue;
		pages = kept[i].pages;
		kept[i] = (struct kept){};
	}
	spin_unlock(&kept_lock);
	if (pages) {
		kvfree(area->pages);
		area->pages = pages;
		return 0;
	}
	err = gnttab_alloc_pages(count, area->pages);
	/* Most lie one after the other then: copies are long. */
	if (!err)
		sort(area->pages, count, sizeof(*area->pages), by_address, NULL);
	return err;
}

/* In place of those that were kept the longest. */
static void keep_frames(struct page **pages, unsigned int count)
{
	struct kept old, *place;

	spin_lock(&kept_lock);
	place = &kept[kept_next++ % KEPT_MAX];
	old = *place;
	*place = (struct kept){ .pages = pages, .count = count };
	spin_unlock(&kept_lock);
	if (old.count)
		gnttab_free_pages(old.count, old.pages);
	kvfree(old.pages);
}

/* The module goes: nothing is mapped any more. */
void yasmin_area_stop(void)
{
	unsigned int i;

	for (i = 0; i < KEPT_MAX; i++)
		keep_frames(NULL, 0);
}

/* Maps a peer's pages; on failure there is nothing to undo. */
int yasmin_area_map(struct area *area, domid_t domid, const grant_ref_t *refs, unsigned int count)
{
	struct gnttab_map_grant_ref *ops = kvcalloc(count, sizeof(*ops), GFP_KERNEL);
	int err = alloc_area(area, count, true);
	unsigned int i;

	if (!ops)
		err = -ENOMEM;
	if (!err)
		err = take_frames(area, count);
	if (err) {
		free_area(area);
		kvfree(ops);
		return err;
	}
	area->count = count;
	for (i = 0; i < count; i++) {
		area->refs[i] = refs[i];
		area->handles[i] = INVALID_GRANT_HANDLE;
		area->addresses[i] = page_address(area->pages[i]);
		gnttab_set_map_op(&ops[i], (unsigned long)area->addresses[i], GNTMAP_host_map, refs[i], domid);
	}
	err = gnttab_map_refs(ops, NULL, area->pages, count);
	for (i = 0; i < count; i++) {
		if (ops[i].status != GNTST_okay) {
			err = err ?: -EPROTO;
			continue;
		}
		area->handles[i] = ops[i].handle;
		atomic_long_inc(&yasmin_totals.mapped_pages);
	}
	kvfree(ops);
	if (err)
		yasmin_area_unmap(area);
	return err;
}

#define UNMAP_BATCH 16

/* Unmaps what is mapped; may be called again. In batches on the stack: it cannot fail for want of memory. */
void yasmin_area_unmap(struct area *area)
{
	struct gnttab_unmap_grant_ref ops[UNMAP_BATCH];
	struct page *pages[UNMAP_BATCH];
	unsigned int i, n = 0, k;
	bool whole = true;

	for (i = 0; i < area->count; i++) {
		if (area->handles[i] != INVALID_GRANT_HANDLE) {
			gnttab_set_unmap_op(&ops[n], (unsigned long)area->addresses[i], GNTMAP_host_map,
					    area->handles[i]);
			pages[n++] = area->pages[i];
		}
		if (n < UNMAP_BATCH && i + 1 < area->count)
			continue;
		if (n && gnttab_unmap_refs(ops, NULL, pages, n)) {
			pr_err("yasmin: mapped pages cannot be unmapped\n");
			whole = false;
		}
		for (k = 0; k < n; k++)
			if (ops[k].status != GNTST_okay) {
				pr_err("yasmin: a mapped page cannot be unmapped: %d\n", ops[k].status);
				whole = false;
			}
		atomic_long_sub(n, &yasmin_totals.mapped_pages);
		n = 0;
	}
	if (area->count > 1 && whole) {
		keep_frames(area->pages, area->count);
		area->pages = NULL;
	} else if (area->count) {
		gnttab_free_pages(area->count, area->pages);
	}
	free_area(area);
}
