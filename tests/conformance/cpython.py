"""CPython's own tests, from Debian's libpython3.11-testsuite with its own interpreter."""

import pathlib

import fetch

PACKAGES = [
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libpython3.11-testsuite",
]

MODULES = [
    "test_socket",
    "test_asyncio",
    "test_selectors",
    "test_ssl",
    "test_subprocess",
    "test_httplib",
    "test_ftplib",
    "test_multiprocessing_fork",
    "test_multiprocessing_forkserver",
    "test_multiprocessing_spawn",
    "test_concurrent_futures",
    "test_eintr",
    "test_select",
    "test_poll",
    "test_epoll",
    "test_signal",
    "test_socketserver",
    "test_httpservers",
    "test_urllib2_localnet",
    "test_xmlrpc",
    "test_docxmlrpc",
    "test_smtplib",
    "test_smtpd",
    "test_poplib",
    "test_imaplib",
    "test_nntplib",
    "test_telnetlib",
    "test_asyncore",
    "test_asynchat",
    "test_wsgiref",
    "test_logging",
    "test_os",
    "test_posix",
    "test_fcntl",
    "test_fork1",
    "test_wait3",
    "test_wait4",
]

# AF_VSOCK: its tests hang in virtual machines that have no loopback transport for it.
LEFT_OUT = ["VSOCK"]

# In continuous integration: some two minutes in three modes.
SHORT = {
    "test_socket": [
        "BasicTCPTest",
        "NonBlockingTCPTests",
        "TCPTimeoutTest",
        "SendfileUsingSend",
        "SendmsgTCPTest",
        "RecvmsgIntoTCPTest",
        "FileObjectClassTestCase",
    ],
    "test_asyncio": ["test_sock_lowlevel", "test_sendfile", "test_streams", "test_server"],
    "test_epoll": [],
    "test_httplib": [],
}


class Module:
    """One test module; its tests by name."""

    timeout_s = 900

    def __init__(self, home, name, parts=()):
        self.home = home
        self.name = name
        # Parts of names; only tests with one of these. None: all.
        self.parts = parts

    def run(self, run, folder, only=()):
        """Results by test. A test that hangs or ends the process is left out of the next try."""
        results = {}
        driver = pathlib.Path(__file__).with_name("cpython_driver.py")
        for attempt in range(8):
            out = folder / f"results-{attempt}"
            argv = [self.home / "bin/python3.11", driver, out, f"test.{self.name}"]
            argv += ["--leave-out", *LEFT_OUT]
            if self.parts:
                argv += ["--parts", *self.parts]
            if only:
                argv += ["--only", *only]
            if results:
                argv += ["--skip", *results]
            environment = {"PYTHONHOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
            done = run(argv, environment, self.timeout_s)
            begun, is_complete = None, False
            for line in out.read_text().splitlines() if out.exists() else []:
                word, name = line.split(" ", 1)
                if word == "start":
                    begun = name
                elif word == "end":
                    is_complete = True
                else:
                    results[name] = word
                    begun = None
            if begun is not None:
                timed_out = done.rc is None or "Timeout (0:" in done.output
                results[begun] = "hang" if timed_out else "crash"
            if is_complete or begun is None:
                break
        if not results:
            results[f"test.{self.name}"] = "error"
        return results


class Suite:
    name = "CPython"
    is_short = True
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        root = fetch.packages(cache, PACKAGES)
        self.version = fetch.version(cache, "libpython3.11-testsuite")
        self.home = root / "usr"

    def batches(self, short):
        if short:
            return [Module(self.home, name, parts) for name, parts in SHORT.items()]
        return [Module(self.home, name) for name in MODULES]
