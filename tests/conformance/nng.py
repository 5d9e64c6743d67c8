"""nng's own tests, from Debian's source."""

import re

import fetch

RELEASES = ["trixie", "bookworm"]

SAID = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) \.*(?:\*\*\*)? *(\w+)", re.MULTILINE)
OUTCOMES = {"Passed": "pass", "Skipped": "skip", "Not": "skip", "Timeout": "hang"}


class Tests:
    """Programs of several tests each, one after the other, all transports."""

    name = "tests"
    timeout_s = 900

    def __init__(self, build):
        self.build = build

    def run(self, run, folder, only=()):
        names = f"^({'|'.join(map(re.escape, only))})$"
        argv = ["ctest", "--test-dir", self.build, "--timeout", "60", "--output-on-failure"]
        done = run([*argv, *(["-R", names] if only else [])], {}, self.timeout_s)
        found = SAID.findall(done.output)
        results = {name: OUTCOMES.get(word, "fail") for name, word in found}
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "nng"
    is_short = False
    # There is one batch.
    is_apart = False

    def prepare(self, cache):
        tree, self.version = fetch.source(cache, "nng", *RELEASES)
        self.build = cache / "nng-build"
        if not (self.build / ".complete").exists():
            self.build.mkdir(exist_ok=True)
            options = ["-DCMAKE_BUILD_TYPE=Release", "-DNNG_TESTS=ON", "-DNNG_TOOLS=OFF"]
            for argv in (["cmake", tree, *options], ["make", "-s", "-j2"]):
                fetch.call(argv, cwd=self.build)
            (self.build / ".complete").touch()

    def batches(self, short):
        yield Tests(self.build)
