"""redis's own tests, from Debian's source, with Debian's programs."""

import os
import re
import shutil

import fetch

RELEASE = "bookworm"

# What depends on what several connections do to each other. Each lasts some seconds.
UNITS = [
    "unit/auth",
    "unit/client-eviction",
    "unit/introspection",
    "unit/limits",
    "unit/multi",
    "unit/networking",
    "unit/obuf-limits",
    "unit/pause",
    "unit/pendingquerybuf",
    "unit/protocol",
    "unit/pubsub",
    "unit/pubsubshard",
    "unit/querybuf",
    "unit/quit",
    "unit/replybufsize",
    "unit/tracking",
    "unit/wait",
    "unit/type/list",
    "unit/type/stream",
    "unit/type/stream-cgroups",
    "integration/block-repl",
    "integration/redis-benchmark",
    "integration/redis-cli",
    "integration/replication-2",
]

PROGRAMS = ["redis-server", "redis-cli", "redis-benchmark"]

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RESULT = re.compile(r"^\[(ok|err|exception|skip)\]: (.*?)(?: \(\d+ ms\))?$", re.MULTILINE)
OUTCOMES = {"ok": "pass", "skip": "skip"}


class Tests:
    """Some units, one after the other."""

    name = "units"
    timeout_s = 300

    def __init__(self, tree):
        self.tree = tree

    def run(self, run, folder, only=()):
        results = {}
        # The tests leave their files in their own tree.
        tree = folder / "redis"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(self.tree, tree, symlinks=True)
        for unit in [unit for unit in UNITS if not only or any(f"{unit}:" in name for name in only)]:
            command = f"cd {tree} && exec tclsh tests/test_helper.tcl --clients 1 --single {unit}"
            done = run(["sh", "-c", command], {"TERM": "dumb"}, self.timeout_s)
            output = COLOUR.sub("", done.output)
            for word, name in RESULT.findall(output):
                # An error's line ends with the file that it is in.
                test = f"{unit}: {re.sub(r' in tests/.*', '', name)}"
                if results.get(test, "pass") in ("pass", "skip"):
                    results[test] = OUTCOMES.get(word, "fail")
            results[f"{unit}: (all)"] = {0: "pass", None: "hang"}.get(done.rc, "fail")
        return results


class Suite:
    name = "redis"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        missing = [program for program in [*PROGRAMS, "tclsh"] if not shutil.which(program)]
        if missing:
            raise fetch.Unavailable(f"{missing[0]}: apt-get install redis tcl")
        source, self.version = fetch.source(cache, "redis", RELEASE)
        self.tree = cache / f"redis-{self.version.replace(':', '-')}"
        if not (self.tree / ".complete").exists():
            shutil.rmtree(self.tree, ignore_errors=True)
            shutil.copytree(source / "tests", self.tree / "tests")
            (self.tree / "src").mkdir()
            for program in PROGRAMS:
                path = os.path.realpath(shutil.which(program))
                (self.tree / "src" / program).symlink_to(path)
            (self.tree / ".complete").touch()

    def batches(self, short):
        yield Tests(self.tree)
