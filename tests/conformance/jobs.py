"""Jobs of our own: an echo server and a client that checks each byte, written for many runtimes.

The programs in jobs/ take the same arguments; echo.c says which. Each runs with itself in one
process, and as server and as client opposite threads that block in libc.
"""

import pathlib

import fetch

SOURCES = pathlib.Path(__file__).with_name("jobs")

# Connections at once, exchanges on each, bytes at most. Each is enough for a channel.
LOADS = {"short": (1, 3000, 64), "many": (200, 40, 3000), "large": (8, 12, 500_000)}
USUAL = tuple(LOADS)
# For who takes a new connection now and then: from the first byte each waits 20 ms for its channel.
LOADS["some"] = (20, 20, 3000)

# Some hundred times as long as a job takes.
JOB_TIMEOUT_S = 30

# The port comes by the server's output, so that nobody has to wait for it in another way.
APART = f"""
rm -f port; mkfifo port
$SERVER serve >port & server=$!
read -r port <port
timeout {JOB_TIMEOUT_S} $CLIENT ask $port "$@"
rc=$?
kill $server || rc=1
exit $rc
"""
BOTH = f'exec timeout {JOB_TIMEOUT_S} $CLIENT both "$@"'


class Job:
    """One program in each of its parts, with each load."""

    timeout_s = JOB_TIMEOUT_S + 20

    def __init__(self, name, programs, opposite, loads=USUAL):
        """`programs`: command lines by name. `opposite`: the other one, or None."""
        self.name = name
        self.tests = {}
        for program, line in programs.items():
            pairs = {f"{program}": (None, line)}
            if opposite:
                pairs[f"{program} serves"] = (line, opposite)
                pairs[f"{program} asks"] = (opposite, line)
            else:
                pairs[f"{program} apart"] = (line, line)
            for pair, lines in pairs.items():
                self.tests |= {f"{pair} {load}": (lines, LOADS[load]) for load in loads}

    def run(self, run, folder, only=()):
        results = {}
        for name in only or self.tests:
            (server, client), load = self.tests[name]
            environment = {"SERVER": str(server), "CLIENT": str(client)}
            argv = ["sh", "-c", APART if server else BOTH, "sh", *load]
            done = run(argv, environment, self.timeout_s)
            outcomes = {0: "pass", 124: "hang", None: "hang"}
            results[name] = outcomes.get(done.rc, "fail")
        return results


def built_echo(cache, *options):
    """echo.c's program."""
    source = SOURCES / "echo.c"
    program = cache / "".join(["echo", *options])
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        cache.mkdir(parents=True, exist_ok=True)
        warn = ["-Wall", "-Wextra"]
        fetch.call(["cc", "-O2", *warn, *options, source, "-o", program, "-lpthread"])
    return program


# What echo.c can wait by.
SEEN = ["threads", "poll", "select", "epoll", "edge-epoll", "dup-epoll", "fresh-epoll"]
UNSEEN = [
    "mixed-epoll",
    "bare-poll",
    "bare-select",
    "bare-epoll",
    "bare-edge-epoll",
    "bare-fresh-epoll",
    "bare-aio",
]
SHORT_SEEN = ["edge-epoll", "dup-epoll", "fresh-epoll"]
SHORT_UNSEEN = ["mixed-epoll", "bare-poll", "bare-epoll", "bare-aio"]


class Suite:
    """Ways to wait, by libc and past it."""

    name = "Waits"
    is_short = True
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        self.echo = built_echo(cache)
        self.bare = built_echo(cache, "-DBARE")
        self.version = None

    def batches(self, short):
        # Each connection past libc waits in vain for its ring: few of them in the short form.
        for name, program, waits, load in (
            ("by libc", self.echo, SHORT_SEEN if short else SEEN, "many"),
            ("past libc", self.bare, SHORT_UNSEEN if short else UNSEEN, "short"),
        ):
            programs = {wait: f"{program} {wait}" for wait in waits}
            loads = [load] if short else USUAL
            yield Job(name, programs, f"{self.echo} threads", loads)
