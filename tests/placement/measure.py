#!/usr/bin/env python3
"""Figures of the placement loop, with the real command and real processes. As root.

    measure.py YASMIN steady           600 s of traffic with 10 % noise, recorded and replayed: moves
    measure.py YASMIN shift [N]        N shifts at any moment: time until all is moved, plans for each
    measure.py YASMIN cost [N] [S]     N kernel routers in network namespaces, five a chain, with
                                       traffic, S seconds at 1 Hz: CPU of the loop, its first plan apart
"""
import ctypes
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def document(pids, links):
    return json.dumps({
        "functions": [{"name": f"f{at}", "pid": pid} for at, pid in enumerate(pids)],
        "links": [{"from": a, "to": b, "rate_bytes_s": rate} for a, b, rate in links],
    })


def tell(path, text):
    """Whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def watch(yasmin, folder, *more):
    command = [yasmin, "place", "watch", "--plain", "--cpus", "0-1023", "--journal", folder / "journal",
               "--log", folder / "log", *more]
    return subprocess.Popen(command, stdout=open(folder / "lines", "w"), stderr=subprocess.STDOUT)


def text(folder):
    log = folder / "log"
    return log.read_text() if log.exists() else ""


def records(folder):
    """Each with its kind under "record"."""
    lines = (json.loads(line) for line in text(folder).split("\n")[:-1])
    return [{"record": kind, **record} for line in lines for kind, record in line.items()]


def wait_for(what, is_so, patience_s=60):
    end = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > end:
            sys.exit(f"{what} did not come about")
        time.sleep(0.002)


def steady(yasmin, folder):
    """Three chains of unequal traffic; each rate is drawn anew each second, within a tenth."""
    sleepers = [subprocess.Popen(["sleep", "9999"]) for _ in range(9)]
    rates = [4e8, 2e8, 5e7]
    draw = random.Random(1)
    try:
        traffic = folder / "traffic.json"
        links = [(f"f{3 * chain + at}", f"f{3 * chain + at + 1}", rate)
                 for chain, rate in enumerate(rates) for at in range(2)]
        tell(traffic, document([one.pid for one in sleepers], links))
        process = watch(yasmin, folder, "--traffic-file", traffic, "--dry-run")
        wait_for("a plan", lambda: '"decision":' in text(folder))
        process.terminate()
        process.wait()
        seen = records(folder)
    finally:
        for one in sleepers:
            one.kill()
    kept = [one for one in seen if one["record"] in ("start", "machine", "functions", "edges")]
    edges = next(len(one["edges"]) for one in reversed(kept) if one["record"] == "edges")
    log = folder / "steady.log"
    with open(log, "w") as out:
        for one in kept:
            out.write(json.dumps({one.pop("record"): one}) + "\n")
        for second in range(600):
            shares = [rates[at // 2] * draw.uniform(0.9, 1.1) for at in range(edges)]
            out.write(json.dumps({"sample": {"at_s": 10.0 + second, "rates": shares}}) + "\n")
    told = subprocess.run([yasmin, "place", "replay", log, "--json"], check=True, capture_output=True)
    report = json.loads(told.stdout)
    first, later = report["decisions"][:1], report["decisions"][1:]
    print(f"{report['samples']} looks in {report['length_s'] - 10:.0f} s, noise 10 %, policy {report['policy']}: "
          f"{len(first)} plan at the start, {len(later)} later, "
          f"{sum(len(one['moves']) for one in later)} moves later")


def shift(yasmin, folder, count=20):
    """Two chains over one shared function change places, again and again."""
    sleepers = [subprocess.Popen(["sleep", "9999"]) for _ in range(4)]
    pids = [one.pid for one in sleepers]
    traffic = folder / "traffic.json"

    def links(swapped):
        first, second = (1e8, 9e8) if swapped else (9e8, 1e8)
        return [("f0", "f1", first), ("f1", "f3", first), ("f0", "f2", second), ("f2", "f3", second)]

    tell(traffic, document(pids, links(False)))
    process = watch(yasmin, folder, "--traffic-file", traffic)
    applied = lambda: [one for one in records(folder) if one["record"] in ("decision", "applied", "sample")]
    draw = random.Random(2)
    took, plans = [], []
    try:
        wait_for("the first plan", lambda: '"applied":' in text(folder))
        time.sleep(5)
        for turn in range(count):
            # Any moment of the period, and long enough to be settled.
            time.sleep(6 + draw.random())
            before = sum(one["record"] == "decision" for one in applied())
            begin = time.monotonic()
            tell(traffic, document(pids, links(turn % 2 == 0)))
            wait_for("a plan", lambda: sum(one["record"] == "decision" for one in applied()) > before)
            took.append(time.monotonic() - begin)
            time.sleep(3)
            plans.append(sum(one["record"] == "decision" for one in applied()) - before)
            print(f"shift {turn + 1}: planned and applied after {took[-1]:.2f} s, {plans[-1]} plan(s)", flush=True)
    finally:
        process.terminate()
        process.wait()
        for one in sleepers:
            one.kill()
    print(f"{count} shifts: median {statistics.median(took):.2f} s, worst {max(took):.2f} s, "
          f"plans for each: {min(plans)} to {max(plans)}")


def load(names):
    """Frames on each namespace's link to the right, some ten a second, by a process of its own."""
    child = os.fork()
    if child:
        return child
    setns, sockets = ctypes.CDLL(None, use_errno=True).setns, []
    for name in names:
        with open(f"/run/netns/{name}") as namespace:
            if setns(namespace.fileno(), 0x40000000):
                os._exit(1)
        one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        one.bind(("right", 0))
        sockets.append(one)
    # To everybody, of an experimental protocol: nobody answers.
    frame = bytes([255] * 6 + [2] + [0] * 5 + [0x88, 0xb5] + [0] * 1386)
    draw = random.Random(3)
    while True:
        for one in sockets:
            one.send(frame[:draw.randrange(1000, 1400)])
        time.sleep(0.1)


