"""Linux's own socket and epoll selftests, from Debian's linux-source-6.1."""

import re
import subprocess

import fetch

FOLDERS = ["net", "filesystems/epoll", "*.h"]
PATHS = [f"tools/testing/selftests/{folder}" for folder in FOLDERS]

PROGRAMS = [
    "net/bind_bhash",
    "net/msg_zerocopy",
    "net/reuseaddr_conflict",
    "net/reuseaddr_ports_exhausted",
    "net/reuseport_addr_any",
    "net/reuseport_bpf",
    "net/reuseport_bpf_cpu",
    "net/reuseport_dualstack",
    "net/rxtimestamp",
    "net/sk_bind_sendto_listen",
    "net/sk_connect_zero_addr",
    "net/so_netns_cookie",
    "net/socket",
    "net/stress_reuseport_listen",
    "net/tcp_fastopen_backup_key",
    "net/tcp_inq",
    "net/tcp_mmap",
    "net/tls",
    "net/mptcp/mptcp_connect",
    "filesystems/epoll/epoll_wakeup_test",
]

# Each is a shell's line in a folder with the programs; it passes when it ends with 0.
LISTENING = 'until ss -Htln sport = :{port} | grep -q .; do :; done'


def transfer(options):
    """mptcp_connect over plain TCP: files both ways, compared."""
    return (
        "head -c 8000000 /dev/urandom >a; head -c 5000000 /dev/urandom >b; "
        f"mptcp_connect -t 20 -l -p 10000 -s TCP {options} 0.0.0.0 <a >b.got & "
        f"{LISTENING.format(port=10000)}; "
        f"mptcp_connect -t 20 -p 10000 -s TCP {options} 127.0.0.1 <b >a.got && "
        "wait $! && cmp a a.got && cmp b b.got"
    )


def mmap(options):
    """tcp_mmap's server never ends; 32 GiB are more than is needed."""
    return (
        f"tcp_mmap -s {options} & server=$!; {LISTENING.format(port=8787)}; "
        f"timeout 5 tcp_mmap -H 127.0.0.1 -4 {options}; rc=$?; "
        "kill -0 $server && kill $server && { [ $rc = 0 ] || [ $rc = 124 ]; }"
    )


def zerocopy(options):
    return (
        f"msg_zerocopy -4 -t 2 -S 127.0.0.1 -D 127.0.0.1 {options} -r tcp & receiver=$!; "
        f"{LISTENING.format(port=8000)}; "
        f"msg_zerocopy -4 -t 1 -S 127.0.0.1 -D 127.0.0.1 {options} tcp && wait $receiver"
    )


LINES = {
    "bind_bhash": "ip addr add 10.8.8.8 dev lo; ulimit -n 32768; bind_bhash 443 ipv4 10.8.8.8",
    "msg_zerocopy": zerocopy(""),
    "msg_zerocopy -z": zerocopy("-z"),
    "reuseaddr_conflict": "reuseaddr_conflict",
    "reuseaddr_ports_exhausted": (
        'echo "32768 32768" >/proc/sys/net/ipv4/ip_local_port_range; '
        "echo 1 >/proc/sys/net/ipv4/ip_autobind_reuse; reuseaddr_ports_exhausted"
    ),
    "reuseport_addr_any": "reuseport_addr_any",
    "reuseport_bpf": "reuseport_bpf",
    "reuseport_bpf_cpu": "reuseport_bpf_cpu",
    "reuseport_dualstack": "reuseport_dualstack",
    "rxtimestamp tcp": "rxtimestamp -t",
    "sk_bind_sendto_listen": "sk_bind_sendto_listen",
    "sk_connect_zero_addr": "sk_connect_zero_addr",
    "so_netns_cookie": "so_netns_cookie",
    "socket": "socket",
    "stress_reuseport_listen": "ulimit -n 24100; stress_reuseport_listen 300 80",
    "tcp_fastopen_backup_key -4": (
        "echo 3 >/proc/sys/net/ipv4/tcp_fastopen; tcp_fastopen_backup_key -4"
    ),
    "tcp_fastopen_backup_key -6": (
        "echo 3 >/proc/sys/net/ipv4/tcp_fastopen; tcp_fastopen_backup_key -6"
    ),
    "tcp_inq -4": "tcp_inq -4",
    "tcp_inq -6": "tcp_inq -6",
    "tcp_mmap": mmap(""),
    "tcp_mmap -z": mmap("-z"),
    "mptcp_connect poll": transfer("-m poll"),
    "mptcp_connect mmap": transfer("-m mmap"),
    "mptcp_connect sendfile": transfer("-m sendfile"),
    "mptcp_connect small buffers": transfer("-m poll -S 4096 -R 4096"),
    "mptcp_connect join": transfer("-m poll -j"),
}

# Programs of many tests each, which kselftest_harness names. epoll60 has no end of its own.
HARNESSED = ["tls", "epoll_wakeup_test"]


class Lines:
    """The selftests that are one test each."""

    name = "net"
    timeout_s = 120

    def __init__(self, path):
        self.path = path

    def run(self, run, folder, only=()):
        results = {}
        for name in only or LINES:
            done = run(["sh", "-c", LINES[name]], {"PATH": self.path}, self.timeout_s)
            results[name] = {0: "pass", 4: "skip", None: "hang"}.get(done.rc, "fail")
        return results


class Harness:
    """A program of many tests with kselftest_harness."""

    timeout_s = 600

    def __init__(self, name, path):
        self.name = name
        self.path = path

    def run(self, run, folder, only=()):
        done = run([self.name], {"PATH": self.path}, self.timeout_s)
        results = {}
        for line in done.output.splitlines():
            found = re.match(r"(not ok|ok) \d+ (?:# SKIP )?([\w.]+)", line)
            if found:
                word = "skip" if "SKIP" in line else "pass" if found[1] == "ok" else "fail"
                results[f"{self.name} {found[2]}"] = word
        if done.rc not in (0, 1, 4) or not results:
            results[f"{self.name} (all)"] = "hang" if done.rc is None else "crash"
        return results


class Suite:
    name = "Linux selftests"
    is_short = False
    # Batches use fixed files.
    is_apart = False

    def prepare(self, cache):
        root = fetch.linux(cache, PATHS)
        self.version = fetch.version(cache, "linux-source-6.1")
        tree = root / "tools/testing/selftests"
        self.folder = cache / "linux-programs"
        self.folder.mkdir(exist_ok=True)
        for program in PROGRAMS:
            self.build(tree / f"{program}.c")

    def build(self, source):
        target = self.folder / source.stem
        if target.exists():
            return
        text = source.read_text()
        if source.stem == "tls":
            # Debian's 6.1 calls later versions of these two.
            text = text.replace(
                "static void tls_crypto_info_init(",
                "#define __test_passed(test) ((test)->passed)\n"
                "#define tls_crypto_info_init(a, b, c, ...) crypto_info_init(a, b, c)\n"
                "static void crypto_info_init(",
                1,
            )
        if source.stem == "epoll_wakeup_test":
            text = text.split("struct epoll60_ctx")[0] + "TEST_HARNESS_MAIN\n"
        changed = source.with_name(f".{source.name}")
        changed.write_text(text)
        done = subprocess.run(
            ["cc", "-O2", "-w", "-x", "c", changed, "-o", target, "-lpthread"],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise fetch.Unavailable(done.stderr)

    def batches(self, short):
        path = f"{self.folder}:/usr/sbin:/usr/bin:/sbin:/bin"
        return [Lines(path)] + [Harness(name, path) for name in HARNESSED]
