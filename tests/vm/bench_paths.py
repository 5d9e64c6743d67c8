"""The paths between two guests that bench.py compares, and how each is measured.

Every figure comes from a connection of its own; a round trip from the echoes after the first ones.
"""
import re

import check_vsock
from check import finish, run, start

GUESTS = "abcdefgh"
# The commands before, and this one's arrival, keep dom0 busy for a moment; all share one CPU.
SETTLE = "usleep 300000"


def echoes_of(size):
    """How many round trips: some megabytes."""
    return max(5, min(200, 4_000_000 // size))


def warm_up_of(size):
    return min(10, echoes_of(size))


BEGIN_PORT = 5199


def begin_all():
    """A broadcast over dom0's bridge, which all waiting streams get at once."""
    run("a", "python3 -c 'import socket; s = socket.socket(type=socket.SOCK_DGRAM); "
             f"s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.sendto(b\"1\", (\"10.0.2.255\", {BEGIN_PORT}))'")


def listening(domain, name):
    run(domain, f"until grep -q listening /tmp/{name}.out; do usleep 10000; done")


def flow(family, address, arguments, timeout_s=300):
    """One run of `flow`: the nanoseconds that it took."""
    start("b", "flow", f"flow {family} listen 5101")
    listening("b", "flow")
    output = run("a", f"{SETTLE}; flow {family} connect {address} 5101 -q {arguments}", timeout_s=timeout_s)
    finish("b", "flow")
    return int(re.search(r" ns (\d+)", output)[1])


class Flow:
    """A socket path: TCP over netfront and netback, or AF_VSOCK."""

    def __init__(self, name, family, ring_kib=None):
        self.name, self.family, self.ring_kib = name, family, ring_kib

    def address(self, guest):
        return check_vsock.cid(guest) if self.family == "vsock" else f"10.0.2.{20 + GUESTS.index(guest)}"

    def set_ring(self, connector):
        if self.ring_kib:
            run(connector, f"echo {self.ring_kib // 4} >/sys/module/yasmin/parameters/ring_pages")

    def flow(self, arguments):
        self.set_ring("a")
        return flow(self.family, self.address("b"), arguments)

    def round_trip_us(self, size):
        echoes = echoes_of(size)
        return self.flow(f"-c {size} -e {echoes} -w {warm_up_of(size)}") / echoes / 1000

    def gbit_s(self, chunk, stream_bytes):
        return stream_bytes * 8 / self.flow(f"-c {chunk} -s {stream_bytes}")

    def waiting_stream(self, stream_bytes, pair):
        """Starts a stream that waits for `begin_all`; ends with finish(pair[0], "waiting")."""
        first, second = pair
        self.set_ring(first)
        start(second, "flow", f"flow {self.family} listen 5101")
        listening(second, "flow")
        start(first, "waiting", f"flow {self.family} connect {self.address(second)} 5101 -q -c 65536 "
                                f"-s {stream_bytes} -t {BEGIN_PORT}")
        run(first, "until grep -q waiting /tmp/waiting.out; do usleep 10000; done")


class Vchan:
    """Xen's own library."""

    def __init__(self, ring_kib):
        self.name, self.ring_kib = f"libvchan {ring_kib} KiB", ring_kib

    def vchan(self, arguments):
        a, b = (int(run("dom0", f"xl domid {name}")) for name in "ab")
        start("b", "vchan", f"vchan listen {a} {self.ring_kib * 1024}")
        listening("b", "vchan")
        output = run("a", f"{SETTLE}; vchan connect {b} {arguments}", timeout_s=300)
        finish("b", "vchan")
        return int(re.search(r"ns (\d+)", output)[1])

    def round_trip_us(self, size):
        echoes = echoes_of(size)
        return self.vchan(f"{size} 0 {echoes} {warm_up_of(size)}") / echoes / 1000

    def gbit_s(self, chunk, stream_bytes):
        stream_bytes = max(1, stream_bytes // chunk) * chunk
        return stream_bytes * 8 / self.vchan(f"{chunk} {stream_bytes} 0")


def netfront():
    return Flow("netfront", "tcp")


def yasmin(ring_kib):
    return Flow(f"yasmin {ring_kib} KiB", "vsock", ring_kib)


def costs_ns():
    """What a system call, a hypercall, an event and a copy cost."""
    output = run("a", "syscalls; modprobe costs && rmmod costs; dmesg | grep costs:")
    return {what: int(ns) for what, ns in re.findall(r"costs: (\S+) (\d+) ns", output)}


def sums(domain):
    return check_vsock.figures(domain, "sums")


def carried(path, stream_bytes):
    """Who touches a stream: copies by sender and receiver for each byte, and what dom0 carries of it."""
    dom0, a, b = check_vsock.bridged_bytes(), sums("a"), sums("b")
    path.gbit_s(65536, stream_bytes)
    dom0, a_after, b_after = check_vsock.bridged_bytes() - dom0, sums("a"), sums("b")
    result = {"bytes": stream_bytes, "dom0_bytes": dom0}
    if path.family == "vsock":
        for name in ("copied_in_bytes", "copied_out_bytes", "bells", "events"):
            result[name] = sum(after[name] - before[name] for before, after in ((a, a_after), (b, b_after)))
    return result
