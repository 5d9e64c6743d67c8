"""Ruby's own tests, from Debian's source, with Debian's interpreter of the same version."""

import re
import shutil

import fetch

RELEASE = "bookworm"

# Folders and files below test/. What openssl has past these sends nothing.
KINDS = {
    "socket": ["socket"],
    "net": ["net"],
    "tls": ["openssl/test_pair.rb", "openssl/test_ssl.rb", "openssl/test_ssl_session.rb"],
    "drb": ["drb"],
    "fiber": ["fiber"],
}

# A test is named when it begins; what became of it is told at the end, unless it passed.
BEGUN = re.compile(r"^\[ *\d+/\d+\] (\S+#\S+) = ", re.MULTILINE)
REPORT = re.compile(r"^ *\d+\) (Skipped|Failure|Error):\n(\S+#\S+?)(?::$| \[)", re.MULTILINE)
OUTCOMES = {"Skipped": "skip", "Failure": "fail", "Error": "error"}
OVER = re.compile(r"^\d+ tests, \d+ assertions, ", re.MULTILINE)


class Tests:
    """The tests of one kind, in one process."""

    timeout_s = 900

    def __init__(self, name, tree):
        self.name = name
        self.tree = tree

    def run(self, run, folder, only=()):
        names = f"/^({'|'.join(map(re.escape, only))})$/"
        argv = [
            *["env", f"--chdir={self.tree}", "ruby", "test/runner.rb"],
            *["-v", "--show-skip", "--seed=1"],
            *(["-n", names] if only else []),
            *[f"test/{path}" for path in KINDS[self.name]],
        ]
        done = run(argv, {}, self.timeout_s)
        results = {name: "pass" for name in BEGUN.findall(done.output)}
        if results and not OVER.search(done.output):
            results[list(results)[-1]] = "hang" if done.rc is None else "crash"
        results |= {name: OUTCOMES[word] for word, name in REPORT.findall(done.output)}
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "Ruby"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        if not shutil.which("ruby"):
            raise fetch.Unavailable("ruby: apt-get install ruby")
        self.tree, self.version = fetch.source(cache, "ruby3.1", RELEASE)
        # The certificates that are there were good until 2024.
        fixtures = self.tree / "test/net/fixtures"
        if not (fixtures / ".complete").exists():
            fetch.call(["make", "-C", fixtures, "regen_certs"])
            (fixtures / ".complete").touch()

    def batches(self, short):
        return [Tests(name, self.tree) for name in KINDS]
