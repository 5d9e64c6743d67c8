#!/usr/bin/env python3
"""bench.py [--out FOLDER] [--bytes N] [--rings KiB,KiB,...]: what paths between two guests give.

Boots the lab with counted instructions, so that ratios hold whatever the host is doing (absolute figures
mean nothing), measures TCP over netfront, Xen's libvchan and yasmin's AF_VSOCK in one run,
writes results.json and prints tables.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys

import check_vsock
import lab
from check import finish, run, start

SIZES = [1, 64, 1024, 4096, 16384, 65536, 262144]
ECHOES = 100


def flow(family, address, arguments, timeout_s=120):
    """One run of `flow` from a to b: nanoseconds that it took."""
    start("b", "flow", f"flow {family} listen 5101")
    run("b", "until grep -q listening /tmp/flow.out; do usleep 10000; done")
    output = run("a", f"flow {family} connect {address} 5101 -q {arguments}", timeout_s=timeout_s)
    finish("b", "flow")
    return int(re.search(r" ns (\d+)", output)[1])


def vchan(ring_bytes, arguments, timeout_s=120):
    a, b = (int(run("dom0", f"xl domid {name}")) for name in "ab")
    start("b", "vchan", f"vchan listen {a} {ring_bytes}")
    run("b", "until grep -q listening /tmp/vchan.out; do usleep 10000; done")
    output = run("a", f"vchan connect {b} {arguments}", timeout_s=timeout_s)
    finish("b", "vchan")
    return int(re.search(r"ns (\d+)", output)[1])


def measure_flow(family, address, sizes, stream_bytes):
    return {
        "round_trip_us": {size: flow(family, address, f"-c {size} -e {ECHOES}") / ECHOES / 1000 for size in sizes},
        "stream_gbit_s": stream_bytes * 8 / flow(family, address, f"-s {stream_bytes}"),
    }


def measure_vchan(ring_bytes, sizes, stream_bytes):
    stream_bytes = stream_bytes // 65536 * 65536
    return {
        "round_trip_us": {size: vchan(ring_bytes, f"{size} 0 {ECHOES}") / ECHOES / 1000 for size in sizes},
        "stream_gbit_s": stream_bytes * 8 / vchan(ring_bytes, f"65536 {stream_bytes} 0"),
    }


def iperf(timeout_s=120):
    start("b", "iperf3", "iperf3 -s -1")
    run("b", "until netstat -ltn | grep -q :5201; do usleep 10000; done")
    result = json.loads(run("a", "iperf3 -c 10.0.2.21 -n 30M -J", timeout_s=timeout_s))
    finish("b", "iperf3")
    return result["end"]["sum_received"]["bits_per_second"] / 1e9


def measure_all(options, results, keep):
    """Fills `results`; `keep` is called after each path, with what there is."""
    check_vsock.ready()
    peer = check_vsock.cid("b")
    rings = [int(ring) for ring in options.rings.split(",")]
    results["netfront"] = measure_flow("tcp", "10.0.2.21", SIZES, options.bytes)
    results["netfront"]["iperf3_gbit_s"] = iperf()
    keep()
    for ring in rings:
        # The largest in full; of the others, what the ring makes of a stream.
        sizes = SIZES if ring == max(rings) else [1, 65536]
        run("a", f"echo {ring // 4} >/sys/module/yasmin/parameters/ring_pages")
        results[f"yasmin {ring} KiB"] = measure_flow("vsock", peer, sizes, options.bytes)
        keep()
        results[f"libvchan {ring} KiB"] = measure_vchan(ring * 1024, sizes, options.bytes)
        keep()


def show(name, result):
    trips = result["round_trip_us"]
    print(f"{name:<18}{result['stream_gbit_s']:>8.2f}" +
          "".join(f"{trips[size]:>10.1f}" if size in trips else f"{'':>10}" for size in SIZES), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="out/vm-bench")
    parser.add_argument("--bytes", type=int, default=20_000_000)
    parser.add_argument("--rings", default="512,64,16,4", help="KiB for each direction")
    parser.add_argument("--keep", action="store_true", help="use the lab that is up, leave it up")
    options = parser.parse_args()
    # Ended from outside, it ends the lab too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if not options.keep and subprocess.run([sys.executable, lab.__file__, "up", "--icount"]).returncode:
        sys.exit(1)
    os.makedirs(options.out, exist_ok=True)
    results = {}

    def keep():
        name, result = list(results.items())[-1]
        show(name, result)
        with open(os.path.join(options.out, "results.json"), "w") as file:
            json.dump(results, file, indent=1)

    try:
        print(f"{'':<18}{'Gbit/s':>8}   round trip in us, by bytes of the message")
        print(f"{'':<26}" + "".join(f"{size:>10}" for size in SIZES), flush=True)
        measure_all(options, results, keep)
        print(f"iperf3 over netfront: {results['netfront']['iperf3_gbit_s']:.2f} Gbit/s")
    finally:
        if not options.keep:
            lab.down()


if __name__ == "__main__":
    main()
