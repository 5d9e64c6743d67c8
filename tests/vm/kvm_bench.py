#!/usr/bin/env python3
"""kvm_bench.py [--keep] [--rounds N] [--only TEXT]: programs in two KVM guests by plain virtio-net against `yasmin run`.

What it booted it ends, unless --keep.
"""
import kvm  # first: it says where the lab's state is

import bench_rings
import check_rings
import kvm_site

if __name__ == "__main__":
    bench_rings.command(__doc__, kvm, kvm_site, {"virtio-net": "", "yasmin": check_rings.RUN})
