// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * Reads the counters from which a TCP connection's initial sequence numbers follow, for the
 * sockets in `marked`, in whatever network namespace they are. The broker puts a socket it was
 * offered into the map, reads, and takes it out again.
 *
 * Compiled by build.rs. The kernel's types are declared with the few fields that are read; the
 * loader moves the accesses to where the running kernel has them (CO-RE), so neither a
 * vmlinux.h nor the kernel's BTF is needed to build.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define CORE __attribute__((preserve_access_index))

/* uapi/linux/bpf.h */
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
static long (*bpf_seq_write)(void *seq, const void *data, u32 len) = (void *)127;
static struct tcp_sock *(*bpf_skc_to_tcp_sock)(void *sk) = (void *)137;

struct tcp_sock {
	u32 rcv_nxt;
	u32 snd_una;
	u64 bytes_received;
	u64 bytes_acked;
} CORE;

struct bpf_iter_meta {
	void *seq;
} CORE;

/* The context of iter/bpf_sk_storage_map; its layout is the kernel's interface. */
struct context {
	struct bpf_iter_meta *meta;
	void *map;
	void *sk;
	u64 *value;
};

/* One for each socket; src/numbers.rs decodes it. */
struct record {
	u64 tag;
	u64 bytes_acked;
	u64 bytes_received;
	u32 snd_una;
	u32 rcv_nxt;
};

struct {
	u32 (*type)[BPF_MAP_TYPE_SK_STORAGE];
	u32 (*map_flags)[BPF_F_NO_PREALLOC];
	int *key;
	u64 *value;
} marked SEC(".maps");

SEC("iter/bpf_sk_storage_map")
int numbers(struct context *ctx)
{
	void *sk = ctx->sk;
	u64 *tag = ctx->value;
	struct record record;
	struct tcp_sock *tcp;

	if (!sk || !tag)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	/* Without the socket's lock: the reader compares several of these. */
	record.tag = *tag;
	record.bytes_acked = tcp->bytes_acked;
	record.bytes_received = tcp->bytes_received;
	record.snd_una = tcp->snd_una;
	record.rcv_nxt = tcp->rcv_nxt;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

/* bpf_seq_write is for programs that are, also, under the GPL. */
char _license[] SEC("license") = "Dual MIT/GPL";
