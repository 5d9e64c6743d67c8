#!/usr/bin/env python3
"""xen_bench.py [--keep] [--rounds N]: the experiment of the paper on memory that VMs share, between two Xen guests.

8,192 ints there and back: by TCP over netfront and netback, by AF_VSOCK through yasmin.ko, and by a segment and flags in
it. Boots PVH guests, each on a processor of its own, since who waits for a flag looks at it all the time. The paths take turns;
medians, least and most, and ratios, which are all that means something where processors are emulated. What it booted it
ends, unless --keep.
"""
import argparse
import re
import signal
import statistics
import subprocess
import sys

import check_segments
import check_vsock
import lab
import xen_site as site
from check import finish, run, start

INTS = 8192
BYTES = 4 * INTS


def flow_us(family, address, echoes):
    start("b", "flow", f"flow {family} listen 5101")
    run("b", "until grep -q listening /tmp/flow.out; do usleep 10000; done")
    said = run("a", f"flow {family} connect {address} 5101 -q -c {BYTES} -e {echoes} -w 20", timeout_s=300)
    finish("b", "flow")
    return int(re.search(r" ns (\d+)", said)[1]) / echoes / 1000


def by_segment_us(rounds=500):
    check_segments.segment("create", "table", "--size", "2M", "--allow", "a:write", "--allow", "b:write")
    start("b", "exchange", f"members exchange table 1 {rounds} {INTS}")
    said = run("a", f"members exchange table 0 {rounds} {INTS}", timeout_s=300)
    finish("b", "exchange")
    check_segments.segment("rm", "table")
    check_segments.await_gone()
    return float(said.split()[0])


PATHS = {
    "TCP": lambda: flow_us("tcp", "10.0.2.21", 200),
    "vsock": lambda: flow_us("vsock", check_vsock.cid("b"), 500),
    "segment": by_segment_us,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    # Ended from outside, it ends what it booted too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    check_segments.site = site
    was_up = lab.is_up()
    if not was_up and subprocess.run([sys.executable, lab.__file__, "up", "--type", "pvh", "--cpus", "2"]).returncode:
        sys.exit(1)
    try:
        site.brokers_up()
        for cpu, guest in enumerate("ab"):
            run("dom0", f"xl vcpu-pin {guest} all {cpu} && xl vcpu-pin Domain-0 all 0")
        measured = {path: [] for path in PATHS}
        for turn in range(options.rounds):
            # None always goes first.
            for path in sorted(PATHS, reverse=turn % 2 == 0):
                measured[path].append(PATHS[path]())
                print(f"{path}: {measured[path][-1]:.1f} us", flush=True)
        middle = {path: statistics.median(values) for path, values in measured.items()}
        print(f"8,192 ints there and back, {options.rounds} rounds, us: median (least to most), times the segment's")
        for path, values in measured.items():
            print(f"  {path:8} {middle[path]:8.1f} ({min(values):.1f} to {max(values):.1f})  {middle[path] / middle['segment']:.1f}")
    finally:
        if not was_up and not options.keep:
            lab.down()


if __name__ == "__main__":
    main()
