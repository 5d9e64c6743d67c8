"""Tries to become a program, with more words than the system takes, and looks at itself. Then becomes it,
with the library and without, and compares what it says of itself.

    becomes.py first|other PROGRAM
"""

import os
import signal
import subprocess
import sys
import threading

which, program = sys.argv[1:]
came = []
signal.signal(signal.SIGCHLD, lambda number, frame: came.append(number))


def tracer():
    with open("/proc/self/status") as status:
        return next(line.split()[1] for line in status if line.startswith("TracerPid:"))


def fails():
    try:
        os.execv(program, [program] + ["x" * 100_000] * 40)
    except OSError as error:
        print("failed:", error.strerror)
        return
    sys.exit("it did not fail")


for _ in range(20):
    if which == "first":
        fails()
    else:
        thread = threading.Thread(target=fails)
        thread.start()
        thread.join()
try:
    os.waitpid(-1, os.WNOHANG)
    sys.exit("there is a child")
except ChildProcessError:
    pass
if came:
    sys.exit(f"{len(came)} signals came")
while tracer() != "0":
    pass

# What a process becomes by an exec of this shape, in its first thread or another one.
BECOMES = """
import os, sys, threading
def become(): os.execv(sys.argv[2], [sys.argv[2], "word"])
thread = threading.Thread(target=become)
become() if sys.argv[1] == "first" else (thread.start(), thread.join())
"""


def becomes(preloaded):
    environment = dict(os.environ)
    if not preloaded:
        environment.pop("LD_PRELOAD", None)
    command = [sys.executable, "-c", BECOMES, which, program]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
    out, err = process.communicate()
    if ("has the library" in err) != preloaded:
        sys.exit(f"the library is not where it should be: {err}")
    return process.returncode, out.replace(str(process.pid), "PID")


plain, injected = becomes(False), becomes(True)
if plain != injected:
    sys.exit(f"without the library {plain}\nwith it {injected}")
print(plain)
print("as it was")
