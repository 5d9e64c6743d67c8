"""libuv's own tests, from Debian's newer source: this version uses io_uring where it may."""

import re
import subprocess

import fetch

RELEASE = "trixie"

# Whatever has to do with sockets, waiting and processes; the rest of libuv is files and threads.
KINDS = re.compile(
    r"^(tcp|tcp6|poll|pipe|ipc|spawn|fork|shutdown|close|connect|delayed|multiple_listen|"
    r"not_readable|not_writable|readable|embed|emfile|eintr|iouring|signal|ref|udp|socket|"
    r"watcher|loop|active|getsockname|callback_stack|run_|metrics|timer|stdio|handle_fileno)"
)


class Tests:
    """libuv's runner starts each test in a process of its own, one after the other."""

    timeout_s = 300

    def __init__(self, name, program, tests):
        self.name = name
        self.program = program
        self.tests = tests

    def run(self, run, folder, only=()):
        names = list(only) or self.tests
        # 5 seconds each are too few on a busy machine.
        environment = {"UV_RUN_AS_ROOT": "1", "UV_TEST_TIMEOUT_MULTIPLIER": "4"}
        each = 'for test; do "$PROGRAM" $test; echo "ended $test $?"; done'
        argv = ["sh", "-c", each, "sh", *names]
        done = run(argv, {**environment, "PROGRAM": str(self.program)}, self.timeout_s)
        results = {}
        skipped = False
        for line in done.output.splitlines():
            found = re.match(r"ended (\w+) (\d+)$", line)
            if found:
                word = "pass" if found[2] == "0" else "fail"
                results[found[1]] = "skip" if skipped else word
                skipped = False
            elif re.match(r"ok \d+ - \w+ # SKIP", line):
                skipped = True
        for name in names:
            if name not in results:
                results[name] = "hang"
                break
        return results


class Suite:
    name = "libuv"
    is_short = False
    # Batches use fixed files.
    is_apart = False

    def prepare(self, cache):
        tree, self.version = fetch.source(cache, "libuv1", RELEASE)
        build = cache / "libuv-build"
        self.program = build / "uv_run_tests"
        if not self.program.exists():
            build.mkdir(exist_ok=True)
            for argv in (
                ["cmake", tree, "-DCMAKE_BUILD_TYPE=Release", "-DLIBUV_BUILD_TESTS=ON"],
                ["make", "-j2", "uv_run_tests"],
            ):
                fetch.call(argv, cwd=build)

    def batches(self, short):
        listed = subprocess.run(
            [self.program, "--list"], capture_output=True, text=True, env={"UV_RUN_AS_ROOT": "1"}
        )
        kinds = {kind: [] for kind in ("tcp", "udp", "pipe", "poll", "spawn", "fork", "other")}
        for line in filter(str.strip, listed.stdout.splitlines()):
            name = line.split()[0]
            if KINDS.match(name):
                kind = name.split("_")[0].rstrip("6")
                kinds[kind if kind in kinds else "other"].append(name)
        return [Tests(kind, self.program, names) for kind, names in kinds.items()]
