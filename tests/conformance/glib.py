"""GLib's own tests of sockets and of what waits on them, and glib-networking's of TLS, as Debian's
packages have them installed."""

import re

import fetch

PACKAGES = [
    "libglib2.0-tests",
    "libglib2.0-0",
    "glib-networking-tests",
    "glib-networking",
    "glib-networking-common",
    "libgnutls30",
    "libproxy1v5",
]
LIBRARIES = "usr/lib/x86_64-linux-gnu"
TESTS = "usr/libexec/installed-tests"

# Folder below TESTS, and its programs.
KINDS = {
    "socket": (
        "glib",
        "socket socket-address socket-listener socket-service pollable network-address "
        "network-monitor proxy-test tls-certificate tls-interaction",
    ),
    # With a library of its own preloaded, whose connect sleeps.
    "slow connect": ("glib", "gsocketclient-slow"),
    "gdbus": (
        "glib",
        "gdbus-peer gdbus-server-auth gdbus-auth gdbus-overflow gdbus-non-socket "
        "gdbus-connection-slow gdbus-connection-loss gdbus-close-pending gdbus-threading",
    ),
    "streams": (
        "glib",
        "unix-streams unix-fd io-stream converter-stream buffered-output-stream mainloop "
        "gsubprocess spawn-test spawn-multithreaded spawn-singlethread io-channel",
    ),
    "tls": ("glib-networking", "connection-gnutls certificate-gnutls file-database-gnutls"),
}

SAID = re.compile(r"^(not ok|ok) (?:\d+ )?(/\S+)(.*)$", re.MULTILINE)
ENDED = re.compile(r"^ended (\S+) (\d+)$", re.MULTILINE)


def outcome(word, rest):
    return "skip" if re.search(r"# (SKIP|TODO)", rest) else "pass" if word == "ok" else "fail"


class Tests:
    """Programs of many tests, one after the other. One that fails ends its program."""

    timeout_s = 900

    def __init__(self, name, root):
        self.name = name
        self.root = root

    def run(self, run, folder, only=()):
        below, programs = KINDS[self.name]
        tests = self.root / TESTS / below
        libraries = self.root / LIBRARIES
        environment = {
            # GLib's programs have their own libraries beside them.
            "LD_LIBRARY_PATH": f"{libraries}:{tests}",
            "GIO_EXTRA_MODULES": str(libraries / "gio/modules"),
            "G_TEST_SRCDIR": str(tests),
            "G_TEST_BUILDDIR": str(tests),
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
        }
        wanted = {name.partition(" ")[0] for name in only}
        slow = f"{tests}/slow-connect-preload.so:" if self.name == "slow connect" else ""
        each = (
            'for test; do echo "begun $test"; '
            f'env LD_PRELOAD="{slow}$LD_PRELOAD" timeout 120 {tests}/$test --tap; '
            'echo "ended $test $?"; done'
        )
        names = [name for name in programs.split() if not wanted or name in wanted]
        done = run(["sh", "-c", each, "sh", *names], environment, self.timeout_s)
        results = {}
        for part in re.split(r"^begun ", done.output, flags=re.MULTILINE)[1:]:
            program = part.split()[0]
            for word, path, rest in SAID.findall(part):
                results[f"{program} {path}"] = outcome(word, rest)
            rc = dict(ENDED.findall(part)).get(program)
            # 77: all of it was skipped.
            if rc not in ("0", "77"):
                results[f"{program} (end)"] = "hang" if rc in (None, "124") else "fail"
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "GLib"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        self.root = fetch.packages(cache, PACKAGES)
        self.version = fetch.version(cache, PACKAGES[0])

    def batches(self, short):
        return [Tests(name, self.root) for name in KINDS]
