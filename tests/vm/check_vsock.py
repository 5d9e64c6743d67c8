"""yasmin.ko between two guests: AF_VSOCK, every byte checked (programs/flow.c)."""
import re
import time

import lab
from check import Failed, check, equal, finish, long, run, start
from check_lab import create_guest

STATS = "/sys/kernel/debug/yasmin"


def cid(name):
    return 1000 + int(run("dom0", f"xl domid {name}"))


def figures(domain, file):
    return {name: int(value) for name, value in (line.split() for line in run(domain, f"cat {STATS}/{file}").splitlines())}


def totals(domain):
    return figures(domain, "totals")


def ready(pairs=("ab",)):
    """Loads the module in the guests of each pair; waits until they have found each other."""
    for domain in "".join(pairs):
        # What a check that failed has left behind.
        run(domain, "kill -9 $(pidof flow whole vsock_test hostile python3) 2>/dev/null; modprobe vsock_loopback && modprobe yasmin")
    for domain, other in [pair for a, b in pairs for pair in ((a, b), (b, a))]:
        run(domain, f"until grep -q '^{cid(other)} up' {STATS}/peers; do usleep 50000; done", timeout_s=120)


def flow(arguments, family="vsock", connections=1, timeout_s=300, port=6000):
    """A run of flow from a to b; insists that both are content."""
    start("b", "flow", f"flow {family} listen {port} -n {connections}")
    run("b", "until grep -q listening /tmp/flow.out; do usleep 10000; done")
    output = run("a", f"flow {family} connect {cid('b')} {port} -n {connections} {arguments}", timeout_s=timeout_s)
    finish("b", "flow")
    return output


def settle(domain):
    """The figures once nothing is under way: what a closed connection holds goes with the peer's answer.

    Channels that are kept for the next connections go too, as they do when memory is short.
    """
    deadline = time.monotonic() + 120
    while True:
        figures = totals(domain)
        if figures["conns"] == figures["kept"] == 0 or time.monotonic() > deadline:
            return figures
        run(domain, "echo 2 >/proc/sys/vm/drop_caches")
        time.sleep(0.05)


@check
def vsock_guests_find_each_other():
    ready()
    for domain in "ab":
        figures = totals(domain)
        equal((figures["peers"], figures["conns"], figures["bells"]), (1, 0, 1), f"figures in {domain}")


@check
def vsock_stream_both_ways():
    ready()
    flow("-s 3000000 -r 3000000")
    flow("-s 3000000 -r 2000000 -i")


@check
def vsock_small_rings_wrap():
    """Rings of one page: full and empty all the time."""
    ready()
    flow("-s 300000 -r 300000 -b 4096 -c 1000")
    flow("-s 300000 -r 300000 -b 4096 -c 10000 -i")


@check
def vsock_largest_rings():
    """2 MiB each way: their list of grants needs a second page."""
    ready()
    flow("-s 9000000 -r 9000000 -b 2097152")


@check
def vsock_eight_pairs_at_once():
    ready()
    flow("-p 8 -s 1000000 -r 1000000", connections=8)
    flow("-p 8 -s 300000 -r 300000 -i", connections=8)


def bridged_bytes():
    """Bytes that dom0 has carried between guests so far."""
    return sum(int(n) for n in run("dom0", "cat /sys/class/net/vif*/statistics/rx_bytes").split())


@check
def vsock_two_copies_and_no_third_domain():
    """By the counters: sender and receiver copy each byte once, dom0 carries none of them."""
    ready()
    total, header, path = 5_000_000, 72, bridged_bytes()
    settle("a"), settle("b")
    before = {domain: figures(domain, "sums") for domain in "ab"}
    flow(f"-s {total}")
    carried = bridged_bytes() - path
    settle("a"), settle("b")
    after = {domain: figures(domain, "sums") for domain in "ab"}
    equal(after["a"]["copied_in_bytes"] - before["a"]["copied_in_bytes"], total + header, "bytes that a copied in")
    equal(after["b"]["copied_out_bytes"] - before["b"]["copied_out_bytes"], total + header, "bytes that b copied out")
    # The lab's own commands go through dom0 too.
    if carried > total // 100:
        raise Failed(f"dom0 carried {carried} bytes")
    # And that the counter counts: TCP's bytes it does carry.
    path = bridged_bytes()
    start("b", "sink", "flow tcp listen 5002")
    run("b", "until netstat -ltn | grep -q :5002; do usleep 20000; done")
    run("a", f"flow tcp connect 10.0.2.21 5002 -s {total}")
    finish("b", "sink")
    if bridged_bytes() - path < total:
        raise Failed("dom0's counter does not count")


