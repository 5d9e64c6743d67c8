"""What a connection between two guests costs: by netfront and netback, and under `yasmin run`, moved or left on TCP."""
import json
import statistics

import check_guests
import check_vsock
from bench_paths import SETTLE
from check import finish, run, start

PORT, COUNT = 7200, 24
# How far the next connection's port is: each its own, or all the same; and the channels that are kept.
KINDS = {
    "moved: a new port, a channel was kept": (1, 4),
    "moved: a new port, no channel is kept": (1, 0),
    "left on TCP: connections to the port are short": (0, 4),
}

SERVER = """
import socket, sys
port, count, stride = map(int, sys.argv[1:])
listeners = [socket.create_server(("", port + i), backlog=64) for i in range(count if stride else 1)]
print("listening", flush=True)
for i in range(count):
    connection = listeners[i * stride].accept()[0]
    while data := connection.recv(100):
        connection.sendall(data)
    connection.close()
"""

CLIENT = """
import json, socket, sys, time
address, (port, count, stride) = sys.argv[1], map(int, sys.argv[2:])
connects, all_of_it = [], []
for i in range(count):
    connection = socket.socket()
    started = time.perf_counter_ns()
    connection.connect((address, port + i * stride))
    connected = time.perf_counter_ns()
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    connection.close()
    connects.append((connected - started) / 1000)
    all_of_it.append((time.perf_counter_ns() - started) / 1000)
    # The other end's work is not this one's.
    time.sleep(0.02)
print(json.dumps([connects, all_of_it]))
"""


def measured(kind, prefix):
    """Medians of the later half, in us."""
    check_guests.ready()
    check_guests.script("b", "accepts", SERVER)
    check_guests.script("a", "connects", CLIENT)
    stride, kept = KINDS[kind]
    for domain in "ab":
        run(domain, f"echo {kept} >/sys/module/yasmin/parameters/kept_channels")
        check_vsock.settle(domain)
    arguments = f"{PORT} {COUNT} {stride}"
    start("b", "accepts", f"{prefix} python3 /tmp/accepts.py {arguments}")
    run("b", "until grep -q listening /tmp/accepts.out; do usleep 10000; done")
    output = run("a", f"{SETTLE}; {prefix} python3 /tmp/connects.py {check_guests.ADDRESS['b']} {arguments}")
    finish("b", "accepts")
    for domain in "ab":
        run(domain, "echo 4 >/sys/module/yasmin/parameters/kept_channels")
    connects, all_of_it = (statistics.median(row[COUNT // 2:]) for row in json.loads(output))
    return {"connect": connects, "connect, a byte there and back, close": all_of_it}


def steps(paths):
    return [("connect_us", kind, path, lambda k=kind, p=prefix: measured(k, p))
            for kind in KINDS for path, prefix in paths.items()]


def table(results):
    lines = ["", "What a connection costs, us (median)", "", "| connection | | netfront | yasmin | yasmin / netfront |", "|---" * 5 + "|"]
    for kind, paths in results.items():
        for what, ours in paths["yasmin"].items():
            theirs = paths["netfront"][what]
            lines.append(f"| {kind} | {what} | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} |")
    return lines
