"""PHP's own tests of streams, sockets and TLS, from Debian's source, with Debian's interpreter."""

import pathlib
import shutil

import fetch

RELEASE = "bookworm"

KINDS = {
    "streams": "ext/standard/tests/streams",
    "network": "ext/standard/tests/network",
    "sockets": "ext/sockets/tests",
    "openssl": "ext/openssl/tests",
}
# What these include besides.
NEEDED = ["ext/standard/tests/http", "ext/ftp/tests", "sapi/cli/tests"]

OUTCOMES = {"PASSED": "pass", "XFAILED": "pass", "SKIPPED": "skip", "BORKED": "error"}


class Tests:
    """The files of one folder, each in a process of its own, one after the other."""

    timeout_s = 900

    def __init__(self, name, tree):
        self.name = name
        self.tree = tree

    def run(self, run, folder, only=()):
        # The tests leave their files in their own tree.
        tree = folder / "php"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(self.tree, tree, symlinks=True)
        tests = sorted((tree / KINDS[self.name]).rglob("*.phpt"))
        files = [path for path in tests if not only or path.stem in only]
        out = folder / "results"
        out.unlink(missing_ok=True)
        php = shutil.which("php8.2")
        argv = [
            *["env", f"--chdir={tree}", php, "run-tests.php", "-q", "-p", php],
            *["--offline", "--no-color", "--no-progress", "-W", out, *files],
        ]
        done = run(argv, {}, self.timeout_s)
        results = {}
        for line in out.read_text().splitlines() if out.exists() else []:
            word, path = line.split(maxsplit=1)
            results[pathlib.Path(path).stem] = OUTCOMES.get(word, "fail")
        for path in files:
            if path.stem not in results:
                results[path.stem] = "hang" if done.rc is None else "crash"
                break
        return results


class Suite:
    name = "PHP"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        if not shutil.which("php8.2"):
            raise fetch.Unavailable("php8.2: apt-get install php8.2-cli")
        source, number = fetch.source(cache, "php8.2", RELEASE)
        # Security updates are ahead of the release's source.
        installed = fetch.call(["php8.2", "-r", "echo PHP_VERSION;"])
        self.version = f"{installed} with the tests of {number}"
        self.tree = cache / f"php-{number}"
        if not (self.tree / ".complete").exists():
            shutil.rmtree(self.tree, ignore_errors=True)
            for path in [*KINDS.values(), *NEEDED]:
                shutil.copytree(source / path, self.tree / path)
            shutil.copy(source / "run-tests.php", self.tree)
            (self.tree / ".complete").touch()

    def batches(self, short):
        return [Tests(name, self.tree) for name in KINDS]
