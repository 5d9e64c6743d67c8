#!/usr/bin/env python3
"""bench.py [--out FOLDER] [--bytes N]: what a path between two guests gives, in virtual time.

Boots the lab with counted instructions, so that ratios hold whatever the host is doing (absolute figures
mean nothing), measures, writes results.json and prints a table.
"""
import argparse
import json
import os
import re
import subprocess
import sys

import lab
from check import finish, run, start

SIZES = [1, 64, 1024, 4096, 16384, 65536, 262144]


def flow(path, arguments, timeout_s=120):
    """One run of `flow` from a to b: nanoseconds that it took."""
    family, address, port = path
    start("b", "flow", f"flow {family} listen {port}")
    run("b", "until grep -q listening /tmp/flow.out; do usleep 10000; done")
    output = run("a", f"flow {family} connect {address} {port} -q {arguments}", timeout_s=timeout_s)
    finish("b", "flow")
    return int(re.search(r" ns (\d+)", output)[1])


def paths():
    """Name and (family, address, port) of each path that is there."""
    return {"netfront": ("tcp", "10.0.2.21", 5101)}


def measure(path, stream_bytes):
    latency = {}
    for size in SIZES:
        few, many = 20, 120 if size <= 65536 else 60
        # The difference takes out what setting up costs.
        taken = flow(path, f"-c {size} -e {many}") - flow(path, f"-c {size} -e {few}")
        latency[size] = taken / (many - few) / 1000
    half = flow(path, f"-s {stream_bytes // 2}")
    whole = flow(path, f"-s {stream_bytes + stream_bytes // 2}")
    return {"round_trip_us": latency, "stream_gbit_s": stream_bytes * 8 / (whole - half)}


def iperf(timeout_s=120):
    start("b", "iperf3", "iperf3 -s -1")
    run("b", "until netstat -ltn | grep -q :5201; do usleep 10000; done")
    result = json.loads(run("a", "iperf3 -c 10.0.2.21 -n 30M -J", timeout_s=timeout_s))
    finish("b", "iperf3")
    return result["end"]["sum_received"]["bits_per_second"] / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="out/vm-bench")
    parser.add_argument("--bytes", type=int, default=20_000_000)
    options = parser.parse_args()
    if subprocess.run([sys.executable, lab.__file__, "up", "--icount"]).returncode:
        sys.exit(1)
    try:
        results = {name: measure(path, options.bytes) for name, path in paths().items()}
        results["netfront"]["iperf3_gbit_s"] = iperf()
    finally:
        lab.down()
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "results.json"), "w") as file:
        json.dump(results, file, indent=1)

    names = list(results)
    print(f"{'round trip, us':>16}" + "".join(f"{name:>14}" for name in names))
    for size in SIZES:
        print(f"{size:>16}" + "".join(f"{results[n]['round_trip_us'][size]:>14.1f}" for n in names))
    print(f"{'stream, Gbit/s':>16}" + "".join(f"{results[n]['stream_gbit_s']:>14.2f}" for n in names))
    print(f"{'iperf3, Gbit/s':>16}{results['netfront']['iperf3_gbit_s']:>14.2f}")


if __name__ == "__main__":
    main()
