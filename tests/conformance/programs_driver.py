"""Runs test programs one after the other.

    programs_driver.py OUT PROGRAM...

OUT gets one line for each, "OUTCOME NAME", as its exit code says; 77 is that it was skipped.
"""

import os
import pathlib
import signal
import subprocess
import sys

PROGRAM_TIMEOUT_S = 60


def run(program):
    process = subprocess.Popen(
        [program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return "hang", output
    outcome = {0: "pass", 77: "skip"}.get(process.returncode)
    return outcome or ("crash" if process.returncode < 0 else "fail"), output


def main():
    out, *programs = sys.argv[1:]
    with open(out, "a") as results:
        for program in programs:
            outcome, output = run(program)
            name = pathlib.Path(program).name
            if outcome not in ("pass", "skip"):
                print(f"==== {name}: {outcome}\n{output}", flush=True)
            print(outcome, name, file=results, flush=True)


if __name__ == "__main__":
    main()
