#!/usr/bin/env python3
"""kvm_lab.py [--out FOLDER] [--rounds N] [--only WORDS] [--keep]: MPI, OpenMP and OpenSHMEM in KVM guests.

Boots two guests with a virtual CPU each, and has `yasmin lab` measure in them what tests/vm/lab.toml says, on the
placements of tests/vm/kvm-placements.toml. Where the guests are emulated only ratios mean something, and the host
needs a CPU for each. The report goes to FOLDER; its medians are printed. What it booted it ends, unless --keep.
"""
import argparse
import json
import os
import signal
import subprocess
import sys

import kvm  # first: it says where the lab's state is

import bench_lab
import kvm_site as site


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", default="out/kvm-lab")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", help="as yasmin lab's")
    parser.add_argument("--keep", action="store_true", help="leave the guests up")
    options = parser.parse_args()
    # Ended from outside, it ends what it booted too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    was_up = kvm.is_up()
    if not was_up and subprocess.run([sys.executable, kvm.__file__, "up", "--lifetime", "7200"]).returncode:
        sys.exit(1)
    report = os.path.join(options.out, "report.json")
    if os.path.exists(report):
        os.unlink(report)
    try:
        # As the lab's own broker on one kernel: the matrix product is over before a ring has grown.
        site.brokers_up("--first-class", "9")
        # As the placements name it.
        site.host("segment", "create", "team", "--size", "120M", "--allow", "a:write", "--allow", "b:write")
        succeeded = bench_lab.run("tests/vm/kvm-placements.toml", "guest,guests", options.out, options)
        site.host("segment", "rm", "team")
    finally:
        site.host_down()
        if not was_up and not options.keep:
            kvm.down()
    if os.path.exists(report):
        with open(report) as file:
            print(bench_lab.table({"kvm": json.load(file)}))
    if not succeeded:
        sys.exit("not all measurements succeeded")


if __name__ == "__main__":
    main()
