#!/usr/bin/env python3
"""kvm_migrations.py [--keep] [--moves N] [--seconds S]: moves guest b between QEMUs while checked bytes stream both ways.

Each move: a connection that sends by ring both ways, `yasmin host leave`, QEMU's migrate, the stream's end with every
byte checked, no oops, `yasmin host join`. Ends at the first byte that is wrong, or after N moves or S seconds; says how
many moves there were. What it booted it ends, unless --keep.
"""
import argparse
import signal
import subprocess
import sys
import time

import kvm  # first: it says where the lab's state is

import check_rings as rings
import kvm_site as site
import lab
from check import Failed, finish, no_oops

STREAM_BYTES = 1_200_000_000


def move_once():
    """Bytes by ring before the move, whether the stream outlasted it, and seconds: of leaving, and of the move."""
    site.brokers_up()
    flow = rings.Flow(STREAM_BYTES, STREAM_BYTES)
    flow.await_ring(rings.SOME)
    started = time.monotonic()
    site.host("leave", "b")
    left = time.monotonic()
    by_ring = sum(flow.by_ring(guest) for guest in "ab")
    kvm.move("b")
    moved = time.monotonic()
    is_open = lab.run("a", "test -e /tmp/source.rc")[0] != 0
    try:
        flow.finish()
    except Failed as error:
        raise Failed(f"{error}\nat the other end: {lab.run('b', 'cat /tmp/sink.out')[1]}") from error
    for guest in "ab":
        no_oops(guest)
    site.host("join", "b")
    return by_ring, is_open, left - started, moved - left


def moves(most, seconds):
    """Moves until it is enough, or one fails."""
    until = time.monotonic() + seconds
    done = open_moves = bytes_by_ring = 0
    leaving = []
    try:
        while done < most and time.monotonic() < until:
            by_ring, is_open, left_s, moved_s = move_once()
            done += 1
            open_moves += is_open
            bytes_by_ring += by_ring
            leaving.append(left_s)
            print(f"{done:4}  {by_ring} bytes by ring, left in {left_s:.2f} s, moved in {moved_s:.1f} s"
                  f"{'' if is_open else ', the stream had ended before'}", flush=True)
    finally:
        print(f"{done} moves, {open_moves} of them under a stream; {done * 2 * STREAM_BYTES} bytes checked, "
              f"{bytes_by_ring} by ring before a move; leaving took at most {max(leaving, default=0):.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("--moves", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=3600)
    options = parser.parse_args()
    # Ended from outside, it ends what it booted too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rings.site = site
    was_up = kvm.is_up()
    boot = [sys.executable, kvm.__file__, "up", "--lifetime", str(options.seconds + 600)]
    if not was_up and subprocess.run(boot).returncode:
        sys.exit(1)
    try:
        moves(options.moves, options.seconds)
    except (Failed, lab.Lost) as error:
        sys.exit(f"failed: {error}")
    finally:
        site.host_down()
        if not was_up and not options.keep:
            kvm.down()


if __name__ == "__main__":
    main()
