// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * Describes the TCP socket that a process has under a number, if it has the expected cookie.
 *
 * It only reads. No file, socket or task is referenced at any time: what holds a reference, and
 * is then stopped or preempted, holds back the connection's end. What is read may be freed and
 * used for something else meanwhile, so the way from the task to the socket is walked again
 * afterwards, and each part names the one before it. A socket has one file from its making to
 * its end, so a file that is the task's before and after, and is that socket's between, was the
 * task's all along, or the connection is gone by now.
 *
 * Compiled by build.rs. The kernel's types are declared with the few fields that are read; the
 * loader moves the accesses to where the running kernel has them (CO-RE), so neither a
 * vmlinux.h nor the kernel's BTF is needed to build.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define CORE __attribute__((preserve_access_index))

/* uapi/linux/bpf.h, auxvec.h, magic.h, stat.h */
#define BPF_MAP_TYPE_ARRAY 2
#define AT_NULL 0
#define AT_SECURE 23
#define SOCKFS_MAGIC 0x534F434B
#define S_IFMT 0170000
#define S_IFSOCK 0140000
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_probe_read_kernel)(void *dst, u32 size, const void *src) = (void *)113;
static long (*bpf_seq_write)(void *seq, const void *data, u32 len) = (void *)127;

typedef struct {
	u32 val;
} kuid_t;

struct cred {
	kuid_t euid;
} CORE;

struct mm_struct {
	unsigned long saved_auxv[2];
} CORE;

struct ns_common {
	u32 inum;
} CORE;

struct pid_namespace {
	struct ns_common ns;
} CORE;

struct upid {
	int nr;
	struct pid_namespace *ns;
} CORE;

struct pid {
	u32 level;
	struct upid numbers[1];
} CORE;

struct super_block {
	unsigned long s_magic;
} CORE;

struct inode {
	u16 i_mode;
	struct super_block *i_sb;
} CORE;

typedef struct {
	long long counter;
} atomic64_t;

typedef struct {
	atomic64_t refcnt;
} file_ref_t;

/* f_count until Linux 6.12, f_ref from then on. */
struct file {
	void *private_data;
	struct inode *f_inode;
	atomic64_t f_count;
	file_ref_t f_ref;
} CORE;

struct fdtable {
	u32 max_fds;
	struct file **fd;
} CORE;

struct files_struct {
	struct fdtable *fdt;
} CORE;

struct task_struct {
	struct mm_struct *mm;
	struct cred *cred;
	struct pid *thread_pid;
	struct files_struct *files;
} CORE;

struct net {
	u64 net_cookie;
} CORE;

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	u8 bytes[16];
};

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	u8 skc_state;
	int skc_bound_dev_if;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
} CORE;

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	u16 sk_type;
	u16 sk_protocol;
} CORE;

struct socket {
	struct file *file;
	struct sock *sk;
} CORE;

struct tcp_sock {
	u32 rcv_nxt;
	u32 snd_una;
	u64 bytes_received;
	u64 bytes_acked;
	u8 syn_data_acked : 1;
} CORE;

struct bpf_iter_meta {
	void *seq;
} CORE;

/* The context of iter/task; its layout is the kernel's interface. */
struct context {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* What to look for; src/sight.rs writes it. */
struct wanted {
	u64 cookie;
	u32 number;
	u32 _pad;
};

struct {
	u32 (*type)[BPF_MAP_TYPE_ARRAY];
	u32 (*max_entries)[1];
	u32 *key;
	struct wanted *value;
} wanted SEC(".maps");

/* What was found; src/sight.rs decodes it. */
struct record {
	u64 cookie;
	u64 netns;
	u64 bytes_acked;
	u64 bytes_received;
	u32 snd_una;
	u32 rcv_nxt;
	u32 euid;
	u32 pid_namespace;
	u32 bound_device;
	u16 family;
	u16 type;
	u16 protocol;
	u16 local_port; /* this machine's byte order */
	u16 peer_port; /* the network's */
	u8 state;
	u8 syn_data;
	u8 local[16];
	u8 peer[16];
	u64 secure;
	u64 references; /* to the file; 0: not known */
};

/* 0 where it cannot be read. */
#define READ(pointer, field)                                                           \
	({                                                                             \
		__typeof__((pointer)->field) value;                                    \
		__builtin_memset(&value, 0, sizeof(value));                            \
		bpf_probe_read_kernel(&value, sizeof(value),                           \
				      __builtin_preserve_access_index(&(pointer)->field)); \
		value;                                                                 \
	})
/* enum bpf_field_info_kind */
#define FIELD(field, kind) __builtin_preserve_field_info(field, kind)
#define BYTE_OFFSET 0
#define BYTE_SIZE 1
#define EXISTS 2
#define LSHIFT_U64 4
#define RSHIFT_U64 5

static __attribute__((always_inline)) struct file *file_at(struct task_struct *task, u32 number)
{
	struct files_struct *files = READ(task, files);
	struct fdtable *fdt = READ(files, fdt);
	struct file *file = 0;

	if (!files || !fdt || number >= READ(fdt, max_fds))
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), READ(fdt, fd) + number);
	/* A task that ends gives its table away. */
	return READ(task, files) == files ? file : 0;
}

