#!/usr/bin/env python3
"""xen_test.py [--keep] [NAME...]: boots the lab with PVH guests if it is not up, runs the checks of segments whose
names contain NAME.

What it booted it ends, unless --keep.
"""
import check
import check_segments
import check_xen_segments  # noqa: F401  (registers its checks)
import lab
import xen_site

check_segments.site = xen_site

if __name__ == "__main__":
    check.command(__doc__, lab, up=["--type", "pvh"])
