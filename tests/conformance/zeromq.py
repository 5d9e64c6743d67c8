"""libzmq's own tests, from Debian's source."""

import pathlib

import fetch

RELEASE = "bookworm"

OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_STATIC=OFF",
    "-DENABLE_CURVE=OFF",
    "-DWITH_DOCS=OFF",
    "-DWITH_PERF_TOOL=OFF",
]


class Tests:
    """Programs that are one test each, one after the other."""

    timeout_s = 1800

    def __init__(self, name, programs):
        self.name = name
        self.programs = programs

    def run(self, run, folder, only=()):
        out = folder / "results"
        out.unlink(missing_ok=True)
        driver = pathlib.Path(__file__).with_name("programs_driver.py")
        programs = [path for path in self.programs if not only or path.name in only]
        run(["python3", driver, out, *programs], {}, self.timeout_s)
        lines = out.read_text().splitlines() if out.exists() else []
        results = dict(reversed(line.split(" ", 1)) for line in lines)
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "libzmq"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        tree, self.version = fetch.source(cache, "zeromq3", RELEASE)
        build = cache / "libzmq-build"
        self.folder = build / "bin"
        if not (build / ".complete").exists():
            build.mkdir(exist_ok=True)
            fetch.call(["cmake", tree, *OPTIONS], cwd=build)
            fetch.call(["make", "-j2"], cwd=build)
            (build / ".complete").touch()

    def batches(self, short):
        yield Tests("tests", sorted(self.folder.glob("test_*")))
