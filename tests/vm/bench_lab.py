#!/usr/bin/env python3
"""bench_lab.py [--out FOLDER] [--rounds N] [--only WORDS] [--machines NAMES] [--keep]: MPI and OpenMP in guests.

Boots the Xen lab with counted instructions, once for each machine below, and has `yasmin lab` measure in it what
tests/vm/lab.toml says, on the placements of tests/vm/placements.toml. Times are the guests' own: virtual ones, of
which ratios hold whatever the host is doing. All domains share one emulated CPU, so a second worker saves no time.
Each machine's report goes to FOLDER/NAME; their medians side by side are printed, and written to FOLDER/tables.md.
"""
import argparse
import json
import os
import signal
import subprocess
import sys

import check_guests
import lab

# Xen's scheduler, the guests' virtual CPUs, and the placements.
MACHINES = {
    "credit2": ("credit2", 1, "guest,guests"),
    "credit": ("credit", 1, "guest,guests"),
    "credit2-2": ("credit2", 2, "guest"),
    "credit2-4": ("credit2", 4, "guest"),
    "credit2-8": ("credit2", 8, "guest"),
}
CHECKOUT = os.path.join(lab.HERE, "..", "..")
YASMIN = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(CHECKOUT, "target")), "release", "yasmin")


def report_of(name, options):
    return os.path.join(options.out, name, "report.json")


def run(file, placements, out, options):
    """`yasmin lab` on some of a file's placements; whether all succeeded, each on its path."""
    command = [YASMIN, "lab", "--plan", "tests/vm/lab.toml", "--placements", file, "--on", placements,
               "--out", os.path.abspath(out)]
    for option in ("rounds", "only"):
        if value := getattr(options, option):
            command += [f"--{option}", str(value)]
    return subprocess.run(command, cwd=CHECKOUT).returncode == 0


def measure(name, options):
    """False: a measurement failed, or its path was not proven; the report says which."""
    scheduler, vcpus, placements = MACHINES[name]
    if os.path.exists(report_of(name, options)):
        os.unlink(report_of(name, options))
    boot = [sys.executable, lab.__file__, "up", "--icount", "--scheduler", scheduler, "--vcpus", str(vcpus),
            "--lifetime", "7200"]
    if not options.keep and subprocess.run(boot).returncode:
        sys.exit(1)
    try:
        check_guests.ready()
        told = lab.run("dom0", "xl info | sed -n 's/^xen_scheduler *: //p'")[1].strip()
        if told != scheduler:
            sys.exit(f"Xen runs the scheduler {told}, not {scheduler}")
        return run("tests/vm/placements.toml", placements, os.path.join(options.out, name), options)
    finally:
        if not options.keep:
            lab.down()


def figures(outcome):
    """(what, median) for each row that a measurement gives."""
    if outcome.get("seconds"):
        yield "ms", outcome["seconds"]["median"] * 1e3
    for point in outcome.get("points", []):
        if point["len_bytes"] in (0, 8, 64):
            yield f"{point['len_bytes']} B, us", point["latency_ns"]["median"] / 1e3


def table(reports):
    """Markdown: a row for each measurement, a column for each machine. What is not proven says so."""
    rows = {}
    for machine, report in reports.items():
        for outcome in report["outcomes"]:
            mark = "" if outcome["proven"] else " (not proven)"
            for what, value in figures(outcome):
                row = rows.setdefault((outcome["name"], what), {})
                row[machine] = f"{value:.3g}{mark}" if value < 100 else f"{value:.0f}{mark}"
    lines = ["| measurement | | " + " | ".join(reports) + " |", "|---" * (len(reports) + 2) + "|"]
    for (name, what), row in rows.items():
        lines.append(f"| `{name}` | {what} | " + " | ".join(row.get(machine, "") for machine in reports) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", default="out/vm-lab")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", help="as yasmin lab's")
    parser.add_argument("--machines", default=",".join(MACHINES), help="of " + ", ".join(MACHINES))
    parser.add_argument("--keep", action="store_true", help="use the lab that is up, leave it up: one machine only")
    options = parser.parse_args()
    names = options.machines.split(",")
    if unknown := [name for name in names if name not in MACHINES]:
        parser.error(f"no machine {', '.join(unknown)}; there are {', '.join(MACHINES)}")
    if options.keep and len(names) > 1:
        parser.error("--keep takes one of --machines")
    # Ended from outside, it ends the lab too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = [name for name in names if not measure(name, options)]
    reports = {}
    for name in names:
        if os.path.exists(report_of(name, options)):
            with open(report_of(name, options)) as file:
                reports[name] = json.load(file)
    text = table(reports)
    print(text)
    with open(os.path.join(options.out, "tables.md"), "w") as file:
        file.write(text)
    if failed:
        sys.exit(f"not all measurements on {', '.join(failed)} succeeded")


if __name__ == "__main__":
    main()
