#!/usr/bin/env python3
"""test.py [--keep] [NAME...]: boots the lab if it is not up, runs the checks whose names contain NAME.

What it booted it ends, unless --keep.
"""
import check
import lab
import check_lab  # noqa: F401  (registers its checks)
import check_guests  # noqa: F401
import check_programs  # noqa: F401
import check_shortages  # noqa: F401
import check_vsock  # noqa: F401

if __name__ == "__main__":
    check.command(__doc__, lab)
