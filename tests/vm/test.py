#!/usr/bin/env python3
"""test.py [--keep] [NAME...]: boots the lab if it is not up, runs the checks whose names contain NAME.

What it booted it ends, unless --keep.
"""
import argparse
import signal
import subprocess
import sys

import check
import lab
import check_lab  # noqa: F401  (registers its checks)
import check_guests  # noqa: F401
import check_programs  # noqa: F401
import check_shortages  # noqa: F401
import check_vsock  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    # Ended from outside, it ends what it booted too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    was_up = lab.is_up()
    if not was_up and subprocess.run([sys.executable, lab.__file__, "up"]).returncode:
        sys.exit(1)
    try:
        sys.exit(check.main(options.names))
    finally:
        if not was_up and not options.keep:
            lab.down()


if __name__ == "__main__":
    main()
