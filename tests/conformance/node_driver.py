"""Runs Node.js's test files one after the other, as its own runner does.

    node_driver.py OUT NODE FILE...

OUT gets one line for each, "OUTCOME NAME".
"""

import os
import pathlib
import re
import signal
import subprocess
import sys

TEST_TIMEOUT_S = 60


def flags_of(path):
    found = re.search(r"^// Flags:(.*)$", path.read_text(errors="replace"), re.MULTILINE)
    return found[1].split() if found else []


def run(node, path):
    """The outcome of one file, as its exit code says."""
    process = subprocess.Popen(
        [node, *flags_of(path), path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "NODE_TEST_DIR": os.getcwd(), "NODE_SKIP_CRYPTO": ""},
    )
    try:
        output, _ = process.communicate(timeout=TEST_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "hang", ""
    if re.search(r"^1\.\.0 # Skipped", output, re.MULTILINE):
        return "skip", ""
    if process.returncode < 0:
        return "crash", output
    return ("fail" if process.returncode else "pass"), output


def main():
    out, node, *files = sys.argv[1:]
    with open(out, "a") as results:
        for path in map(pathlib.Path, files):
            outcome, output = run(node, path)
            if outcome not in ("pass", "skip"):
                print(f"==== {path.stem}: {outcome}\n{output}", flush=True)
            print(outcome, path.stem, file=results, flush=True)


if __name__ == "__main__":
    main()
