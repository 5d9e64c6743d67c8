"""Asio's own unit tests, from Debian's source of Boost, with the headers of the same."""

import concurrent.futures
import re

import fetch

RELEASE = "trixie"

# Those that open sockets or wait for descriptors; most of the rest only has to compile.
PROGRAMS = (
    "ip/tcp connect buffered_read_stream buffered_stream buffered_write_stream is_read_buffered "
    "is_write_buffered socket_base ip/udp ip/unicast ip/multicast ip/v6_only local/connect_pair "
    "local/stream_protocol local/datagram_protocol generic/stream_protocol posix/stream_descriptor "
    "readable_pipe writable_pipe connect_pipe read write read_until io_context signal_set "
    "steady_timer"
).split()

# What a program may wait by.
BACKENDS = {
    "epoll": [],
    "select": ["-DBOOST_ASIO_DISABLE_EPOLL"],
}

SAID = re.compile(r"^(\S+) (passed|failed)$", re.MULTILINE)


class Tests:
    """All programs with one way to wait, one after the other."""

    timeout_s = 600

    def __init__(self, name, folder):
        self.name = name
        self.folder = folder

    def run(self, run, folder, only=()):
        wanted = {name.partition(" ")[0] for name in only}
        names = [name for name in PROGRAMS if not wanted or name in wanted]
        each = (
            'for test; do echo "begun $test"; '
            f'timeout 60 {self.folder}/$(echo $test | tr / -); echo "ended $?"; done'
        )
        done = run(["sh", "-c", each, "sh", *names], {}, self.timeout_s)
        results = {}
        for part in re.split(r"^begun ", done.output, flags=re.MULTILINE)[1:]:
            program = part.split()[0]
            for test, word in SAID.findall(part):
                results[f"{program} {test}"] = {"passed": "pass", "failed": "fail"}[word]
            ended = re.search(r"^ended (\d+)$", part, re.MULTILINE)
            if ended is None or ended[1] not in ("0", "1"):
                hung = ended is None or ended[1] == "124"
                results[f"{program} (end)"] = "hang" if hung else "crash"
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "Asio"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        tree, self.version = fetch.source(cache, "boost1.83", RELEASE)
        self.build = cache / "asio-build"
        includes = [*tree.glob("libs/*/include"), *tree.glob("libs/*/*/include")]
        flags = ["-w", "-std=c++17", "-pthread", *[f"-I{path}" for path in includes]]

        def build(backend, name):
            folder = self.build / backend
            folder.mkdir(parents=True, exist_ok=True)
            program = folder / name.replace("/", "-")
            if not program.exists():
                source = tree / f"libs/asio/test/{name}.cpp"
                fetch.call(["g++", *flags, *BACKENDS[backend], source, "-o", program])

        both = [(backend, name) for backend in BACKENDS for name in PROGRAMS]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: build(*one), both))

    def batches(self, short):
        return [Tests(name, self.build / name) for name in BACKENDS]