@check
def vsock_one_byte_at_a_time():
    ready()
    flow("-e 200 -c 1")


@check
def vsock_seqpacket_keeps_messages():
    ready()
    flow("-e 50 -c 10000", family="vsockseq")
    flow("-s 1000000 -r 1000000 -c 50000", family="vsockseq")
    flow("-s 300000 -r 300000 -c 4000 -b 4096", family="vsockseq")
    flow("-s 600000 -r 600000 -c 60000 -b 65536", family="vsockseq")
    flow("-s 300000 -r 300000 -c 4000 -b 4096 -i", family="vsockseq")


@check
def vsock_message_given_up_leaves_nothing():
    ready()
    start("b", "whole", "whole listen 6010")
    run("b", "until grep -q listening /tmp/whole.out; do usleep 10000; done")
    sent = run("a", f"whole connect {cid('b')} 6010")
    equal(finish("b", "whole"), "listening\n" + sent, "what b got")
    if sent == "messages 0\n":
        raise Failed("nothing was sent")


@check
def vsock_nobody_listens():
    ready()
    output = run("a", f"flow vsock connect {cid('b')} 6999", status=1)
    if "Connection reset" not in output:
        raise Failed(output)


@check
def vsock_wrong_type_is_refused():
    ready()
    start("b", "flow", "flow vsock listen 6001")
    run("b", "until grep -q listening /tmp/flow.out; do usleep 10000; done")
    run("a", f"flow vsockseq connect {cid('b')} 6001", status=1)
    run("a", f"flow vsock connect {cid('b')} 6001 -s 1000")
    finish("b", "flow")


@check
def vsock_many_connections_leave_nothing():
    ready()
    before = {domain: settle(domain) for domain in "ab"}
    flow("-p 6 -s 3000 -r 3000", connections=60)
    for domain in "ab":
        equal(settle(domain), before[domain], f"figures in {domain}")


OPTIONS = """
import errno, os, select, signal, socket, struct, sys, time
cid, port = map(int, sys.argv[1:])
VSOCK, SIZE, TIMEOUT = 40, 0, 6
def new():
    made = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    made.settimeout(None)
    return made
# Python's own setsockopt knows numbers only, on AF_VSOCK.
def option(of, level, name, value):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=os.dup(of.fileno())) as plain:
        plain.setsockopt(level, name, value)
def fails(error, function, *arguments):
    try:
        function(*arguments)
    except OSError as failure:
        assert failure.errno == error, (failure, error)
    else:
        assert False, error
# Buffer sizes are ring sizes, of this connection alone.
c = new()
option(c, VSOCK, SIZE, struct.pack("Q", 65536))
c.connect((cid, port))
assert c.getsockopt(VSOCK, SIZE) == 65536
rings = [line.split()[4] for line in open("/sys/kernel/debug/yasmin/connections").readlines()[1:] if "established" in line]
assert rings == ["65536"], rings
assert c.getpeername() == (cid, port)
# Time limits of calls, and calls that never wait.
option(c, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50000))
started = time.monotonic()
fails(errno.EAGAIN, c.recv, 1)
assert time.monotonic() - started >= 0.05
fails(errno.EAGAIN, c.recv, 1, socket.MSG_DONTWAIT)
option(c, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
# A signal ends a receive that sleeps, and a send into a full ring.
class Alarm(Exception): pass
def on_alarm(*_): raise Alarm
signal.signal(signal.SIGALRM, on_alarm)
def interrupted(function, *arguments):
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        function(*arguments)
    except Alarm:
        return
    assert False, "not interrupted"
interrupted(c.recv, 1)
interrupted(c.sendall, bytes(1 << 20))
assert select.select([], [c], [], 0)[1] == []
# What was sent before comes back, and nothing else; looked at first.
c.sendall(b"", 0)
c.shutdown(socket.SHUT_WR)
total = 0
while part := c.recv(10, socket.MSG_PEEK):
    got = c.recv(len(part), socket.MSG_WAITALL)
    assert got == part == bytes(len(part))
    got = c.recv(60000)
    total += len(part) + len(got)
assert 65536 <= total < 1 << 20, total
fails(errno.EPIPE, c.send, b"x")
c.close()
# A connect that does not wait.
c = new()
c.setblocking(False)
fails(errno.EINPROGRESS, c.connect, (cid, port))
assert select.select([], [c], [], 60)[1]
assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
c.close()
# Nobody takes them: as many as the backlog holds, and one.
c = new()
c.connect((cid, port))
c.sendall(b"stop")
assert c.recv(1) == b"s"
waiting = []
for _ in range(20):
    one = new()
    try:
        one.connect((cid, port))
    except ConnectionResetError:
        break
    waiting.append(one)
assert len(waiting) == 3, len(waiting)
print("paused?", flush=True)
while not os.path.exists("/tmp/go"):
    time.sleep(0.01)
# A peer that does not run: the time that was asked for, and not more.
c = new()
option(c, VSOCK, TIMEOUT, struct.pack("ll", 1, 0))
started = time.monotonic()
fails(errno.ETIMEDOUT, c.connect, (cid, port))
assert 0.9 <= time.monotonic() - started < 5
interrupted(new().connect, (cid, port))
print("fine", flush=True)
"""

