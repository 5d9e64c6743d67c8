#!/usr/bin/env python3
"""kvm_bench.py [--keep] [--rounds N]: programs in two KVM guests by plain virtio-net against `yasmin run`.

Rounds alternate between the two; medians, the spread between least and most, and the ratio of the medians. Where
the guests are emulated only the ratios mean something. What it booted it ends, unless --keep.
"""
import argparse
import json
import re
import signal
import statistics
import subprocess
import sys

import kvm  # first: it says where the lab's state is

import check_kvm_rings as rings
from bench_tables import number
from check import Failed, finish, run, start
from check_kvm_host import host

PATHS = {"virtio-net": "", "yasmin": rings.RUN}
# One that some figures have.
SEGMENT = "segment"
INTS = 8192
port = 8000


def serve(command):
    """Starts a server in b on a port of its own, and waits until it listens; the port."""
    global port
    port += 1
    start("b", "server", command.format(port=port))
    run("b", f"until netstat -ltn | grep -q :{port}; do usleep 20000; done")
    return port


def ping_pong_us(prefix, echoes=4000, size=64):
    serve(f"{prefix} stream listen {{port}}")
    said = run("a", f"{prefix} stream connect {kvm.address('b')} {port} -e {echoes} -c {size}")
    finish("b", "server")
    return float(re.search(r"([\d.]+) us an echo", said)[1])


def iperf_gbit_s(prefix, seconds=4):
    serve(f"{prefix} iperf3 -s -1 -p {{port}}")
    said = run("a", f"{prefix} iperf3 -c {kvm.address('b')} -p {port} -t {seconds} -J")
    finish("b", "server")
    return json.loads(said[said.index("{"):])["end"]["sum_received"]["bits_per_second"] / 1e9


def redis(prefix, options):
    serve(f"{prefix} redis-server --port {{port}} --save \"\" --protected-mode no")
    said = run("a", f"{prefix} redis-benchmark -h {kvm.address('b')} -p {port} -t get --csv {options}")
    run("b", "killall redis-server")
    finish("b", "server")
    return float(re.search(r'"GET","([\d.]+)"', said)[1])


def short_connections(prefix):
    # By the library's own judgement: a short connection is not worth a channel.
    return redis(prefix.replace("YASMIN_PROMOTE_MESSAGES=0 ", ""), "-c 1 -k 0 -n 200")


def ints_us(prefix):
    """There and back: the experiment of the paper on memory that VMs share. No prefix: by a segment and flags in it."""
    if prefix is not None:
        return ping_pong_us(prefix, echoes=1000, size=4 * INTS)
    rounds = 2000
    host("segment", "create", "table", "--size", "2M", "--allow", "a:write", "--allow", "b:write")
    start("b", "exchange", f"members exchange table 1 {rounds} {INTS}")
    said = run("a", f"members exchange table 0 {rounds} {INTS}")
    finish("b", "exchange")
    host("segment", "rm", "table")
    return float(said.split()[0])


# What, and whether more is better.
FIGURES = {
    "ping-pong of 64 B, us": (ping_pong_us, False),
    "8,192 ints there and back, us": (ints_us, False),
    "iperf3, one stream, Gbit/s": (iperf_gbit_s, True),
    "redis-benchmark GET, 50 clients, 1/s": (lambda prefix: redis(prefix, "-c 50 -n 10000"), True),
    "redis-benchmark GET, each on a new connection, 1/s": (short_connections, True),
}


def table(results):
    lines = ["", "| | virtio-net | yasmin | times better |", "|---|---|---|---|"]
    for what, paths in results.items():
        middle = {path: statistics.median(values) for path, values in paths.items()}
        cells = [f"{number(middle[path])} ({number(min(paths[path]))} to {number(max(paths[path]))})" for path in PATHS]
        ratio = middle["yasmin"] / middle["virtio-net"]
        lines.append(f"| {what} | {' | '.join(cells)} | {number(ratio if FIGURES[what][1] else 1 / ratio)} |")
    for what, paths in results.items():
        if SEGMENT in paths:
            values = paths[SEGMENT]
            middle = {path: statistics.median(values) for path, values in paths.items()}
            times = " and ".join(f"{number(middle[path] / middle[SEGMENT])} times less than {path}" for path in PATHS)
            lines += ["", f"{what}, by a segment: {number(middle[SEGMENT])} ({number(min(values))} to {number(max(values))}), {times}"]
    return "\n".join(lines)


def measure(rounds, only):
    rings.brokers_up()
    results = {}
    for what, (figure, _) in FIGURES.items():
        if only not in what:
            continue
        paths = PATHS | ({SEGMENT: None} if figure is ints_us else {})
        results[what] = {path: [] for path in paths}
        for turn in range(rounds):
            # None always goes first.
            for path in sorted(paths, reverse=turn % 2 == 0):
                before = rings.sent("a", "ring")
                value = figure(paths[path])
                results[what][path].append(value)
                print(f"{what}, {path}: {number(value)}; by ring from a: {rings.sent('a', 'ring') - before} bytes", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="TEXT", default="", help="figures whose names have this in them")
    options = parser.parse_args()
    # Ended from outside, it ends what it booted too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    was_up = kvm.is_up()
    if not was_up and subprocess.run([sys.executable, kvm.__file__, "up"]).returncode:
        sys.exit(1)
    try:
        print(table(measure(options.rounds, options.only)))
    except Failed as error:
        sys.exit(f"failed: {error}")
    finally:
        rings.host_down()
        if not was_up and not options.keep:
            kvm.down()


if __name__ == "__main__":
    main()
