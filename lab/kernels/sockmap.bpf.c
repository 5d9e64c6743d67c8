// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/* What people load today to keep TCP of one machine off the network stack: every connection of
 * the programs in a control group goes into a map by its addresses, and what is sent on one is
 * put into the receive queue of the socket that mirrors it. `yasmin lab peers` measures it.
 *
 * Declared here with the few fields that are used, so that no kernel headers are needed.
 */
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define FIELD(name, value) int (*name)[value]

/* uapi/linux/bpf.h, linux/socket.h */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_SOCKHASH 18
#define BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB 4
#define BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB 5
#define BPF_F_INGRESS 1
#define AF_INET 2
#define SK_PASS 1

struct bpf_sock_ops {
	u32 op;
	u32 args[4];
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port; /* network byte order */
	u32 local_port;  /* host byte order */
};

struct sk_msg_md {
	u64 data;
	u64 data_end;
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
	u32 size;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_sock_hash_update)(struct bpf_sock_ops *ops, void *map, void *key, u64 flags) = (void *)70;
static long (*bpf_msg_redirect_hash)(struct sk_msg_md *msg, void *map, void *key, u64 flags) = (void *)71;

struct ends {
	u32 local_ip, peer_ip;
	u32 local_port, peer_port; /* host byte order */
};

struct {
	FIELD(type, BPF_MAP_TYPE_SOCKHASH);
	FIELD(max_entries, 65536);
	struct ends (*key);
	u32 (*value);
} sockets SEC(".maps");

/* Bytes that were put into a peer's queue. */
struct {
	FIELD(type, BPF_MAP_TYPE_ARRAY);
	FIELD(max_entries, 1);
	u32 (*key);
	u64 (*value);
} redirected SEC(".maps");

SEC("sockops")
int connected(struct bpf_sock_ops *ops)
{
	struct ends ends;

	if (ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	if (ops->family != AF_INET)
		return 1;
	ends.local_ip = ops->local_ip4;
	ends.peer_ip = ops->remote_ip4;
	ends.local_port = ops->local_port;
	ends.peer_port = __builtin_bswap32(ops->remote_port);
	bpf_sock_hash_update(ops, &sockets, &ends, 0);
	return 1;
}

SEC("sk_msg")
int sends(struct sk_msg_md *msg)
{
	u32 first = 0;
	struct ends mirror;
	u64 *bytes;

	if (msg->family != AF_INET)
		return SK_PASS;
	mirror.local_ip = msg->remote_ip4;
	mirror.peer_ip = msg->local_ip4;
	mirror.local_port = __builtin_bswap32(msg->remote_port);
	mirror.peer_port = msg->local_port;
	/* Where nobody mirrors it, its way stays TCP's. */
	if (bpf_msg_redirect_hash(msg, &sockets, &mirror, BPF_F_INGRESS) != SK_PASS)
		return SK_PASS;
	bytes = bpf_map_lookup_elem(&redirected, &first);
	if (bytes)
		__sync_fetch_and_add(bytes, msg->size);
	return SK_PASS;
}

static const char licence[] SEC("license") = "GPL";
