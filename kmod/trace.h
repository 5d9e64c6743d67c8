/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints: control messages, bells, events and breaches, under events/yasmin in tracefs. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM yasmin

#if !defined(YASMIN_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define YASMIN_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(yasmin_message,
	TP_PROTO(unsigned int domid, bool sent, u8 kind, u8 role, u32 id),
	TP_ARGS(domid, sent, kind, role, id),
	TP_STRUCT__entry(
		__field(unsigned int, domid)
		__field(bool, sent)
		__field(u8, kind)
		__field(u8, role)
		__field(u32, id)),
	TP_fast_assign(
		__entry->domid = domid;
		__entry->sent = sent;
		__entry->kind = kind;
		__entry->role = role;
		__entry->id = id;),
	TP_printk("domain %u %s %s id %u role %u", __entry->domid, __entry->sent ? "to" : "from",
		  __print_symbolic(__entry->kind, { 1, "CONNECT" }, { 2, "ACCEPTED" }, { 3, "REFUSED" },
				   { 4, "SHUTDOWN" }, { 5, "RESET" }, { 6, "RELEASE" }, { 7, "DROP" },
				   { 8, "TIGHT" }),
		  __entry->id, __entry->role)
);

DECLARE_EVENT_CLASS(yasmin_conn,
	TP_PROTO(unsigned int domid, u32 id, bool connector),
	TP_ARGS(domid, id, connector),
	TP_STRUCT__entry(
		__field(unsigned int, domid)
		__field(u32, id)
		__field(bool, connector)),
	TP_fast_assign(
		__entry->domid = domid;
		__entry->id = id;
		__entry->connector = connector;),
	TP_printk("domain %u id %u %s", __entry->domid, __entry->id,
		  __entry->connector ? "connector" : "acceptor")
);

DEFINE_EVENT(yasmin_conn, yasmin_bell,
	TP_PROTO(unsigned int domid, u32 id, bool connector), TP_ARGS(domid, id, connector));
DEFINE_EVENT(yasmin_conn, yasmin_event,
	TP_PROTO(unsigned int domid, u32 id, bool connector), TP_ARGS(domid, id, connector));
DEFINE_EVENT(yasmin_conn, yasmin_breach,
	TP_PROTO(unsigned int domid, u32 id, bool connector), TP_ARGS(domid, id, connector));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
