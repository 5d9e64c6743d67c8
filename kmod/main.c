// SPDX-License-Identifier: GPL-2.0
/* yasmin.ko: an AF_VSOCK transport between guests of one Xen host. Load, unload, parameters. */
#include <linux/log2.h>
#include <linux/module.h>
#include <xen/xen.h>

#include "yasmin.h"

unsigned int yasmin_ring_pages = 128;
unsigned int yasmin_max_connections = 1024;
unsigned int yasmin_kept_channels = 4;
unsigned int yasmin_linger_us = 20;

static int set_ring_pages(const char *value, const struct kernel_param *param)
{
	unsigned int pages;
	int err = kstrtouint(value, 0, &pages);

	if (err)
		return err;
	if (!is_power_of_2(pages) || pages > wire_class_pages(WIRE_BELL_MAX_CLASS))
		return -EINVAL;
	return param_set_uint(value, param);
}

static const struct kernel_param_ops ring_pages_ops = {
	.set = set_ring_pages,
	.get = param_get_uint,
};
module_param_cb(ring_pages, &ring_pages_ops, &yasmin_ring_pages, 0644);
MODULE_PARM_DESC(ring_pages, "pages for each direction of a connection: 1, 2, 4 to 512 (default 128: 512 KiB)");
module_param_named(max_connections, yasmin_max_connections, uint, 0644);
MODULE_PARM_DESC(max_connections, "connections accepted from one peer at a time");
module_param_named(kept_channels, yasmin_kept_channels, uint, 0644);
MODULE_PARM_DESC(kept_channels, "channels kept for the next connections with a peer, on each side (default 4; 0: none)");
module_param_named(linger_us, yasmin_linger_us, uint, 0644);
MODULE_PARM_DESC(linger_us, "how long a receiver looks on, yielding, before it sleeps (default 20; 0: not at all)");

static int __init yasmin_init(void)
{
	int err;

	if (!xen_domain())
		return -ENODEV;
	yasmin_peer_queue = alloc_workqueue("yasmin", WQ_UNBOUND, 0);
	if (!yasmin_peer_queue)
		return -ENOMEM;
	yasmin_stats_start();
	err = yasmin_spare_start();
	if (err)
		goto no_spare;
	err = yasmin_directory_start();
	if (err)
		goto no_directory;
	/* The role of a guest: all numbers but our own go to us. vsock_loopback serves our own. */
	err = vsock_core_register(&yasmin_transport, VSOCK_TRANSPORT_F_G2H);
	if (err)
		goto no_transport;
	return 0;

no_transport:
	yasmin_directory_stop();
no_directory:
	yasmin_spare_stop();
no_spare:
	yasmin_stats_stop();
	destroy_workqueue(yasmin_peer_queue);
	yasmin_area_stop();
	return err;
}

/* No socket uses us any more: each holds a reference to the module. */
static void __exit yasmin_exit(void)
{
	vsock_core_unregister(&yasmin_transport);
	yasmin_spare_stop();
	yasmin_directory_stop();
	yasmin_stats_stop();
	destroy_workqueue(yasmin_peer_queue);
	yasmin_area_stop();
}

module_init(yasmin_init);
module_exit(yasmin_exit);

MODULE_DESCRIPTION("AF_VSOCK between guests of one Xen host, through shared rings");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_SOFTDEP("pre: vsock_loopback");
MODULE_ALIAS_NETPROTO(PF_VSOCK);
