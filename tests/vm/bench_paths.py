"""The paths between two guests that bench.py compares, and how each is measured.

Every figure comes from a connection of its own; a round trip from the echoes after the first ones.
"""
import json
import re

import check_guests
import check_vsock
import lab
from check import Failed, finish, run, start

GUESTS = "abcdefgh"
# The commands before, and this one's arrival, keep dom0 busy for a moment; all share one CPU.
SETTLE = "usleep 300000"


def echoes_of(size):
    """How many round trips: some megabytes."""
    return max(5, min(200, 4_000_000 // size))


def warm_up_of(size):
    return min(10, echoes_of(size))


def listening(domain, name):
    run(domain, f"until grep -q listening /tmp/{name}.out; do usleep 10000; done")


def flow(family, address, arguments, pair="ab", timeout_s=300):
    """One run of `flow`: when it began, when it ended, and the nanoseconds that it took."""
    first, second = pair
    start(second, "flow", f"flow {family} listen 5101")
    listening(second, "flow")
    output = run(first, f"{SETTLE}; flow {family} connect {address} 5101 -q {arguments}", timeout_s=timeout_s)
    finish(second, "flow")
    return [int(number) for number in re.search(r" from (\d+) to (\d+) ns (\d+)", output).groups()]


class Flow:
    """A socket path: TCP over netfront and netback, or AF_VSOCK."""

    def __init__(self, name, family, ring_kib=None):
        self.name, self.family, self.ring_kib = name, family, ring_kib

    def address(self, guest):
        return check_vsock.cid(guest) if self.family == "vsock" else f"10.0.2.{20 + GUESTS.index(guest)}"

    def flow(self, arguments, pair="ab", timeout_s=300):
        if self.ring_kib:
            run(pair[0], f"echo {self.ring_kib // 4} >/sys/module/yasmin/parameters/ring_pages")
        return flow(self.family, self.address(pair[1]), arguments, pair, timeout_s)

    def round_trip_us(self, size):
        echoes = echoes_of(size)
        return self.flow(f"-c {size} -e {echoes} -w {warm_up_of(size)}")[2] / echoes / 1000

    def gbit_s(self, chunk, stream_bytes):
        return stream_bytes * 8 / self.flow(f"-c {chunk} -s {stream_bytes}")[2]

    def begin_and_end(self, stream_bytes, pair, at_s):
        """Of a stream that begins at that time, by the clock that Xen gives all guests."""
        return self.flow(f"-c 65536 -s {stream_bytes} -t {at_s}", pair, timeout_s=1000)[:2]


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


def iperf_gbit_s(prefix=""):
    """Unmodified TCP programs: as they are, or under `yasmin run`."""
    start("b", "iperf3", f"{prefix} iperf3 -s -1")
    run("b", "until netstat -ltn | grep -q :5201; do usleep 10000; done")
    result = json.loads(run("a", f"{SETTLE}; {prefix} iperf3 -c 10.0.2.21 -n 60M -J", timeout_s=300))
    finish("b", "iperf3")
    return result["end"]["sum_received"]["bits_per_second"] / 1e9


def iperf_yasmin_gbit_s():
    """None if the command was not built when the images were."""
    if lab.run("a", "command -v yasmin")[0]:
        return None
    check_guests.ready()
    before = check_vsock.bridged_bytes()
    result = iperf_gbit_s(check_guests.RUN)
    if check_vsock.bridged_bytes() - before > 1_000_000:
        raise Failed("iperf3's bytes went through dom0")
    return result


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
