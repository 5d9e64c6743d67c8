"""Rust's runtimes: their own tests, as their packages carry them, and our jobs on them and on threads."""

import json
import pathlib
import re
import shutil

import fetch
import jobs

# Of mio and smol the packages leave the tests out; polling is what smol and async-std wait by.
VERSIONS = {"tokio": "1.54.1", "async-std": "1.13.2", "async-io": "2.6.0", "polling": "3.11.0"}

# Tests of sockets, waiting and processes; the rest is of files, time and locks.
KINDS = {
    "tokio": r"tcp_|udp|uds_|unix_|net_(?!named_pipe)|process_|signal_|"
    r"rt_(basic|common|handle|threaded)|io_(async_fd|copy|driver|panic|poll_aio|split)",
    "async-std": r"addr|io_|tcp|timeout|udp|uds",
    "async-io": r"async|block_on|issue|timer",
    "polling": r"(?!windows)",
}

ECHO = jobs.SOURCES / "rust"

MANIFEST = """
[workspace]
resolver = "2"
members = [{members}]

[profile.dev]
debug = false

# What its tests use depends on tokio itself.
[patch.crates-io]
tokio = {{ path = "tokio" }}
"""


def workspace(cache):
    """A folder with the packages' sources as a workspace."""
    folder = cache / ("crates-" + "-".join(VERSIONS.values()))
    if not (folder / ".complete").exists():
        fetched = folder / "fetch"
        (fetched / "src").mkdir(parents=True, exist_ok=True)
        (fetched / "src/lib.rs").touch()
        lines = ["[package]", 'name = "fetch"', 'version = "0.0.0"', "[workspace]", "[dependencies]"]
        lines += [f'{name} = "={version}"' for name, version in VERSIONS.items()]
        (fetched / "Cargo.toml").write_text("\n".join(lines) + "\n")
        found = fetch.call(["cargo", "metadata", "-q", "--format-version", "1"], cwd=fetched)
        for package in json.loads(found)["packages"]:
            if VERSIONS.get(package["name"]) == package["version"]:
                source = pathlib.Path(package["manifest_path"]).parent
                shutil.copytree(source, folder / package["name"], dirs_exist_ok=True)
        members = ", ".join(f'"{name}"' for name in [*VERSIONS, "echo"])
        (folder / "Cargo.toml").write_text(MANIFEST.format(members=members))
        (folder / ".complete").touch()
    shutil.copytree(ECHO, folder / "echo", dirs_exist_ok=True)
    return folder


def build(folder, *options):
    """The executables that `cargo test --no-run` or `build` makes, by target."""
    cargo = ["cargo", *options, "-q", "--message-format", "json", "--target-dir", "target"]
    built = {}
    for line in fetch.call(cargo, cwd=folder).splitlines():
        message = json.loads(line)
        if message.get("executable"):
            built[message["target"]["name"]] = message["executable"]
    return built


class Tests:
    """All tests of one package."""

    timeout_s = 1800

    def __init__(self, name, programs):
        self.name = name
        self.programs = programs

    def run(self, run, folder, only=()):
        out = folder / "results"
        out.unlink(missing_ok=True)
        driver = pathlib.Path(__file__).with_name("crates_driver.py")
        argv = ["python3", driver, out]
        argv += [f"{name}={path}" for name, path in self.programs.items()]
        argv += ["--only", *only] if only else []
        run(argv, {}, self.timeout_s)
        lines = out.read_text().splitlines() if out.exists() else []
        results = dict(reversed(line.split(" ", 1)) for line in lines)
        return results or {f"{self.name} (all)": "error"}


class Suite:
    name = "Rust"
    is_short = False
    # Batches use nothing in common.
    is_apart = True

    def prepare(self, cache):
        self.echo = jobs.built_echo(cache)
        folder = workspace(cache)
        self.version = ", ".join(f"{name} {version}" for name, version in VERSIONS.items())
        self.jobs = build(folder, "build", "-p", "echo")
        self.tests = {}
        for name in VERSIONS:
            # Not by -p: others may have another copy of it among what they use.
            options = ["--manifest-path", f"{name}/Cargo.toml"]
            for path in sorted((folder / name / "tests").glob("*.rs")):
                if re.match(KINDS[name], path.stem):
                    options += ["--test", path.stem]
            if name == "tokio":
                options += ["--features", "full"]
            self.tests[name] = build(folder, "test", "--no-run", *options)

    def batches(self, short):
        opposite = f"{self.echo} threads"
        programs = {name.replace("_", "-"): path for name, path in self.jobs.items()}
        yield jobs.Job("jobs", programs, opposite)
        for name, programs in self.tests.items():
            yield Tests(name, programs)
