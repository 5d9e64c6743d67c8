"""curl's own tests, with the program and the servers that they are for, from Debian's source."""

import re

import fetch

RELEASE = "bookworm"

# The rest is more of the same.
COUNT = 250

OPTIONS = ["--with-openssl", "--disable-shared", "--disable-ldap"]

PASSED = re.compile(r"^PASS: (\d+) - ", re.MULTILINE)
FAILED = re.compile(r"^TESTFAIL: These test cases failed: (.*)$", re.MULTILINE)


class Tests:
    """Tests by number. Each that needs a server starts it, unless one before has."""

    name = "tests"
    timeout_s = 900

    def __init__(self, tree, build):
        self.tree = tree
        self.build = build

    def run(self, run, folder, only=()):
        numbers = [name.removeprefix("test") for name in only]
        numbers = numbers or [str(number) for number in range(1, COUNT + 1)]
        tests = self.tree / "tests"
        argv = [
            *["env", f"--chdir={self.build}/tests", "perl", f"-I{tests}", tests / "runtests.pl"],
            *["-a", "-am", "-n", *numbers],
        ]
        done = run(argv, {"srcdir": str(tests)}, self.timeout_s)
        passed = PASSED.findall(done.output)
        failed = [number for line in FAILED.findall(done.output) for number in line.split()]
        is_over = "TESTDONE: " in done.output
        results = {}
        for number in numbers:
            if number in passed:
                word = "pass"
            elif number in failed:
                word = "fail"
            elif is_over:
                # Which those are is not told.
                word = "skip"
            else:
                results[f"test{number}"] = "hang" if done.rc is None else "crash"
                break
            results[f"test{number}"] = word
        return results


class Suite:
    name = "curl"
    is_short = False
    # Batches use fixed files.
    is_apart = False

    def prepare(self, cache):
        tree, self.version = fetch.source(cache, "curl", RELEASE)
        build = cache / f"curl-{self.version}"
        if not (build / ".complete").exists():
            build.mkdir(exist_ok=True)
            for argv in (
                [tree / "configure", "--quiet", *OPTIONS],
                ["make", "-s", "-j2"],
                ["make", "-s", "-j2", "-C", "tests/server"],
            ):
                fetch.call(argv, cwd=build)
            (build / ".complete").touch()
        self.tree, self.build = tree, build

    def batches(self, short):
        yield Tests(self.tree, self.build)
