// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/*
 * Describes the TCP socket that a process has under a number, if it has the expected cookie, or
 * counts the references to the epoll set that it has there.
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
/* uapi/linux/if.h; drivers/net/veth.c, linux/netdevice.h (NETDEV_ALIGN). */
#define IFF_LOOPBACK 8
#define VETH 0x68746576 /* "veth" */
#define PRIV_ALIGN 32
/* Addresses of one device that are looked at. */
#define ADDRESSES 8
#define SOCKFS_MAGIC 0x534F434B
#define ANON_INODE_FS_MAGIC 0x09041934
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

struct list_head {
	struct list_head *next;
};

struct in_ifaddr {
	struct in_ifaddr *ifa_next;
	u32 ifa_local;
} CORE;

struct in_device {
	struct in_ifaddr *ifa_list;
} CORE;

struct inet6_ifaddr {
	struct in6_addr addr;
	struct list_head if_list;
} CORE;

struct inet6_dev {
	struct list_head addr_list;
} CORE;

struct rtnl_link_ops {
	const char *kind;
} CORE;

/* What belongs to its kind is at priv from Linux 6.10 on, and before behind it. */
struct net_device {
	u32 flags;
	struct rtnl_link_ops *rtnl_link_ops;
	possible_net_t nd_net;
	struct in_device *ip_ptr;
	struct inet6_dev *ip6_ptr;
	u8 priv[0];
} CORE;

struct dst_entry {
	struct net_device *dev;
} CORE;

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
	struct dst_entry *sk_dst_cache;
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
	u64 beyond; /* the peer's namespace; 0: not known */
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
#define TYPE_SIZE(type) __builtin_preserve_type_info(*(type *)0, 1)
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

static __attribute__((always_inline)) u64 cookie_of(struct net_device *dev)
{
	struct net *net = READ(dev, nd_net.net);

	return READ(net, net_cookie);
}

static __attribute__((always_inline)) int has_v4(struct net_device *dev, u32 address)
{
	struct in_device *in = READ(dev, ip_ptr);
	struct in_ifaddr *one = in ? READ(in, ifa_list) : 0;
	u32 i;

	for (i = 0; i < ADDRESSES && one; i++) {
		if (READ(one, ifa_local) == address)
			return 1;
		one = READ(one, ifa_next);
	}
	return 0;
}

static __attribute__((always_inline)) int has_v6(struct net_device *dev, const u64 *address)
{
	struct inet6_dev *in;
	struct list_head *one;
	struct inet6_ifaddr *entry;
	u64 its[2];
	u32 i;

	if (!FIELD(dev->ip6_ptr, EXISTS))
		return 0;
	in = READ(dev, ip6_ptr);
	one = in ? READ(in, addr_list.next) : 0;
	for (i = 0; i < ADDRESSES && one; i++) {
		entry = (void *)one - FIELD(entry->if_list, BYTE_OFFSET);
		bpf_probe_read_kernel(its, sizeof(its),
				      __builtin_preserve_access_index(&entry->addr));
		if (its[0] == address[0] && its[1] == address[1])
			return 1;
		bpf_probe_read_kernel(&one, sizeof(one), one);
	}
	return 0;
}

/*
 * The namespace in which the peer has to be, if nobody on the way changes addresses: what goes
 * through loopback stays here, and what goes into a veth whose other end has the peer's own address
 * is delivered there. 0: it cannot be told.
 */
static __attribute__((always_inline)) u64 beyond(struct sock *sk, u16 family)
{
	struct dst_entry *dst = READ(sk, sk_dst_cache);
	struct net_device *dev = dst ? READ(dst, dev) : 0, *other = 0;
	struct rtnl_link_ops *ops;
	u64 v6[2] = {};
	u32 kind[2] = {};

	if (!dev)
		return 0;
	if (READ(dev, flags) & IFF_LOOPBACK)
		return cookie_of(dev);
	ops = READ(dev, rtnl_link_ops);
	if (!ops || bpf_probe_read_kernel(kind, 5, READ(ops, kind)) || kind[0] != VETH || kind[1])
		return 0;
	/* The first member of struct veth_priv, whose types a module may keep to itself. */
	if (FIELD(dev->priv, EXISTS))
		bpf_probe_read_kernel(&other, sizeof(other), (void *)dev + FIELD(dev->priv, BYTE_OFFSET));
	else
		bpf_probe_read_kernel(&other, sizeof(other),
				      (void *)dev + ((TYPE_SIZE(struct net_device) + PRIV_ALIGN - 1) &
						     ~(u64)(PRIV_ALIGN - 1)));
	if (!other)
		return 0;
	bpf_probe_read_kernel(v6, sizeof(v6),
			      __builtin_preserve_access_index(&sk->__sk_common.skc_v6_daddr));
	/* The second half of ::ffff:0:0/96 is IPv4. */
	if (family == 2 || (!v6[0] && (u32)v6[1] == 0xffff0000)) {
		if (!has_v4(other, READ(sk, __sk_common.skc_daddr)))
			return 0;
	} else if (!has_v6(other, v6)) {
		return 0;
	}
	return cookie_of(other);
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
	record.beyond = beyond(sk, record.family);

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

/* How many references there are to the file, if it is of the kind that epoll sets are. */
SEC("iter/task")
int count(struct context *ctx)
{
	struct task_struct *task = ctx->task;
	struct record record;
	struct wanted *look;
	struct super_block *sb;
	struct inode *inode;
	struct file *file;
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
	if (!inode || !sb || READ(sb, s_magic) != ANON_INODE_FS_MAGIC)
		return 0;
	__builtin_memset(&record, 0, sizeof(record));
	record.references = references(file);
	if (file_at(task, look->number) != file)
		return 0;
	cred = READ(task, cred);
	record.euid = READ(cred, euid.val);
	record.secure = secure(task);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

/* bpf_seq_write and bpf_probe_read_kernel are for programs that are, also, under the GPL. */
char _license[] SEC("license") = "Dual MIT/GPL";
