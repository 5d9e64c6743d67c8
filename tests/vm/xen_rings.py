#!/usr/bin/env python3
"""xen_rings.py [--keep] [NAME...]: boots the lab with PVH guests, each on a processor of its own, if it is not up, runs
the checks of rings whose names contain NAME.

A check that the emulation has spoilt (`lab.faults`) is repeated. What it booted it ends, unless --keep.
"""
import check
import check_rings
import lab
import xen_site as site


check_rings.site = site

if __name__ == "__main__":
    check.command(__doc__, lab, up=["--type", "pvh", "--cpus", "2"], has_failed=lambda: (lab.faults() or [None])[-1])