# Echoes what comes, all of it, after the end; "stop": accepts nobody any more.
OPTIONS_SERVER = """
import socket, sys, time
listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
listener.bind((socket.VMADDR_CID_ANY, int(sys.argv[1])))
listener.listen(2)
print("listening", flush=True)
while True:
    connection = listener.accept()[0]
    first = connection.recv(4, socket.MSG_PEEK)
    if first == b"stop":
        connection.sendall(b"s")
        time.sleep(3600)
    # Long enough for the ring to be full.
    if first:
        time.sleep(1)
    data = b""
    while part := connection.recv(65536):
        data += part
    if data:
        connection.sendall(data)
    connection.close()
"""


@check
def vsock_options_signals_timeouts():
    """What else AF_VSOCK's programs may ask: sizes, time limits, signals, the backlog, a peer that does not answer."""
    ready()
    before = {domain: settle(domain) for domain in "ab"}
    run("b", "cat >/tmp/server.py", stdin=OPTIONS_SERVER.encode())
    run("a", "cat >/tmp/options.py", stdin=OPTIONS.encode())
    start("b", "server", "python3 /tmp/server.py 6020")
    run("b", "until grep -q listening /tmp/server.out; do usleep 10000; done")
    run("a", "rm -f /tmp/go")
    start("a", "options", f"python3 /tmp/options.py {cid('b')} 6020")
    run("a", "until grep -q paused /tmp/options.out || [ -e /tmp/options.rc ]; do usleep 10000; done", timeout_s=120)
    run("dom0", "xl pause b")
    try:
        run("a", "touch /tmp/go")
        finish("a", "options", timeout_s=60)
    finally:
        run("dom0", "xl unpause b")
    run("b", "kill $(pidof python3)")
    for domain in "ab":
        equal(settle(domain), before[domain], f"figures in {domain}")


def await_totals(domain, **wanted):
    test = " && ".join(f"grep -qx '{name} {value}' {STATS}/totals" for name, value in wanted.items())
    run(domain, f"for i in $(seq 600); do {{ {test}; }} && exit 0; usleep 50000; done; cat {STATS}/totals; exit 1", timeout_s=60)


@check
def vsock_channels_are_kept():
    """The next connection with a peer uses the last one's pages: nothing is granted or mapped for it."""
    ready()
    empty = {domain: settle(domain) for domain in "ab"}
    flow("-s 100000 -r 100000")
    for domain in "ab":
        await_totals(domain, conns=0, kept=1)
    kept = {domain: totals(domain) for domain in "ab"}
    if kept["a"]["granted_pages"] <= empty["a"]["granted_pages"] or kept["b"]["mapped_pages"] <= empty["b"]["mapped_pages"]:
        raise Failed(f"nothing is kept: {kept}")
    # Of every kind; rings as the last ones left them, in the middle of a page.
    for family, arguments in (("vsock", "-s 3000000 -r 2000000"), ("vsockseq", "-s 1000001 -r 999999 -c 50000"),
                              ("vsock", "-s 300001 -r 300003 -i"), ("vsock", "-e 50 -c 777")):
        flow(arguments, family=family)
        for domain in "ab":
            await_totals(domain, conns=0, kept=1)
            equal(totals(domain), kept[domain], f"figures in {domain} after {family} {arguments}")
    # Rings of another size are not these.
    flow("-s 10000 -r 10000 -b 4096")
    for domain in "ab":
        await_totals(domain, conns=0, kept=2)
    # Nobody listens: refused, and kept all the same.
    run("a", f"flow vsock connect {cid('b')} 6999", status=1)
    for domain in "ab":
        await_totals(domain, conns=0, kept=2)
    # No more than a few, from each side to the other.
    flow("-p 8 -s 10000 -r 10000", connections=8)
    for domain in "ab":
        await_totals(domain, conns=0, kept=4)
    # What nobody uses goes by itself.
    for domain in "ab":
        await_totals(domain, kept=0)
        equal(totals(domain), empty[domain], f"figures in {domain} in the end")
    # And at once when memory is short, whoever keeps it.
    for domain in "ab":
        flow("-s 10000 -r 10000")
        await_totals("a", conns=0, kept=1)
        await_totals("b", conns=0, kept=1)
        equal(settle(domain), empty[domain], f"figures in {domain} after drop_caches")
        for other in "ab":
            await_totals(other, kept=0)
    # None at all where it is turned off.
    run("b", "echo 0 >/sys/module/yasmin/parameters/kept_channels")
    try:
        flow("-s 10000 -r 10000")
        for domain in "ab":
            await_totals(domain, conns=0, kept=0)
    finally:
        run("b", "echo 4 >/sys/module/yasmin/parameters/kept_channels")
    equal([totals(domain) for domain in "ab"], [empty[domain] for domain in "ab"], "figures")


