#!/usr/bin/env python3
"""kvm_test.py [--keep] [NAME...]: boots the KVM lab if it is not up, runs the checks whose names contain NAME.

What it booted it ends, unless --keep.
"""
import kvm  # first: it says where the lab's state is

import check
import check_kvm_memory  # noqa: F401  (registers its checks)
import check_kvm_host  # noqa: F401
import check_rings
import check_segments
import kvm_site
if kvm.BY_LIBVIRT:
    import check_kvm_libvirt  # noqa: F401

check_rings.site = check_segments.site = kvm_site

if __name__ == "__main__":
    check.command(__doc__, kvm, kvm_site.host_down)
