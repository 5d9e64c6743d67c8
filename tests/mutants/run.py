#!/usr/bin/env python3
"""Are the random programs able to find what they are for? One rule of the library at a time is
taken out, and random programs of all classes run until they find a difference.

    run.py --bin DIR --work DIR --program FILE [--seconds N] [--only NAME]...

DIR holds the built programs, FILE is the test binary of the random programs. A copy of the sources
is changed and built in the working folder. Exit code 1 where a change was not found in time; 2 where
one does not fit the sources any more.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
PRELOAD = "crates/preload/src"

# What is broken, where, and how: the text as it is, once in its file, and as it becomes.
MUTANTS = {
    "waits-unseen": (
        "a program that waits by system calls of its own gets rings like any other",
        "text.rs",
        "    STATE.load(Ordering::Relaxed) & KIND == CLEAN || look_on()\n",
        "    true\n",
    ),
    "set-closed": (
        "a closed set keeps its registrations",
        "set.rs",
        """            for one in registration::all(|one| one.is_of(self)) {
                self.drop_hot(one);
                one.free();
            }
        }
        self.lets_go();
""",
        """        }
        self.lets_go();
""",
    ),
    "set-duplicated": (
        "a set's second number names no set",
        "set/numbers.rs",
        """    set.names.fetch_add(1, Ordering::Relaxed);
    table::set_set(to, set.address());
""",
        """    set.names.fetch_add(1, Ordering::Relaxed);
    let _ = to;
""",
    ),
    "socket-duplicated": (
        "of several registrations of a socket only one is told of its ring",
        "set/numbers.rs",
        "    registration::at(fd).all(|one| {\n        let Some(set) = one.set() else { return true };\n        if one.is_kernels_alone() {",
        "    registration::at(fd).take(1).all(|one| {\n        let Some(set) = one.set() else { return true };\n        if one.is_kernels_alone() {",
    ),
    "behind-tcp": (
        "who sleeps forgets ring bytes that lie behind TCP's",
        "epoll_wait.rs",
        "        if receiver.is_drained() || receiver.is_broken() {\n",
        "        if receiver.state_seen() == State::Parked {\n",
    ),
    "borrowed-memory": (
        "a vfork child acts on its parent's table",
        "process.rs",
        "    (lends::get() != 0 || LENDS_BESIDE.load(Ordering::Relaxed)) && is_a_borrower()\n",
        "    false && is_a_borrower()\n",
    ),
    "other-names": (
        "libc's other names of the same calls go past the library",
        "exports/aliases.rs",
        "    __read = stream::read;\n    __write = stream::write;\n    __recv = stream::recv;\n    __send = stream::send;\n",
        "",
    ),
    "passed-on": (
        "a socket that is passed on leaves nothing of what is unread",
        "passing.rs",
        "may_claim(via) && leave(conn, fd)",
        "!may_claim(via) && leave(conn, fd)",
    ),
    "urgent": (
        "an urgent byte counts like any other",
        "tcp.rs",
        "    sys::poll_now(fd, sys::POLLPRI) & sys::POLLPRI != 0 || queue(fd, sys::SIOCATMARK) == Some(1)\n",
        "    fd < 0\n",
    ),
    "options-early": (
        "what a socket was set to before it got a channel does not matter",
        "settings.rs",
        "    is_set || has_filter(fd) || has_upper_layer(fd) || is_async(fd)\n",
        "    (is_set || has_filter(fd) || has_upper_layer(fd) || is_async(fd)) && fd < 0\n",
    ),
    "close-beside-read": (
        "a connection's memory goes while others look at it",
        "life.rs",
        """    if !set::numbers::leave(fd) {
        return;
    }
    let is_unpinned = conn.await_pins();
    if is_unpinned {
        conn.unmap();
    }
    residue::drop_of(conn);
""",
        """    let is_unpinned = true;
    if is_unpinned {
        conn.unmap();
    }
    residue::drop_of(conn);
""",
    ),
    "places": (
        "bytes are told of by when they were sent, whatever the last wait told of",
        "set/registration.rs",
        "        (told >= set.waited_at.load(Ordering::Relaxed)).then_some(told)\n",
        "        (told > u64::MAX - set.waited_at.load(Ordering::Relaxed)).then_some(told)\n",
    ),
    "edges": (
        "ring bytes behind unread bytes of TCP are no edge",
        "set/hot.rs",
        "        && (conn.has_ring_next(receiver) || receiver.is_behind_tcp())\n",
        "        && conn.has_ring_next(receiver)\n",
    ),
}


def copied(tree):
    """The sources as git knows them, with what is not committed."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        source, copy = ROOT / name, tree / name
        if not source.is_file():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            shutil.copy2(source, copy)


def built(options, tree, path, text):
    """The folder of programs with the library made from the changed text."""
    target = options.work / "build"
    (tree / path).write_text(text)
    build = ["cargo", "build", "--quiet", "--release", "-p", "yasmin-preload"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "RUSTFLAGS": "-Awarnings"}
    subprocess.run(build, cwd=tree, env=environment, check=True)
    folder = options.work / "bin"
    folder.mkdir(exist_ok=True)
    for program in options.bin.iterdir():
        if program.is_file() and os.access(program, os.X_OK):
            shutil.copy2(program, folder)
    shutil.copy2(target / "release/libyasmin.so", folder)
    return folder


def found_after(options, folder):
    """Seconds until a program differed from plain TCP, and its seed; `None`: none did."""
    environment = {
        **os.environ,
        "YASMIN_BIN_DIR": str(folder),
        "YASMIN_DIFFERENTIAL_S": str(options.seconds),
        "YASMIN_DIFFERENTIAL_SEED": str(options.seed),
    }
    begun = time.monotonic()
    run = subprocess.Popen(
        [options.program, "--nocapture"],
        cwd=ROOT / "tests",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    for line in run.stdout:
        differs = re.match(r"seed (\d+) differs", line)
        if differs:
            # It is not needed smaller.
            os.killpg(run.pid, 9)
            return time.monotonic() - begun, differs[1]
    run.wait()
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=MUTANTS)
    options = parser.parse_args()
    options.bin, options.work = options.bin.resolve(), options.work.resolve()
    options.program = options.program.resolve()
    tree = options.work / "tree"
    missed = []
    for name in options.only or MUTANTS:
        what, file, before, after = MUTANTS[name]
        copied(tree)
        path = f"{PRELOAD}/{file}"
        text = (ROOT / path).read_text()
        if text.count(before) != 1:
            print(f"{name}: {path} does not have this text once:\n{before}", file=sys.stderr)
            sys.exit(2)
        found = found_after(options, built(options, tree, path, text.replace(before, after)))
        if found:
            print(f"{name}: {what}: found after {found[0]:.0f} s, seed {found[1]}", flush=True)
        else:
            missed.append(name)
            print(f"{name}: {what}: NOT found in {options.seconds} s", flush=True)
    sys.exit(1 if missed else 0)


main()
