"""Erlang/OTP's own tests of gen_tcp, from Debian's source, with Debian's virtual machine."""

import re
import shutil

import fetch

RELEASE = "bookworm"

# With what is left out of them. iter_max_socks connects 20,000 times and accepts only then, in one
# process; where connect waits up to 50 ms for its channel, that lasts 18 minutes.
SUITES = {"gen_tcp_api": [], "gen_tcp_echo": [], "gen_tcp_misc": ["iter_max_socks"]}

# What they need that is not installed.
MODULES = [
    *[f"kernel/test/{name}_SUITE.erl" for name in SUITES],
    "kernel/test/kernel_test_lib.erl",
    "kernel/test/kernel_test_sys_monitor.erl",
    "kernel/test/kernel_test_global_sys_monitor.erl",
    "common_test/test_server/ts_install_cth.erl",
    "common_test/test_server/ts_lib.erl",
]

SAID = re.compile(r"^=(case|result) +(?:\w+:)?(\w+)", re.MULTILINE)
OUTCOMES = {"ok": "pass", "skipped": "skip", "auto_skipped": "skip"}


class Tests:
    """One suite, in one virtual machine."""

    timeout_s = 1800

    def __init__(self, name, beams):
        self.name = name
        self.beams = beams

    def run(self, run, folder, only=()):
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
        suite = f"{self.name}_SUITE"
        lines = [f'{{suites, "{self.beams}", {suite}}}.\n']
        for case in SUITES[self.name]:
            lines.append(f'{{skip_cases, "{self.beams}", {suite}, {case}, "left out"}}.\n')
        all_of_it = folder / "spec"
        all_of_it.write_text("".join(lines))
        some = ["-dir", self.beams, "-suite", suite, "-case", *only]
        argv = [
            *["ct_run", "-noshell", "-noinput", "-no_auto_compile", "-logdir", logs],
            *(some if only else ["-spec", all_of_it]),
        ]
        # Its cookie is written there.
        run(argv, {"HOME": str(folder)}, self.timeout_s)
        results, name = {}, None
        for log in logs.glob("*/*/*/suite.log"):
            for word, value in SAID.findall(log.read_text(errors="replace")):
                if word == "case":
                    name = value
                    results[name] = "hang"
                else:
                    results[name] = OUTCOMES.get(value, "fail")
        for frame in [name for name in results if re.match("(init|end)_per_", name)]:
            if results[frame] == "pass":
                del results[frame]
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "Erlang"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        if not shutil.which("ct_run"):
            raise fetch.Unavailable("ct_run: apt-get install erlang-common-test")
        tree, self.version = fetch.source(cache, "erlang", RELEASE)
        self.beams = cache / "erlang-build"
        if not (self.beams / ".complete").exists():
            self.beams.mkdir(exist_ok=True)
            sources = [tree / "lib" / path for path in MODULES]
            fetch.call(["erlc", "-I", tree / "lib", "-o", self.beams, *sources])
            (self.beams / ".complete").touch()

    def batches(self, short):
        return [Tests(name, self.beams) for name in SUITES]
