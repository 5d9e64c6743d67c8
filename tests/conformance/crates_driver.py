"""Runs the test programs of a Rust package one after the other.

    crates_driver.py OUT NAME=PROGRAM... [--only TEST...]

OUT gets one line for each test, "OUTCOME NAME::TEST". After a test that hangs or ends its program
the rest of that program is run without it.
"""

import argparse
import os
import re
import signal
import subprocess
import tempfile

PROGRAM_TIMEOUT_S = 60

# libtest says a test's name before it runs it, where it runs one at a time.
SAID = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ?(ok|FAILED|ignored)?", re.MULTILINE)
OUTCOMES = {"ok": "pass", "FAILED": "fail", "ignored": "skip"}


def run(program, names, done):
    """Outcomes by test of one run of what is not done yet, and whether it came to its end."""
    skipped = [word for name in done for word in ("--skip", name)]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [program, "--test-threads=1", "--exact", *names, *skipped],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ended = "crash"
        try:
            process.wait(PROGRAM_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            ended = "hang"
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        output.seek(0)
        text = output.read()
    is_complete = "\ntest result: " in text
    found = {name: OUTCOMES.get(word, ended) for name, word in SAID.findall(text)}
    if not is_complete or "fail" in found.values():
        print(f"==== {program}\n{text}", flush=True)
    return found, is_complete


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    with open(options.out, "a") as out:
        for name, program in (word.split("=", 1) for word in options.programs):
            wanted = [test.split("::", 1)[1] for test in options.only if test.startswith(f"{name}::")]
            if options.only and not wanted:
                continue
            done = {}
            for _ in range(8):
                found, is_complete = run(program, wanted, done)
                done |= found
                for test, outcome in found.items():
                    print(outcome, f"{name}::{test}", file=out, flush=True)
                if is_complete or not found:
                    break


if __name__ == "__main__":
    main()
