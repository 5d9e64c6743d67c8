#!/usr/bin/env python3
"""Other people's tests, on plain TCP and under `yasmin run` in several moods, compared.

    run.py [--bin DIR] [--cache DIR] [--only SUITE[/BATCH]]... [--modes NAME,...] [--short]
           [--jobs N] [--json FILE] [--out DOCUMENT]

A test that ends differently than on plain TCP is run again, alone, a few times both ways. It
differs if it does again, unless plain TCP does not agree with itself either ("unsteady"); else it
did "once". Exit code 1 when a difference remains.
"""

import argparse
import concurrent.futures
import itertools
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time

import asio
import bun
import cpython
import crates
import curl
import erlang
import fetch
import glib
import go
import jobs
import libevent
import libuv
import linux
import modes
import mosquitto
import nng
import node
import perl
import php
import redis
import report
import ruby
import twisted
import zeromq

SUITES = [
    jobs.Suite(),
    cpython.Suite(),
    linux.Suite(),
    libuv.Suite(),
    node.Suite(),
    bun.Suite(),
    crates.Suite(),
    libevent.Suite(),
    zeromq.Suite(),
    redis.Suite(),
    twisted.Suite(),
    ruby.Suite(),
    php.Suite(),
    curl.Suite(),
    erlang.Suite(),
    glib.Suite(),
    go.Suite(),
    perl.Suite(),
    asio.Suite(),
    nng.Suite(),
    mosquitto.Suite(),
]
AGAIN = 3


class Runner:
    def __init__(self, options):
        self.options = options
        self.seeds = itertools.count(options.seed + 1)

    def once(self, batch, mode, only=()):
        """One run of a batch: results by test, and what its runs carried."""
        carried = [0, 0, 0]
        with tempfile.TemporaryDirectory(prefix="yasmin-conformance-") as path:
            folder = pathlib.Path(path)

            def run(argv, environment, timeout_s):
                binaries, seed = self.options.bin, next(self.seeds)
                done = modes.run(mode, binaries, folder, argv, environment, timeout_s, seed)
                for at, more in enumerate((done.ring_bytes, done.tcp_bytes, done.channels)):
                    carried[at] += more
                if self.options.logs:
                    name = f"{batch.name}-{mode.name}".replace("/", "-").replace(" ", "-")
                    with open(self.options.logs / name, "a") as log:
                        log.write(done.output)
                return done

            results = batch.run(run, folder, only)
        return results, carried

    def differences(self, batch, mode, plain, other):
        """Tests whose outcome differs, after another look at each."""
        suspects = [name for name in plain if other.get(name, "missing") != plain[name]]
        suspects += [name for name in other if name not in plain]
        found = {}
        for name in suspects:
            was = plain.get(name, "missing")
            now = [other.get(name, "missing")]
            here = [was]
            if name in report.REASONS:
                # Known: not looked at again.
                found[name] = {"plain": here, mode.name: now, "verdict": "differs"}
                continue
            for _ in range(AGAIN):
                again, _ = self.once(batch, modes.MODES[0], [name])
                here.append(again.get(name, "missing"))
                again, _ = self.once(batch, mode, [name])
                now.append(again.get(name, "missing"))
            if len(set(here)) > 1:
                verdict = "unsteady"  # on plain TCP
            elif all(outcome == was for outcome in now[1:]):
                verdict = "once"
            else:
                verdict = "differs"
            found[name] = {"plain": here, mode.name: now, "verdict": verdict}
            say(f"    {verdict}: {name}: plain {here}, {mode.name} {now}")
        return found


def say(text):
    print(text, flush=True)


def wanted(patterns, suite, batch):
    name = f"{suite.name}/{batch.name}".lower()
    ends = [f"{pattern.lower()}{end}" for pattern in patterns for end in ("/", " ")]
    return not patterns or any(f"{name} ".startswith(end) for end in ends)


def run_batch(runner, suite, batch, chosen, row):
    """Runs one batch in the chosen modes and enters them in its row."""
    for mode in chosen:
        begun = time.monotonic()
        results, (ring, tcp, channels) = runner.once(batch, mode)
        words = sorted(set(results.values()))
        counts = {word: list(results.values()).count(word) for word in words}
        took = time.monotonic() - begun
        row["modes"][mode.name] = entry = {
            "counts": counts,
            "ring_bytes": ring,
            "tcp_bytes": tcp,
            "channels": channels,
            "seconds": round(took, 1),
            "results": results,
            "differences": {},
        }
        said = ", ".join(f"{count} {word}" for word, count in counts.items())
        if mode.knobs is not None:
            said += f"; {channels} channels, {ring} B by ring, {tcp} B by TCP"
        say(f"{suite.name} {batch.name}, {mode.title}, {took:.0f} s: {said}")
        plain = row["modes"].get("plain")
        if mode.knobs is not None and plain is not None:
            found = runner.differences(batch, mode, plain["results"], results)
            entry["differences"] = found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default="target/release")
    cache = os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")
    parser.add_argument("--cache", type=pathlib.Path, default=f"{cache}/yasmin-conformance")
    parser.add_argument("--only", action="append", default=[], metavar="SUITE[/BATCH]")
    parser.add_argument("--modes", default=",".join(mode.name for mode in modes.MODES))
    parser.add_argument("--short", action="store_true", help="what continuous integration runs")
    parser.add_argument("--jobs", type=int, default=1, help="batches at a time")
    parser.add_argument("--seed", type=int, default=1, help="of the random mode")
    parser.add_argument("--logs", type=pathlib.Path, help="keep what the tests print here")
    parser.add_argument("--json", type=pathlib.Path, help="every result; what is there is kept")
    parser.add_argument("--out", type=pathlib.Path, help="the table of all that is in --json")
    options = parser.parse_args()
    options.bin, options.cache = options.bin.resolve(), options.cache.resolve()
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    chosen = [mode for mode in modes.MODES if mode.name in options.modes.split(",")]
    runner = Runner(options)
    table = report.Table.load(options.json)
    lanes = []
    for suite in SUITES:
        if options.only and not any(
            pattern.lower().startswith(suite.name.lower()) for pattern in options.only
        ):
            continue
        if options.short and not suite.is_short:
            continue
        try:
            suite.prepare(options.cache)
        except fetch.Unavailable as reason:
            say(f"{suite.name}: not run, {reason}")
            table.notes[suite.name] = f"not run, {str(reason).strip().splitlines()[-1]}"
            continue
        if suite.version:
            table.versions[suite.name] = suite.version
        table.notes.pop(suite.name, None)
        lane = [
            (suite, batch, table.row(suite.name, batch.name))
            for batch in suite.batches(options.short)
            if wanted(options.only, suite, batch)
        ]
        lanes += [[one] for one in lane] if suite.is_apart else [lane]
    saving = threading.Lock()

    def run_lane(lane):
        for suite, batch, row in lane:
            run_batch(runner, suite, batch, chosen, row)
            with saving:
                table.save(options.json, options.out)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        # The first error is everybody's.
        list(pool.map(run_lane, lanes))
    ran = [row for lane in lanes for _, _, row in lane]
    differing = [name for row in ran for name in report.unexplained(row)]
    for name in differing:
        say(f"differs from plain TCP: {name}")
    say(f"{len(differing)} differences from plain TCP")
    return 1 if differing else 0


if __name__ == "__main__":
    if not shutil.which("unshare"):
        sys.exit("unshare is missing: apt-get install util-linux")
    sys.exit(main())
