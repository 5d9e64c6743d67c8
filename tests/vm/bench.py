#!/usr/bin/env python3
"""bench.py [--out FOLDER] [--quick] [--pairs N]: the paper's measurements between guests.

Boots the lab with counted instructions, so that ratios hold whatever the host is doing (absolute figures
mean nothing), and measures in one run TCP over netfront and netback, Xen's libvchan, and yasmin's
AF_VSOCK. Writes results.json, prints tables, and draws figures where cargo is installed.
"""
import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

import bench_connects
import bench_paths
import bench_programs
import bench_tables
import check_vsock
import lab
from check import finish
from bench_paths import GUESTS, Vchan, netfront, yasmin

LATENCY_SIZES = [1, 64, 1024, 4096, 16384, 65536, 262144, 1 << 20, 2 << 20]
CHUNKS = [256, 1024, 4096, 16384, 65536, 262144, 1 << 20]
RINGS_KIB = [4, 16, 64, 512]
ALL_RINGS_KIB = [4 << i for i in range(10)]
# Xen's library makes none larger.
VCHAN_MAX_KIB = 1024


def plan(options):
    """What is measured: (figure, path's name, x, function), in the order of the figures."""
    steps = []
    sizes, chunks, stream = LATENCY_SIZES, CHUNKS, options.bytes
    rings, all_rings = RINGS_KIB, ALL_RINGS_KIB
    if options.quick:
        sizes, chunks, rings, all_rings = [1, 4096, 65536, 1 << 20], [4096, 65536], [64, 512], [64, 512, 2048]
    paths = [netfront(), *(make(ring) for ring in reversed(rings) for make in (yasmin, Vchan))]
    for path in paths:
        for size in sizes:
            steps.append(("latency_us", path.name, size, lambda p=path, s=size: p.round_trip_us(s)))
    for path in paths:
        for chunk in chunks:
            # Small calls cost the most: some thousands of them are enough.
            some = min(stream, chunk * 10_000)
            steps.append(("gbit_s", path.name, chunk, lambda p=path, c=chunk, b=some: p.gbit_s(c, b)))
    for ring in all_rings:
        steps.append(("ring_gbit_s", "yasmin", ring, lambda p=yasmin(ring): p.gbit_s(65536, stream)))
        if ring <= VCHAN_MAX_KIB:
            steps.append(("ring_gbit_s", "libvchan", ring, lambda p=Vchan(ring): p.gbit_s(65536, stream)))
    for pairs in range(1, options.pairs + 1):
        for name, path in (("netfront", netfront()), ("yasmin", yasmin(512))):
            steps.append(("pairs_gbit_s", name, pairs, lambda p=path, n=pairs: at_once(p, n, 4 * stream)))
    steps += bench_programs.steps() + bench_connects.steps(bench_programs.PATHS)
    steps.append(("cost_ns", "a guest", 0, bench_paths.costs_ns))
    for path in (netfront(), yasmin(512)):
        steps.append(("carried", path.name, 0, lambda p=path: bench_paths.carried(p, stream)))
    return [step for step in steps if not options.only or step[0] in options.only.split(",")]


def at_once(path, pairs, stream_bytes):
    """What so many pairs of guests that begin at once get together, until the last has ended."""
    chosen = [GUESTS[2 * i : 2 * i + 2] for i in range(pairs)]
    for pair in chosen:
        path.waiting_stream(stream_bytes, pair)
    bench_paths.begin_all()
    took_ns = []
    for first, second in chosen:
        took_ns.append(int(re.search(r" ns (\d+)", finish(first, "waiting"))[1]))
        finish(second, "flow")
    return pairs * stream_bytes * 8 / max(took_ns)


def measure(options, results):
    steps = plan(options)
    started = time.monotonic()
    for count, (figure, name, x, function) in enumerate(steps, 1):
        value = function()
        if value is None:
            print(f"{count:>3}/{len(steps)}  left out: {figure} {name}")
            continue
        results.setdefault(figure, {}).setdefault(name, {})[str(x)] = value
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{count:>3}/{len(steps)}  {time.monotonic() - started:5.0f} s  {figure} {name} {x or ''}: {shown}", flush=True)
        with open(os.path.join(options.out, "results.json"), "w") as file:
            json.dump(results, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", default="out/vm-bench")
    parser.add_argument("--bytes", type=int, default=16 << 20, help="of a stream")
    parser.add_argument("--pairs", type=int, default=4, choices=range(1, 5), help="of guests at once")
    parser.add_argument("--quick", action="store_true", help="few sizes, few rings")
    parser.add_argument("--only", help="figures to measure again, the others as results.json has them:\n"
                        "latency_us,gbit_s,ring_gbit_s,pairs_gbit_s,programs,connect_us,cost_ns,carried")
    parser.add_argument("--keep", action="store_true", help="use the lab that is up, leave it up")
    options = parser.parse_args()
    # Ended from outside, it ends the lab too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    boot = [sys.executable, lab.__file__, "up", "--icount", "--guests", str(2 * options.pairs), "--lifetime", "7200"]
    if not options.keep and subprocess.run(boot).returncode:
        sys.exit(1)
    os.makedirs(options.out, exist_ok=True)
    results = {}
    if options.only:
        with open(os.path.join(options.out, "results.json")) as file:
            results = json.load(file)
    try:
        check_vsock.ready([GUESTS[2 * i : 2 * i + 2] for i in range(options.pairs)])
        results["about"] = {
            "qemu": subprocess.check_output(["qemu-system-x86_64", "--version"], text=True).splitlines()[0],
            "kernel": lab.run("a", "uname -r")[1].strip(), "host": platform.machine(),
            "linger_us": int(lab.run("a", "cat /sys/module/yasmin/parameters/linger_us")[1]),
        }
        measure(options, results)
    finally:
        if not options.keep:
            lab.down()
    bench_tables.show(results, options.out)
    if shutil.which("cargo"):
        draw = ["cargo", "run", "-q", "-p", "yasmin-tests", "--bin", "vm-figures", "--", os.path.abspath(options.out)]
        subprocess.run(draw, cwd=os.path.dirname(os.path.abspath(__file__)), check=True)
    else:
        print("no plots: cargo is missing")


if __name__ == "__main__":
    main()
