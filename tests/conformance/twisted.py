"""Twisted's own tests, as its package carries them."""

import re
import sys

import fetch

# The last two are for the tests alone.
PACKAGES = ["Twisted==24.11.0", "PyHamcrest", "hypothesis"]

# Each class of tests runs with every reactor that there is.
MODULES = [
    "internet.test.test_tcp",
    "internet.test.test_core",
    "internet.test.test_fdset",
    "internet.test.test_unix",
    "internet.test.test_endpoints",
    "internet.test.test_process",
    "test.test_tcp",
    "test.test_internet",
    "web.test.test_http",
    "web.test.test_webclient",
    "web.test.test_wsgi",
    "web.test.test_agent",
]

# Tests as trial names them, by module, class and reactor.
RESULT = re.compile(r"^(twisted\.\S+) \.\.\. .*\[(\w+)\]$", re.MULTILINE)
OUTCOMES = {"OK": "pass", "SKIPPED": "skip", "TODO": "pass", "ERROR": "error", "FAIL": "fail"}


class Tests:
    """Some modules, one process each."""

    name = "sockets"
    timeout_s = 600

    def __init__(self, home):
        self.home = home

    def run(self, run, folder, only=()):
        environment = {"PYTHONPATH": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        wanted = only or [f"twisted.{module}" for module in MODULES]
        results = {}
        for name in wanted:
            argv = [sys.executable, "-m", "twisted.trial", "--reporter=bwverbose", name]
            done = run(argv, environment, self.timeout_s)
            found = RESULT.findall(done.output)
            results |= {test: OUTCOMES.get(word, "fail") for test, word in found}
            if done.rc not in (0, 1) or not found:
                results[name] = "hang" if done.rc is None else "crash"
        return results


class Suite:
    name = "Twisted"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        self.version = PACKAGES[0].partition("==")[2]
        self.home = cache / f"twisted-{self.version}"
        if not (self.home / ".complete").exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--target", self.home]
            fetch.call([*pip, *PACKAGES])
            (self.home / ".complete").touch()

    def batches(self, short):
        yield Tests(self.home)
