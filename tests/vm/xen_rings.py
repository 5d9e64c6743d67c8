#!/usr/bin/env python3
"""xen_rings.py [--keep] [NAME...]: boots the lab with PVH guests, each on a processor of its own, if it is not up, runs
the checks of rings whose names contain NAME.

Emulated processors that run at the same time and switch between hypervisor and guests break a guest now and then, also
one that just boots (Xen says "Triple fault"): a check that such a guest has spoilt is repeated. What it booted it ends,
unless --keep.
"""
import check
import check_rings
import lab
import xen_site as site


def has_failed():
    with open(lab.CONSOLE, errors="replace") as console:
        faults = [line.strip() for line in console if "Triple fault" in line]
    return faults[-1] if faults else None


check_rings.site = site

if __name__ == "__main__":
    check.command(__doc__, lab, up=["--type", "pvh", "--cpus", "2"], has_failed=has_failed)