def cost(yasmin, folder, count=500, seconds=60):
    names = [f"ycost-{at}" for at in range(count)]
    ip = lambda lines: subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)
    process = child = None
    try:
        print(f"making {count} namespaces", flush=True)
        ip([f"netns add {name}" for name in names])
        for at in range(count):
            if at % 5 == 4:
                continue
            a, b = names[at], names[at + 1]
            subprocess.run(["ip", "-n", a, "link", "add", "right", "type", "veth", "peer", "name", "left", "netns", b], check=True)
            subprocess.run(["ip", "-n", a, "link", "set", "right", "up"], check=True)
            subprocess.run(["ip", "-n", b, "link", "set", "left", "up"], check=True)
        child = load([name for at, name in enumerate(names) if at % 5 != 4])
        process = watch(yasmin, folder, "--source", "netns,yasmin,dpdk", "--dry-run")
        wait_for("the first plan", lambda: '"decision":' in text(folder), 300)

        def cpu_s():
            """Of all threads, in nanoseconds' precision."""
            tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
            return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

        begin, busy = time.monotonic(), cpu_s()
        print(f"until the first plan: {busy:.2f} s of CPU", flush=True)
        time.sleep(seconds)
        elapsed, used = time.monotonic() - begin, cpu_s() - busy
        functions = next(len(one["functions"]) for one in reversed(records(folder)) if one["record"] == "functions")
        looks = sum(one["record"] == "sample" for one in records(folder))
        print(f"{functions} functions, {looks} looks: {used:.2f} s of CPU in {elapsed:.0f} s, "
              f"{100 * used / elapsed:.2f} % of a core")
    finally:
        if process:
            process.terminate()
            process.wait()
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in ("steady", "shift", "cost"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        numbers = [int(one) for one in sys.argv[3:]]
        globals()[sys.argv[2]](sys.argv[1], Path(folder), *numbers)


main()