# What vsock_test of Linux 6.1 asks for; all of it applies.
VSOCK_TEST_CASES = 11


@check
def vsock_test_of_linux():
    """The kernel's own test of a transport, with each guest once as its client."""
    ready()
    for client, server, address in (("a", "b", "10.0.2.21"), ("b", "a", "10.0.2.20")):
        start(server, "vsock_test", f"vsock_test --control-port=1234 --mode=server --peer-cid={cid(client)}")
        run(server, "until netstat -ltn | grep -q :1234; do usleep 10000; done")
        output = run(client, f"vsock_test --control-host={address} --control-port=1234 --mode=client --peer-cid={cid(server)}", timeout_s=300)
        finish(server, "vsock_test")
        equal(len(re.findall(r"^\d+ - .*\.\.\.ok$", output, re.M)), VSOCK_TEST_CASES, f"cases that passed:\n{output}\n")


@check
def vsock_loopback_inside_a_guest():
    ready()
    start("a", "flow", "flow vsock listen 6002")
    run("a", "until grep -q listening /tmp/flow.out; do usleep 10000; done")
    run("a", "flow vsock connect 1 6002 -s 100000 -r 100000")
    finish("a", "flow")


@check
def vsock_module_unloads_and_comes_back():
    """Not while sockets use it; then with everything given back."""
    ready()
    start("b", "flow", "flow vsock listen 6003")
    run("b", "until grep -q listening /tmp/flow.out; do usleep 10000; done")
    start("a", "held", f"(sleep 3; echo) | flow vsock connect {cid('b')} 6003 -e 100000 -c 64")
    run("a", f"until grep -q established {STATS}/connections; do usleep 10000; done")
    run("a", "rmmod yasmin", status=1)
    run("a", "kill $(pidof flow)")
    run("a", "until rmmod yasmin 2>/dev/null; do usleep 100000; done", timeout_s=120)
    run("b", f"until [ $(wc -l <{STATS}/peers) = 1 ]; do usleep 50000; done", timeout_s=120)
    equal(settle("b"), {**totals("b"), "granted_pages": 0, "mapped_pages": 0, "bells": 0, "peers": 0}, "figures in b")
    run("b", "pidof flow && kill $(pidof flow); true")
    ready()
    flow("-s 100000 -r 100000")


@check
def vsock_peer_is_destroyed():
    """With connections open in both directions of setup: reset, nothing left, and back with the next guest."""
    ready()
    start("a", "server", "flow vsock listen 6004")
    start("b", "server", "flow vsock listen 6005")
    for domain in "ab":
        run(domain, "until grep -q listening /tmp/server.out; do usleep 10000; done")
    start("b", "client", f"flow vsock connect {cid('a')} 6004 -e 100000000 -c 64")
    start("a", "client", f"flow vsock connect {cid('b')} 6005 -e 100000000 -c 64")
    run("a", f"until [ $(grep -c established {STATS}/connections) = 2 ]; do usleep 10000; done")
    run("dom0", "xl destroy b")
    output = finish("a", "client", status=1) + finish("a", "server", status=1)
    if output.count("Connection reset") != 2:
        raise Failed(output)
    run("a", f"until [ $(wc -l <{STATS}/peers) = 1 ]; do usleep 50000; done", timeout_s=120)
    figures = settle("a")
    equal((figures["granted_pages"], figures["mapped_pages"], figures["bells"]), (0, 0, 0), "figures in a")
    create_guest("b")
    ready()
    flow("-s 100000 -r 100000")


