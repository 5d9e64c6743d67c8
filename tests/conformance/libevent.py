"""libevent's own regression tests, from Debian's source."""

import re

import fetch

RELEASES = ["trixie", "bookworm"]

# What a run may wait by; libevent leaves out what its environment says.
BACKENDS = {
    "epoll": {},
    "epoll with a changelist": {"EVENT_EPOLL_USE_CHANGELIST": "yes"},
    "poll": {"EVENT_NOEPOLL": "yes"},
    "select": {"EVENT_NOEPOLL": "yes", "EVENT_NOPOLL": "yes"},
}
GROUPS = "main bufferevent evbuffer listener rpc signal thread util et".split()

SAID = re.compile(r"^([\w]+/[\w]+): (?:\[forking\] )?(OK|SKIPPED|DISABLED)?", re.MULTILINE)
OUTCOMES = {"OK": "pass", "SKIPPED": "skip", "DISABLED": "skip"}


class Tests:
    """Groups of tests with one way to wait. Each has a process, and 30 s, of its own."""

    timeout_s = 900

    def __init__(self, name, program, environment, groups):
        self.name = name
        self.program = program
        self.environment = environment
        self.groups = groups

    def run(self, run, folder, only=()):
        argv = [self.program, *(only or [f"{group}/.." for group in self.groups])]
        done = run(argv, self.environment, self.timeout_s)
        # A test that says nothing at its end has failed.
        results = {name: OUTCOMES.get(word, "fail") for name, word in SAID.findall(done.output)}
        if done.rc is None and results:
            results[list(results)[-1]] = "hang"
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "libevent"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        tree, self.version = fetch.source(cache, "libevent", *RELEASES)
        build = cache / "libevent-build"
        self.program = build / "bin/regress"
        if not self.program.exists():
            build.mkdir(exist_ok=True)
            options = ["SAMPLES", "BENCHMARK", "OPENSSL"]
            options = [f"-DEVENT__DISABLE_{option}=ON" for option in options]
            options.append("-DEVENT__LIBRARY_TYPE=STATIC")
            for argv in (
                ["cmake", tree, "-DCMAKE_BUILD_TYPE=Release", *options],
                ["make", "-j2", "regress"],
            ):
                fetch.call(argv, cwd=build)

    def batches(self, short):
        for name, environment in BACKENDS.items():
            yield Tests(name, self.program, environment, GROUPS)
        yield Tests("http", self.program, {}, ["http"])