/* Whether it was started with more rights than whoever started it: AT_SECURE. */
static __attribute__((always_inline)) u64 secure(struct task_struct *task)
{
	struct mm_struct *mm = READ(task, mm);
	const void *at = __builtin_preserve_access_index(&mm->saved_auxv);
	u64 pair[2];
	u32 i;

	if (!mm)
		return 1;
	for (i = 0; i < 64; i++) {
		if (bpf_probe_read_kernel(pair, sizeof(pair), at + i * sizeof(pair)))
			return 1;
		if (pair[0] == AT_SECURE)
			return pair[1];
		if (pair[0] == AT_NULL)
			return 1;
	}
	return 1;
}

static __attribute__((always_inline)) u32 pid_namespace(struct task_struct *task)
{
	struct pid *pid = READ(task, thread_pid);
	u32 level = READ(pid, level) & 31;
	struct pid_namespace *ns = 0;

	bpf_probe_read_kernel(&ns, sizeof(ns),
			      (void *)__builtin_preserve_access_index(&pid->numbers[0].ns) +
				      level * sizeof(struct upid));
	return ns ? READ(ns, ns.inum) : 0;
}

static __attribute__((always_inline)) u8 syn_data(struct tcp_sock *tcp)
{
	u64 value = 0;
	u32 size = FIELD(tcp->syn_data_acked, BYTE_SIZE);

	if (size > sizeof(value))
		return 1;
	bpf_probe_read_kernel(&value, size, (void *)tcp + FIELD(tcp->syn_data_acked, BYTE_OFFSET));
	value <<= FIELD(tcp->syn_data_acked, LSHIFT_U64);
	return value >> FIELD(tcp->syn_data_acked, RSHIFT_U64);
}

static __attribute__((always_inline)) u64 references(struct file *file)
{
	if (FIELD(file->f_count, EXISTS))
		return READ(file, f_count.counter);
	/* It is one less than there are: FILE_REF_ONEREF is 0. */
	if (FIELD(file->f_ref, EXISTS))
		return (u64)READ(file, f_ref.refcnt.counter) + 1;
	return 0;
}

SEC("iter/task")
int describe(struct context *ctx)
{
	struct task_struct *task = ctx->task;
	struct record record;
	struct wanted *look;
	struct socket *socket;
	struct inode *inode;
	struct file *file;
	struct tcp_sock *tcp;
	struct sock *sk;
	struct super_block *sb;
	struct net *net;
	struct cred *cred;
	u32 key = 0;

	look = bpf_map_lookup_elem(&wanted, &key);
	if (!task || !look)
		return 0;
	file = file_at(task, look->number);
	if (!file)
		return 0;
	inode = READ(file, f_inode);
	sb = READ(inode, i_sb);
	if (!inode || !sb || (READ(inode, i_mode) & S_IFMT) != S_IFSOCK ||
	    READ(sb, s_magic) != SOCKFS_MAGIC)
		return 0;
	socket = READ(file, private_data);
	sk = READ(socket, sk);
	if (!socket || !sk)
		return 0;

	__builtin_memset(&record, 0, sizeof(record));
	record.cookie = READ(sk, __sk_common.skc_cookie.counter);
	record.type = READ(sk, sk_type);
	record.protocol = READ(sk, sk_protocol);
	record.family = READ(sk, __sk_common.skc_family);
	record.state = READ(sk, __sk_common.skc_state);
	record.bound_device = READ(sk, __sk_common.skc_bound_dev_if);
	record.local_port = READ(sk, __sk_common.skc_num);
	record.peer_port = READ(sk, __sk_common.skc_dport);
	net = READ(sk, __sk_common.skc_net.net);
	record.netns = READ(net, net_cookie);
	if (record.family == 2) {
		*(u32 *)&record.local = READ(sk, __sk_common.skc_rcv_saddr);
		*(u32 *)&record.peer = READ(sk, __sk_common.skc_daddr);
	} else {
		*(struct in6_addr *)&record.local = READ(sk, __sk_common.skc_v6_rcv_saddr);
		*(struct in6_addr *)&record.peer = READ(sk, __sk_common.skc_v6_daddr);
	}
	/* Of another kind of socket these are any bytes; the reader looks at the kind first. */
	tcp = (struct tcp_sock *)sk;
	/* Without the socket's lock: the reader compares several of these. */
	record.bytes_acked = READ(tcp, bytes_acked);
	record.bytes_received = READ(tcp, bytes_received);
	record.snd_una = READ(tcp, snd_una);
	record.rcv_nxt = READ(tcp, rcv_nxt);
	record.syn_data = syn_data(tcp);
	record.references = references(file);

	/* All that was read is the task's: the way once more, from its end. */
	if (record.cookie != look->cookie || !record.cookie ||
	    (u64)READ(sk, __sk_common.skc_cookie.counter) != record.cookie ||
	    READ(sk, sk_socket) != socket || READ(socket, sk) != sk ||
	    READ(socket, file) != file || file_at(task, look->number) != file)
		return 0;

	cred = READ(task, cred);
	record.euid = READ(cred, euid.val);
	record.pid_namespace = pid_namespace(task);
	record.secure = secure(task);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

/* bpf_seq_write and bpf_probe_read_kernel are for programs that are, also, under the GPL. */
char _license[] SEC("license") = "Dual MIT/GPL";
