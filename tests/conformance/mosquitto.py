"""mosquitto's own tests of its broker and its client library, from Debian's newer source."""

import pathlib
import re
import shutil
import sys

import fetch

RELEASE = "trixie"
DRIVER = pathlib.Path(__file__).with_name("mosquitto_driver.py")

# Folders below test/.
KINDS = ["broker", "lib"]

# The plugin that these are about needs cJSON.
LEFT_OUT = re.compile(r"14-dynsec")
# With the number of ports: (1, './02-subpub-qos1.py'),
# (1, ['./02-subscribe-qos1.py', 'c/02-subscribe-qos1.test'])
LISTED = re.compile(r"^\s*\((\d+), \[?'\./([^']+)'(?:, '([^']+)')?", re.MULTILINE)

OPTIONS = ["WITH_CJSON=no", "WITH_DOCS=no"]


class Tests:
    """Scripts that start brokers and clients, a few side by side at ports of their own."""

    timeout_s = 900

    def __init__(self, name, tree):
        self.name = name
        self.tree = tree

    def run(self, run, folder, only=()):
        # The tests leave their files in their own tree.
        tree = folder / "mosquitto"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(self.tree, tree, symlinks=True)
        below = tree / "test" / self.name
        found = LISTED.findall((below / "test.py").read_text())
        ports = {" ".join(filter(None, words)): count for count, *words in found}
        names = only or [name for name in ports if not LEFT_OUT.match(name)]
        out = folder / "results"
        out.unlink(missing_ok=True)
        argv = ["env", f"--chdir={below}", sys.executable, DRIVER, out]
        argv += [f"{ports[name]} {name}" for name in names]
        done = run(argv, {}, self.timeout_s)
        results = {}
        for line in out.read_text().splitlines() if out.exists() else []:
            word, name = line.split(maxsplit=1)
            results[name] = word
        for name in names:
            results.setdefault(name, "hang" if done.rc is None else "error")
        return results


class Suite:
    name = "mosquitto"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        source, self.version = fetch.source(cache, "mosquitto", RELEASE)
        self.tree = cache / "mosquitto-build"
        if not (self.tree / ".complete").exists():
            shutil.rmtree(self.tree, ignore_errors=True)
            shutil.copytree(source, self.tree, symlinks=True)
            # As another user it would not get to this run's broker.
            conf = self.tree / "src/conf.c"
            text = conf.read_text().replace('strdup("mosquitto")', 'strdup("root")')
            conf.write_text(text)
            fetch.call(["make", "-j2", "binary", *OPTIONS], cwd=self.tree)
            for below in ("broker/c", "lib/c", "lib/cpp"):
                fetch.call(["make", "-C", f"test/{below}", *OPTIONS], cwd=self.tree)
            # Some of the certificates that are there cannot be read, and the others end.
            fetch.call(["sh", "gen.sh"], cwd=self.tree / "test/ssl")
            (self.tree / ".complete").touch()

    def batches(self, short):
        return [Tests(name, self.tree) for name in KINDS]
