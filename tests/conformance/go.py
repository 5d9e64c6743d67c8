"""Go's own tests of its packages, linked with libc (cgo) and static."""

import itertools
import re
import shutil

import fetch

PACKAGES = [
    "net",
    "net/http",
    "net/http/httptest",
    "net/http/httputil",
    "net/rpc",
    "net/smtp",
    "net/textproto",
    "crypto/tls",
    "internal/poll",
    "log/syslog",
    "os",
    "os/exec",
    "os/signal",
]

# What is said behind a package's name, and whether it is linked with libc.
KINDS = {"": "1", ", static": "0"}

SAID = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
OUTCOMES = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}


class Package:
    """One package's tests, by name."""

    timeout_s = 600

    def __init__(self, name, program, source):
        self.name = name
        self.program = program
        self.source = source

    def run(self, run, folder, only=()):
        argv = [self.program, "-test.short", "-test.v", f"-test.timeout={self.timeout_s}s"]
        names = f"-test.run=^({'|'.join(map(re.escape, only))})$"
        # The tests look for files in their package.
        shell = ["sh", "-c", 'cd "$0" && exec "$@"', self.source]
        done = run([*shell, *argv, *([names] if only else [])], {}, self.timeout_s)
        results = {name: OUTCOMES[word] for word, name in SAID.findall(done.output)}
        if done.rc is None:
            results[f"{self.name} (all)"] = "hang"
        elif "panic: " in done.output and not results:
            results[f"{self.name} (all)"] = "crash"
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "Go"
    is_short = False
    is_apart = True

    def prepare(self, cache):
        if not shutil.which("gcc"):
            raise fetch.Unavailable("gcc is not installed: without it Go does not link with libc")
        root, version = fetch.call(["go", "env", "GOROOT", "GOVERSION"]).split()
        self.version = version.removeprefix("go")
        self.source = f"{root}/src"
        self.folder = cache / f"go-{self.version}"
        self.folder.mkdir(parents=True, exist_ok=True)
        for package, kind in itertools.product(PACKAGES, KINDS):
            program = self.program(package, kind)
            if not program.exists():
                argv = ["env", f"CGO_ENABLED={KINDS[kind]}", "go", "test", "-c", "-o", program, "."]
                fetch.call(argv, cwd=f"{self.source}/{package}")

    def program(self, package, kind):
        return self.folder / (package.replace("/", "-") + kind.replace(", ", "-"))

    def batches(self, short):
        for kind, package in itertools.product(KINDS, PACKAGES):
            program = self.program(package, kind)
            yield Package(package + kind, program, f"{self.source}/{package}")
