// SPDX-License-Identifier: GPL-2.0
/* Event channels. The handler answers each event with xen_irq_lateeoi, so that a storm slows its sender. */
#include <asm/xen/hypercall.h>
#include <xen/events.h>

#include "yasmin.h"

static void bell_close(evtchn_port_t port)
{
	struct evtchn_close close = { .port = port };

	HYPERVISOR_event_channel_op(EVTCHNOP_close, &close);
}

static int bell_handle(struct bell *bell, evtchn_port_t port, irq_handler_t handler, void *data)
{
	int irq = bind_evtchn_to_irqhandler_lateeoi(port, handler, 0, "yasmin", data);

	if (irq < 0) {
		bell_close(port);
		return irq;
	}
	*bell = (struct bell){ .irq = irq, .port = port };
	atomic_long_inc(&yasmin_totals.bells);
	return 0;
}

/* Makes a channel that `domid` may bind. */
int yasmin_bell_offer(struct bell *bell, domid_t domid, irq_handler_t handler, void *data)
{
	struct evtchn_alloc_unbound alloc = { .dom = DOMID_SELF, .remote_dom = domid };
	int err = HYPERVISOR_event_channel_op(EVTCHNOP_alloc_unbound, &alloc);

	return err ?: bell_handle(bell, alloc.port, handler, data);
}

/* Binds the peer's channel; Xen refuses what was not offered to us. */
int yasmin_bell_bind(struct bell *bell, domid_t domid, evtchn_port_t port, irq_handler_t handler, void *data)
{
	struct evtchn_bind_interdomain bind = { .remote_dom = domid, .remote_port = port };
	int err = HYPERVISOR_event_channel_op(EVTCHNOP_bind_interdomain, &bind);

	return err ?: bell_handle(bell, bind.local_port, handler, data);
}

void yasmin_bell_ring(struct bell *bell)
{
	if (bell->irq)
		notify_remote_via_irq(bell->irq);
}

/* After it the handler runs no more. May be called again. */
void yasmin_bell_end(struct bell *bell, void *data)
{
	if (!bell->irq)
		return;
	unbind_from_irqhandler(bell->irq, data);
	bell->irq = 0;
	atomic_long_dec(&yasmin_totals.bells);
}
