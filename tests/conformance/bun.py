"""Bun, as npm carries it: our jobs, and Node.js's own network tests, which Bun runs too."""

import pathlib
import shutil

import fetch
import jobs
import node

VERSION = "1.4.5"
PACKAGE = "@oven/bun-linux-x64"


class Suite:
    name = "Bun"
    is_short = False
    # Node.js's tests use fixed files.
    is_apart = False

    def prepare(self, cache):
        if not shutil.which("npm"):
            raise fetch.Unavailable("npm is not installed")
        self.version = VERSION
        self.echo = jobs.built_echo(cache)
        self.bun = fetch.npm(cache, PACKAGE, VERSION) / "bin/bun"
        tree, _ = fetch.source(cache, "nodejs", *node.RELEASES)
        self.tests = tree / "test/parallel"

    def batches(self, short):
        programs = {name: f"{self.bun} {jobs.SOURCES}/{name}" for name in ["echo_bun.js", "echo_net.mjs"]}
        yield jobs.Job("jobs", programs, f"{self.echo} threads")
        web = {"echo_web.js": f"{self.bun} {jobs.SOURCES}/echo_web.js"}
        yield jobs.Job("web jobs", web, None, ("short", "some", "large"))
        files = sorted(self.tests.glob("test-net-*.js"))
        # Bun has globals of its own.
        yield node.Tests("Node.js's net", self.bun, files, {"NODE_TEST_KNOWN_GLOBALS": "0"})
