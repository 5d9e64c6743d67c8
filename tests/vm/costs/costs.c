// SPDX-License-Identifier: GPL-2.0
/*
 * What the steps of a path cost in a guest, said once in the kernel's log when it is loaded: a hypercall that
 * does nothing, an event channel's event to ourselves (hypercall, upcall, handler), and a copy.
 */
#include <linux/interrupt.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <asm/xen/hypercall.h>
#include <xen/events.h>
#include <xen/interface/event_channel.h>
#include <xen/interface/version.h>

#define TIMES 10000
#define COPY_BYTES (64 * 1024)
#define COPIES 1000

static unsigned int events;

static irqreturn_t handler(int irq, void *data)
{
	WRITE_ONCE(events, events + 1);
	return IRQ_HANDLED;
}

static void say(const char *what, u64 started, unsigned int times)
{
	pr_info("costs: %s %llu ns\n", what, div_u64(ktime_get_ns() - started, times));
}

static void hypercalls(void)
{
	u64 started = ktime_get_ns();
	int i;

	for (i = 0; i < TIMES; i++)
		HYPERVISOR_xen_version(XENVER_version, NULL);
	say("hypercall", started, TIMES);
}

static int interrupts(void)
{
	struct evtchn_alloc_unbound alloc = { .dom = DOMID_SELF, .remote_dom = DOMID_SELF };
	struct evtchn_bind_interdomain bind = { .remote_dom = DOMID_SELF };
	struct evtchn_close close;
	struct evtchn_send send;
	int irq, i, err = HYPERVISOR_event_channel_op(EVTCHNOP_alloc_unbound, &alloc);
	u64 started;

	if (err)
		return err;
	close.port = send.port = alloc.port;
	bind.remote_port = alloc.port;
	err = HYPERVISOR_event_channel_op(EVTCHNOP_bind_interdomain, &bind);
	if (err)
		goto out;
	irq = bind_evtchn_to_irqhandler(bind.local_port, handler, 0, "costs", &events);
	if (irq < 0) {
		err = irq;
		goto out;
	}
	started = ktime_get_ns();
	for (i = 0; i < TIMES; i++) {
		HYPERVISOR_event_channel_op(EVTCHNOP_send, &send);
		while (READ_ONCE(events) <= i)
			cpu_relax();
	}
	say("event", started, TIMES);
	unbind_from_irqhandler(irq, &events);
out:
	HYPERVISOR_event_channel_op(EVTCHNOP_close, &close);
	return err;
}

static int copies(void)
{
	void *from = kzalloc(COPY_BYTES, GFP_KERNEL), *to = kzalloc(COPY_BYTES, GFP_KERNEL);
	int i, err = from && to ? 0 : -ENOMEM;
	u64 started = ktime_get_ns();

	for (i = 0; i < COPIES && !err; i++) {
		memcpy(to, from, COPY_BYTES);
		barrier_data(to);
	}
	say("copy-of-64-KiB", started, COPIES);
	kfree(from);
	kfree(to);
	return err;
}

static int __init costs_init(void)
{
	hypercalls();
	return interrupts() ?: copies();
}

static void __exit costs_exit(void)
{
}

module_init(costs_init);
module_exit(costs_exit);
MODULE_DESCRIPTION("what hypercalls, events and copies cost in a guest");
MODULE_LICENSE("GPL");
