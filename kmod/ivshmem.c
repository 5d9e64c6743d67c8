// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of KVM guests. The host's broker plugs an ivshmem-plain device, and its memory is a region. The
 * driver binds the device if what lies there is one: others use such devices, too.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "backing.h"

#define BAR 2

struct plugged {
	struct region *region;
	void *memory;
};

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
	struct plugged *plugged;
	struct backing backing;
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
	backing = (struct backing){
		.start = pci_resource_start(pci, BAR),
		.bytes = pci_resource_len(pci, BAR),
	};
	error = -ENODEV;
	if (!PAGE_ALIGNED(backing.start))
		goto release;
	/* Ordinary memory, and so are the mappings of its slices: they ask what this one is. */
	backing.base = memremap(backing.start, backing.bytes, MEMREMAP_WB);
	error = -ENOMEM;
	if (!backing.base)
		goto release;
	/* Others use such devices too: -ENODEV. */
	plugged = kzalloc(sizeof(*plugged), GFP_KERNEL);
	if (!plugged)
		goto unmap;
	plugged->memory = backing.base;
	plugged->region = yasmin_region_add(&pci->dev, &backing);
	error = PTR_ERR_OR_ZERO(plugged->region);
	if (error)
		goto free;
	pci_set_drvdata(pci, plugged);
	return 0;

free:
	kfree(plugged);
unmap:
	memunmap(backing.base);
release:
	pci_release_region(pci, BAR);
disable:
	pci_disable_device(pci);
	return error;
}

static void remove(struct pci_dev *pci)
{
	struct plugged *plugged = pci_get_drvdata(pci);

	yasmin_region_remove(plugged->region, pci_device_is_present(pci));
	memunmap(plugged->memory);
	kfree(plugged);
	pci_release_region(pci, BAR);
	pci_disable_device(pci);
}

static struct pci_driver region_driver = {
	.name = "yasmin-ivshmem",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};

int yasmin_ivshmem_start(void)
{
	return pci_register_driver(&region_driver);
}

void yasmin_ivshmem_stop(void)
{
	pci_unregister_driver(&region_driver);
	cancel_work_sync(&room_work);
}
