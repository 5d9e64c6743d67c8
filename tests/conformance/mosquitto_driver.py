"""Runs mosquitto's test scripts in the current folder, a few side by side.

    mosquitto_driver.py OUT "PORTS SCRIPT [ARGUMENT]"...

OUT gets one line for each, "OUTCOME SCRIPT [ARGUMENT]".
"""

import concurrent.futures
import os
import queue
import signal
import subprocess
import sys

SIDE_BY_SIDE = 4
SCRIPT_TIMEOUT_S = 60
# A script writes files that are named for its first port.
PORTS = range(1888, 1888 + 10 * SIDE_BY_SIDE, 10)


def run(name, count, port):
    ports = [str(port + more) for more in range(count)]
    process = subprocess.Popen(
        [sys.executable, *name.split(), *ports],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    outcome = None
    try:
        output, _ = process.communicate(timeout=SCRIPT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        outcome = "hang"
    if outcome is None:
        outcome = "pass" if process.returncode == 0 else "fail"
    if outcome != "pass":
        print(f"==== {name}: {outcome}\n{output}", flush=True)
    return outcome


def main():
    out, *scripts = sys.argv[1:]
    free = queue.Queue()
    for port in PORTS:
        free.put(port)
    with open(out, "a") as results:

        def one(script):
            count, name = script.split(maxsplit=1)
            port = free.get()
            print(run(name, int(count), port), name, file=results, flush=True)
            free.put(port)

        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            list(pool.map(one, scripts))


if __name__ == "__main__":
    main()
