#!/usr/bin/env python3
"""xen_bench.py [--keep] [--rounds N] [--only TEXT]: programs in two PVH guests of Xen by TCP over netfront and netback,
and under `yasmin run` by vsock through yasmin.ko and by rings in dom0's memory.

Each guest has a processor of its own, since who waits for a ring or a flag looks at it all the time; emulated ones
break a guest now and then (xen_rings.py), and the run with it. What it booted it ends, unless --keep.
"""
import bench_rings
import check_rings
import lab
import xen_site
from check import run

PATHS = {
    "netfront": "",
    "vsock": check_rings.RUN.replace("YASMIN_GUEST_WAIT_MS=0 ", "YASMIN_GUEST_WAIT_MS=5000 "),
    "rings": check_rings.RUN,
}


def pin():
    for cpu, guest in enumerate("ab"):
        run("dom0", f"xl vcpu-pin {guest} all {cpu} && xl vcpu-pin Domain-0 all 0")


if __name__ == "__main__":
    bench_rings.command(__doc__, lab, xen_site, PATHS, up=["--type", "pvh", "--cpus", "2"], ready=pin)
