#!/usr/bin/env python3
"""kvm_test.py [--keep] [NAME...]: boots the KVM lab if it is not up, runs the checks whose names contain NAME.

What it booted it ends, unless --keep.
"""
import argparse
import signal
import subprocess
import sys

import kvm  # first: it says where the lab's state is

import check
import check_kvm_memory  # noqa: F401  (registers its checks)
import check_kvm_rings  # noqa: F401
import check_kvm_host  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    # Ended from outside, it ends what it booted too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    was_up = kvm.is_up()
    if not was_up and subprocess.run([sys.executable, kvm.__file__, "up"]).returncode:
        sys.exit(1)
    try:
        sys.exit(check.main(options.names))
    finally:
        check_kvm_rings.host_down()
        if not was_up and not options.keep:
            kvm.down()


if __name__ == "__main__":
    main()