def available_kib(domain):
    # Pages that each processor keeps for itself are free too, and not counted.
    return int(run(domain, "sync; echo 3 >/proc/sys/vm/drop_caches; awk '/MemAvailable/ { kib += $2 } "
                           "$1 == \"count:\" { kib += 4 * $2 } END { print kib }' /proc/meminfo /proc/zoneinfo"))


@long
def long_thousand_connections():
    """A thousand, one after the other: grants, pages, event channels and memory as before."""
    ready()
    flow("-s 1000 -r 1000", connections=20)
    before = {domain: (settle(domain), available_kib(domain)) for domain in "ab"}
    flow("-s 1000 -r 1000", connections=1000, timeout_s=600)
    for domain in "ab":
        figures, memory = before[domain]
        equal(settle(domain), figures, f"figures in {domain}")
        lost = memory - available_kib(domain)
        print(f"      {domain}: {lost} KiB less available")
        if lost > 1000:
            raise Failed(f"{domain}: {lost} KiB are gone, a KiB for each connection or more")


@long
def long_ten_thousand_short_connections():
    """Some at a time, each byte checked; about a quarter of an hour."""
    ready()
    before = {domain: settle(domain) for domain in "ab"}
    # In pieces: QEMU's network drops a command that says nothing for ten minutes.
    for _ in range(10):
        flow("-p 4 -s 200 -r 200", connections=1000, timeout_s=550)
    for domain in "ab":
        equal(settle(domain), before[domain], f"figures in {domain}")


@long
def long_guests_killed_again_and_again():
    ready()
    for _ in range(5):
        start("b", "server", "flow vsock listen 6007 -n 8")
        run("b", "until grep -q listening /tmp/server.out; do usleep 10000; done")
        start("a", "client", f"flow vsock connect {cid('b')} 6007 -n 8 -p 8 -e 100000000 -c 5000")
        run("a", f"until [ $(grep -c established {STATS}/connections) = 8 ]; do usleep 10000; done")
        run("dom0", "xl destroy b")
        finish("a", "client", status=1)
        run("a", f"until [ $(wc -l <{STATS}/peers) = 1 ]; do usleep 50000; done", timeout_s=120)
        figures = settle("a")
        equal([figures[name] for name in ("granted_pages", "mapped_pages", "conns", "bells")], [0] * 4, "figures in a")
        create_guest("b")
        ready()
    flow("-s 1000000 -r 1000000")


LIES = ["references", "class", "event-port", "word-state", "word-back", "word-far", "again", "silent", "noise", "index",
        "again-unknown", "again-open", "drop-open", "again-dirty", "again-twice", "again-class"]


@check
def vsock_peer_lies():
    """A peer that is not the module (programs/hostile.c): each lie costs its connection and nothing else."""
    ready()
    run("b", "rmmod yasmin")
    run("a", f"until [ $(wc -l <{STATS}/peers) = 1 ]; do usleep 50000; done", timeout_s=120)
    start("a", "server", "flow vsock listen 6006 -n 100")
    run("a", "until grep -q listening /tmp/server.out; do usleep 10000; done")
    peer = cid("a") - 1000
    for lie in LIES:
        run("b", f"hostile {peer} 6006 {lie}")
        run("b", f"xenstore-rm /yasmin/{cid('b') - 1000}/version")
        run("a", f"until [ $(wc -l <{STATS}/peers) = 1 ]; do usleep 50000; done", timeout_s=120)
        figures = settle("a")
        equal([figures[name] for name in ("granted_pages", "mapped_pages", "conns", "bells")], [0] * 4, f"figures in a after {lie}")
    if totals("a")["breaches"] < 4:
        raise Failed(f"breaches that a saw: {totals('a')}")
    run("a", "kill $(pidof flow)")
    ready()
    flow("-s 100000 -r 100000")


@check
def vsock_kernels_are_content():
    """Nothing in either kernel's log that a kernel complains with."""
    for domain in "ab":
        bad = run(domain, "dmesg | grep -E 'BUG:|WARNING:|Oops|general protection|blocked for more|yasmin: .*unmapped' | head")
        equal(bad, "", f"log of {domain}")
