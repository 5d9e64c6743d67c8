"""Perl's own tests of sockets, and those of what its programs use for them, from Debian's sources,
with Debian's interpreter and modules."""

import re
import shutil

import fetch

RELEASE = "bookworm"

# Modules, as packages; the first names their folder.
MODULES = (
    "libmojolicious-perl libanyevent-perl libclone-perl libcommon-sense-perl "
    "libencode-locale-perl libev-perl libfile-listing-perl libguard-perl libhtml-parser-perl "
    "libhtml-tagset-perl libhttp-cookies-perl libhttp-daemon-perl libhttp-date-perl "
    "libjs-bootstrap4 libjs-highlight.js libjs-jquery "
    "libhttp-message-perl libhttp-negotiate-perl libio-html-perl libio-socket-ssl-perl "
    "liblwp-mediatypes-perl libnet-http-perl libnet-ssleay-perl libtest-fatal-perl "
    "libtest-needs-perl libtest-requiresinternet-perl libtimedate-perl libtry-tiny-perl "
    "liburi-perl libwww-perl libwww-robotrules-perl"
).split()
LIBRARIES = ["usr/share/perl5", "usr/lib/x86_64-linux-gnu/perl5/5.36"]

# Of Perl's tests of IO.
SOCKETS = (
    "cachepropagate-* io_dup io_leak io_multihomed io_pipe io_poll io_sel io_sock* io_udp io_unix io_xs"
).split()

# Of Mojolicious's tests of its parts.
NETWORK = (
    "daemon hypnotoad ioloop morbo prefork promise reactor subprocess tls user_agent websocket"
).split()

# Source, folder below it to run in, and tests there.
KINDS = {
    "core": (
        "perl",
        "t",
        ["io/socket.t", "io/socketpair.t", "io/pipe.t", "io/eintr*.t", "io/dup.t", "op/sselect.t"],
    ),
    "IO": (
        "perl",
        "dist/IO",
        [f"t/{name}.t" for name in SOCKETS],
    ),
    "Socket": ("perl", "cpan/Socket", ["t/*.t"]),
    "IO-Socket-IP": ("perl", "cpan/IO-Socket-IP", ["t/[0-3]*.t"]),
    "libnet": ("perl", "cpan/libnet", ["t/*.t"]),
    "HTTP-Daemon": ("libhttp-daemon-perl", "", ["t/[a-z]*.t"]),
    "LWP": ("libwww-perl", "", ["t/local/*.t", "t/robot/*.t", "t/base/*.t"]),
    "IO-Socket-SSL": ("libio-socket-ssl-perl", "", ["t/[a-z]*.t"]),
    "AnyEvent": ("libanyevent-perl", "", ["t/[0158]*.t", "t/handle/*.t"]),
    "AnyEvent with EV": ("libanyevent-perl", "", ["t/69*.t", "t/0*.t", "t/80*.t", "t/handle/*.t"]),
    "Mojo": ("libmojolicious-perl", "", [f"t/mojo/{name}*.t" for name in NETWORK]),
    "Mojolicious": ("libmojolicious-perl", "", ["t/mojolicious/*.t"]),
}
# What Perl's own tests need besides.
CORE = ["t/test.pl", "t/charset_tools.pl", "t/loc_tools.pl", "t/io", "t/op", "t/lib"]

# What the tests leave out unless told; none of it needs more than this machine.
ASKED = "EV HYPNOTOAD IPV6 MORBO PREFORK SUBPROCESS TLS UNIX".split()

# Mojolicious's certificates are of 2014.
OPENSSL = """openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = default
[default]
CipherString = DEFAULT@SECLEVEL=0
"""

# Some leave out the number, and say what they find.
SAID = re.compile(r"^(not ok|ok)\b(?: (\d+))?(.*)$", re.MULTILINE)


def outcome(word, rest):
    return "skip" if re.search(r"(?i)# (skip|todo)", rest) else "pass" if word == "ok" else "fail"


class Tests:
    """Files of numbered tests, each a process of its own, one after the other."""

    timeout_s = 1200

    def __init__(self, name, tree, root):
        self.name = name
        self.tree = tree
        self.root = root

    def run(self, run, folder, only=()):
        # The tests leave their files in their own tree.
        tree = folder / "perl"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(self.tree, tree, symlinks=True)
        below = tree / KINDS[self.name][1]
        wanted = {name.partition(" ")[0] for name in only}
        found = [path for one in KINDS[self.name][2] for path in sorted(below.glob(one))]
        files = [str(path.relative_to(below)) for path in found]
        files = [file for file in files if not wanted or file in wanted]
        environment = {f"TEST_{word}": "1" for word in ASKED}
        environment |= {
            "PERL5LIB": ":".join(str(self.root / path) for path in LIBRARIES),
            "PERL_ANYEVENT_LOOP_TESTS": "1",
            "PERL_ANYEVENT_MODEL": "EV" if self.name.endswith(" EV") else "Perl",
            "NO_NETWORK_TESTING": "1",
            "HOME": str(folder),
        }
        if self.name.startswith("Mojo"):
            settings = folder / "openssl.cnf"
            settings.write_text(OPENSSL)
            environment["OPENSSL_CONF"] = str(settings)
        each = (
            'for test; do echo "begun $test"; timeout 60 perl -w -I. "$test"; '
            'rc=$?; echo; echo "ended $rc"; done'
        )
        argv = ["env", f"--chdir={below}", "sh", "-c", each, "sh", *files]
        done = run(argv, environment, self.timeout_s)
        results = {}
        for part in re.split(r"^begun ", done.output, flags=re.MULTILINE)[1:]:
            file = part.split()[0]
            for word, number, rest in SAID.findall(part):
                test = number or re.sub(r"0x[0-9a-f]+|\d+", "N", rest.strip())
                results[f"{file} {test}"] = outcome(word, rest)
            ended = re.search(r"^ended (\d+)$", part, re.MULTILINE)
            if ended is None or ended[1] == "124":
                results[f"{file} (end)"] = "hang"
            elif re.search(r"^1\.\.0\b", part, re.MULTILINE):
                results[f"{file} (end)"] = "skip"
            else:
                results[f"{file} (end)"] = "pass" if ended[1] == "0" else "fail"
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "Perl"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        self.root = fetch.packages(cache, MODULES)
        versions, self.trees = {}, {}
        for source, _, _ in KINDS.values():
            if source not in versions:
                tree, versions[source] = fetch.source(cache, source, RELEASE)
                self.trees[source] = tree
        self.version = versions["perl"]
        # The core's are many; without the rest these use what is installed.
        part = cache / f"perl-{self.version}"
        if not (part / ".complete").exists():
            shutil.rmtree(part, ignore_errors=True)
            modules = [below for _, below, _ in KINDS.values() if "/" in below]
            for path in [*CORE, *modules]:
                whole = self.trees["perl"] / path
                if whole.is_file():
                    (part / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(whole, part / path)
                else:
                    shutil.copytree(whole, part / path)
            # They look for the modules of a build of their own only.
            for path in [part / "t/test.pl", *part.glob("t/*/*.t")]:
                text = path.read_bytes()
                text = text.replace(b"@INC = () unless is_miniperl;", b"")
                path.write_bytes(re.sub(rb"@INC = (?=['q(])", b"push @INC, ", text))
            shutil.copy(part / "t/test.pl", part / "dist/IO/t")
            (part / ".complete").touch()
        self.trees["perl"] = part

    def batches(self, short):
        for name, (source, _, _) in KINDS.items():
            yield Tests(name, self.trees[source], self.root)
