"""TCP programs of two guests under `yasmin run`: unmodified, by granted pages, and otherwise as on TCP."""
import re

import lab
from check import Failed, check, equal, finish, run, start
from check_lab import await_guest, create_guest
from check_vsock import STATS, cid, ready as vsock_ready, settle
from lab import ADDRESS

ADDRESS_6 = {"a": "fd00::20", "b": "fd00::21"}
# Emulated guests take their time.
RUN = "YASMIN_GUEST_WAIT_MS=5000 yasmin run --quiet"
PORT = 7100

# Listens; for each connection: answers what it got, each byte one more, until the end.
SERVER = """
import socket, sys, time
listener = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
time.sleep(float(sys.argv[3]) if len(sys.argv) > 3 else 0)
for _ in range(int(sys.argv[2])):
    connection, address = listener.accept()
    print("from", address[0], connection.getsockname()[1], flush=True)
    while data := connection.recv(65536):
        connection.sendall(bytes((byte + 1) % 256 for byte in data))
    connection.close()
"""

# The same for IPv6 and IPv4.
SERVER_6 = SERVER.replace('("", int(sys.argv[1]))', '("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True')

# Sends what it is told to a SERVER and checks the answer; then tells how its bytes went.
CLIENT = """
import hashlib, socket, sys
address, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = socket.create_connection((address, port), 60)
sent = bytes(range(256)) * (size // 256)
for at in range(0, size, 4096):
    piece = sent[at:at + 4096]
    connection.sendall(piece)
    got = b""
    while len(got) < len(piece):
        got += connection.recv(65536)
    assert got == bytes((byte + 1) % 256 for byte in piece), at
line = [line.split() for line in open("/sys/kernel/debug/yasmin/connections").readlines()[1:]]
carried = sum(int(fields[5]) for fields in line)
peer = connection.getpeername()
connection.shutdown(socket.SHUT_WR)
assert connection.recv(1) == b""
print("carried", carried, "peer", *peer[:2])
"""


def script(domain, name, text):
    run(domain, f"cat >/tmp/{name}.py", stdin=text.encode())


def broker(domain, on=True):
    """Ends the broker of a guest, and starts a new one."""
    run(domain, "kill $(pidof yasmind) 2>/dev/null; kill -CONT $(pidof yasmind) 2>/dev/null; while pidof yasmind >/dev/null; do usleep 20000; done; true")
    if on:
        run(domain, "setsid yasmind --log info,yasmind=debug </dev/null >/tmp/yasmind.log 2>&1 &"
                    "until [ -e /run/yasmin/guests ]; do usleep 20000; done", timeout_s=60)


def knows(domain, other, wanted=True):
    test = f"grep -q '^{ADDRESS[other]} {cid(other)}$' /etc/yasmin/hosts 2>/dev/null"
    run(domain, f"until {'' if wanted else '!'} {{ {test}; }}; do usleep 50000; done", timeout_s=60)


PROGRAMS = "python3 iperf3 redis-server redis-benchmark flow-dynamic nginx wrk sockperf NPtcp"


def ready_in(domain):
    run(domain, f"kill -9 $(pidof {PROGRAMS}) 2>/dev/null; rm -f /etc/yasmin/hosts; modprobe tcp_diag")
    for name, text in (("server", SERVER), ("server6", SERVER_6), ("client", CLIENT)):
        script(domain, name, text)
    broker(domain)


def ready():
    vsock_ready()
    for domain in "ab":
        ready_in(domain)
    knows("a", "b")
    knows("b", "a")


def listen(domain, command, name="server", port=PORT):
    start(domain, name, command)
    run(domain, f"until netstat -ltn | grep -q ':{port} '; do usleep 20000; done", timeout_s=60)


def talk(size=200 * 256, server=RUN, client=RUN, extra=""):
    """Runs CLIENT in a against SERVER in b; how many bytes the client's rings carried, and what b said."""
    listen("b", f"{server} python3 /tmp/server.py {PORT} 1 {extra}")
    output = run("a", f"{client} python3 /tmp/client.py {ADDRESS['b']} {PORT} {size}", timeout_s=120)
    told = finish("b", "server", timeout_s=60)
    return int(re.search(r"carried (\d+)", output).group(1)), told


def network_bytes(domain):
    return int(run(domain, "cat /sys/class/net/eth0/statistics/tx_bytes"))


def no_traces():
    """The connections are gone, with all that was granted for them."""
    for domain in "ab":
        figures = settle(domain)
        equal(figures["conns"], 0, f"connections left in {domain}")


@check
def guests_learn_of_each_other():
    """Addresses come, change and go."""
    ready()
    run("b", "ip addr add 10.0.2.77/24 dev eth0")
    try:
        run("a", f"until grep -q '^10.0.2.77 {cid('b')}$' /etc/yasmin/hosts; do usleep 50000; done", timeout_s=60)
    finally:
        run("b", "ip addr del 10.0.2.77/24 dev eth0")
    run("a", "while grep -q 10.0.2.77 /etc/yasmin/hosts; do usleep 50000; done", timeout_s=60)
    broker("b", on=False)
    knows("a", "b", wanted=False)


@check
def guests_python_stream():
    """Every byte checked, carried by grants, and next to nothing on the network."""
    ready()
    before = network_bytes("a")
    size = 1000 * 256
    carried, told = talk(size)
    # The token and GO go the same way.
    equal(carried, size + 64 + 8, "bytes carried by grants")
    if network_bytes("a") - before > 50_000:
        raise Failed("the bytes went by the network all the same")
    equal(told.split()[:3], ["listening", "from", ADDRESS["a"]], "what the server sees")
    no_traces()


@check
def guests_nonblocking_connect():
    """redis-benchmark connects without waiting, many times at once."""
    ready()
    listen("b", f"{RUN} redis-server --port 6379 --save '' --bind 0.0.0.0 --protected-mode no", port=6379)
    run("a", f"{RUN} redis-benchmark -h {ADDRESS['b']} -t set,get -n 2000 -c 4 -d 1000 -q", timeout_s=120)
    before = network_bytes("a")
    run("a", f"{RUN} redis-cli -h {ADDRESS['b']} set name value")
    output = run("a", f"{RUN} redis-cli -h {ADDRESS['b']} get name")
    equal(output.strip(), "value", "what redis kept")
    # Those were short; a new broker has no memory of them.
    broker("a")
    knows("a", "b")
    start("a", "benchmark", f"{RUN} redis-benchmark -h {ADDRESS['b']} -t set -n 3000 -c 4 -d 1000 -q")
    run("a", f"until [ $(grep -c established {STATS}/connections) -ge 4 ]; do usleep 10000; done", timeout_s=60)
    finish("a", "benchmark")
    if network_bytes("a") - before > 500_000:
        raise Failed("the bytes went by the network all the same")
    run("b", "kill $(pidof redis-server)")
    no_traces()


# Connects to the other, accepts from it, and sends both ways; as one thread, which never waits in connect or accept.
EACH_OTHER = """
import select, socket, sys, time
peer, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
listener = socket.create_server(("", port))
while True:
    to = socket.socket()
    to.setblocking(False)
    to.connect_ex((peer, port))
    select.select([], [to], [], 60)
    if not to.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        break
    to.close()
    time.sleep(0.05)
connection, address = listener.accept()
to.setblocking(True)
to.sendall(bytes(size))
got = 0
while got < size:
    got += len(connection.recv(65536))
line = [line.split() for line in open("/sys/kernel/debug/yasmin/connections").readlines()[1:]]
print("carried", sum(int(fields[5]) for fields in line), flush=True)
to.shutdown(socket.SHUT_WR)
assert connection.recv(1) == b""
"""


@check
def guests_connect_to_each_other():
    """Both at once, as MPI's ranks do: the one with the higher address stays TCP, and the other need not wait for it."""
    ready()
    size = 50_000
    for domain in "ab":
        script(domain, "each", EACH_OTHER)
    start("a", "each", f"{RUN} python3 /tmp/each.py {ADDRESS['b']} {PORT} {size}")
    run("b", f"{RUN} python3 /tmp/each.py {ADDRESS['a']} {PORT} {size}", timeout_s=120)
    carried = int(re.search(r"carried (\d+)", finish("a", "each", timeout_s=60)).group(1))
    if carried < size:
        raise Failed(f"of {size} bytes only {carried} went through shared pages")


@check
def guests_iperf3():
    ready()
    listen("b", f"{RUN} iperf3 -s -1", port=5201)
    before = network_bytes("a")
    output = run("a", f"{RUN} iperf3 -c {ADDRESS['b']} -n 20M", timeout_s=120)
    finish("b", "server")
    if network_bytes("a") - before > 500_000:
        raise Failed("the bytes went by the network all the same:\n" + output)
    no_traces()


@check
def guests_checked_flow():
    """Every byte both ways, blocking and by poll, several connections at once."""
    ready()
    before = network_bytes("a")
    # A port for each: where connections are short, the next ones stay on TCP.
    for port, options in enumerate(("-s 2000000 -r 2000000", "-s 1000000 -r 1000000 -i", "-p 4 -s 100000 -r 100000"), PORT):
        count = 4 if "-p" in options else 1
        listen("b", f"{RUN} flow-dynamic tcp listen {port} -n {count}", port=port)
        run("a", f"{RUN} flow-dynamic tcp connect {ADDRESS['b']} {port} -n {count} {options}", timeout_s=120)
        finish("b", "server")
    if network_bytes("a") - before > 500_000:
        raise Failed("the bytes went by the network all the same")
    no_traces()


@check
def guests_others_stay_on_tcp():
    """An unaware client, an unaware listener, a client from outside the guests."""
    ready()
    carried, told = talk(client="")
    equal(carried, 0, "bytes carried for a client without the library")
    carried, told = talk(server="", client="YASMIN_GUEST_WAIT_MS=300 yasmin run --quiet")
    equal(carried, 0, "bytes carried to a listener without the library")
    listen("b", f"{RUN} python3 /tmp/server.py {PORT} 2")
    # busybox in dom0, and a guest's own loopback.
    output = run("dom0", f"printf abc | nc -w 5 {ADDRESS['b']} {PORT}")
    equal(output, "bcd", "answer to dom0")
    equal(run("b", f"printf abc | nc -w 5 127.0.0.1 {PORT}"), "bcd", "answer to b itself")
    finish("b", "server")
    no_traces()


@check
def guests_without_a_broker():
    """A peer without yasmind, and one without the module's other end, cost nothing but the acceleration."""
    ready()
    broker("b", on=False)
    knows("a", "b", wanted=False)
    carried, _ = talk(server="", client=RUN)
    equal(carried, 0, "bytes carried without the peer's broker")
    run("a", f"echo '{ADDRESS['b']} {cid('b')}' >>/etc/yasmin/hosts")
    run("a", "until grep -q 'directory of guests changed.*addresses=1' /tmp/yasmind.log; do usleep 50000; done", timeout_s=60)
    carried, _ = talk(server="", client=RUN)
    equal(carried, 0, "bytes carried without the peer's broker, by hand")


@check
def guests_by_hand():
    """The administrator's entries win; wrong ones are named and cost only themselves."""
    ready()
    run("a", f"echo '{ADDRESS['b']} never' >>/etc/yasmin/hosts; echo 'nonsense 5' >>/etc/yasmin/hosts")
    run("a", "until grep -q \"line [0-9]*, field 1: 'nonsense' is not\" /tmp/yasmind.log; do usleep 50000; done", timeout_s=60)
    carried, _ = talk()
    equal(carried, 0, "bytes carried to an address that never is")
    run("a", "sed -i /never/d /etc/yasmin/hosts")
    knows("a", "b")
    run("a", "until [ $(grep -c 'directory of guests changed' /tmp/yasmind.log) -ge 3 ]; do usleep 50000; done", timeout_s=60)
    carried, _ = talk(256)
    equal(carried, 256 + 64 + 8, "bytes carried when the entry is gone")


@check
def guests_short_connections():
    """The first goes by vsock; after a few, the next may go by TCP; all work."""
    ready()
    listen("b", f"{RUN} python3 /tmp/server.py {PORT} 12")
    script("a", "short", "import socket, sys\n"
           "for _ in range(12):\n"
           "    c = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
           "    print(len(open('/sys/kernel/debug/yasmin/connections').readlines()) > 1, end=' ')\n"
           "    c.sendall(b'x'); assert c.recv(1) == b'y'; c.close()\n")
    output = run("a", f"{RUN} python3 /tmp/short.py {ADDRESS['b']} {PORT}", timeout_s=120)
    finish("b", "server")
    moved = output.split()
    if moved[0] != "True" or len(moved) != 12:
        raise Failed(output)
    no_traces()


@check
def guests_short_connections_ask_nobody():
    """An address left alone is in the mapped table: a connect there needs no answer of the broker."""
    ready()
    listen("b", f"{RUN} python3 /tmp/server.py {PORT} 6")
    script("a", "short", "import os, signal, socket, subprocess, sys\n"
           "broker = int(subprocess.check_output(['pidof', 'yasmind']))\n"
           "def connect():\n"
           "    c = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
           "    print(len(open('/sys/kernel/debug/yasmin/connections').readlines()) > 1, end=' ', flush=True)\n"
           "    c.sendall(b'x'); assert c.recv(1) == b'y'; c.close()\n"
           "for _ in range(5): connect()\n"
           "os.kill(broker, signal.SIGSTOP)\n"
           "try: connect()\n"
           "finally: os.kill(broker, signal.SIGCONT)\n")
    # Were it asked, it would not answer, and the connect wait for longer than the command may take.
    output = run("a", f"YASMIN_GUEST_WAIT_MS=600000 yasmin run --quiet python3 /tmp/short.py {ADDRESS['b']} {PORT}", timeout_s=60)
    finish("b", "server")
    equal(output.split()[4:], ["False", "False"], f"the last of these moved: {output}")
    no_traces()


@check
def guests_accept_late():
    """A server that accepts long after: the client has gone on by TCP, and loses nothing."""
    ready()
    carried, _ = talk(4096, client="YASMIN_GUEST_WAIT_MS=100 yasmin run --quiet", extra="3")
    equal(carried, 0, "bytes carried")


NAMES = """
import errno, fcntl, os, select, signal, socket, struct, sys, time
TCP = socket.SOL_TCP
listener = None
if sys.argv[1] == "listen":
    listener = socket.create_server(("", int(sys.argv[2])))
    listener.settimeout(60)
    print("listening", flush=True)
def connect():
    if listener:
        return listener.accept()[0]
    return socket.create_connection((sys.argv[3], int(sys.argv[2])), 60)
def moved():
    lines = open("/sys/kernel/debug/yasmin/connections").readlines()[1:]
    return sum(" established " in line for line in lines)

c = connect()
assert moved() == 1, "not moved"
assert c.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
assert c.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
assert c.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert c.getsockname()[0] != c.getpeername()[0]
names = [c.getsockname(), c.getpeername()]
assert int(sys.argv[2]) in (names[0][1], names[1][1])
c.setsockopt(TCP, socket.TCP_NODELAY, 1)
assert c.getsockopt(TCP, socket.TCP_NODELAY) == 1
assert c.getsockopt(TCP, socket.TCP_INFO, 8)[0] == 1
c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
assert c.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
assert c.getsockopt(socket.SOL_IP, socket.IP_TTL) == 64
try:
    c.setsockopt(TCP, 31, b"tls")
    assert False, "kernel TLS"
except OSError as error:
    assert error.errno == errno.EOPNOTSUPP
# A time limit for receives holds: first here, then there.
def is_limited():
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100000))
    try:
        c.recv(1)
        assert False, "something came"
    except BlockingIOError:
        pass
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
c.settimeout(None)
if listener:
    is_limited()
    c.sendall(b"ready")
    assert c.recv(5, socket.MSG_WAITALL) == b"ready"
else:
    assert c.recv(5, socket.MSG_WAITALL) == b"ready"
    is_limited()
    c.sendall(b"ready")
# Duplicates name the same connection, and keep it.
d = c.dup()
assert d.getpeername() == names[1]
c.close()
d.sendall(b"12345")
while select.select([d], [], [], 60)[0] and struct.unpack("i", fcntl.ioctl(d, 0x541b, b"    "))[0] < 5:
    pass
# What is unread is counted, not copied.
def copied():
    return [line.split()[6] for line in open("/sys/kernel/debug/yasmin/connections").readlines()[1:]]
before = copied()
assert struct.unpack("i", fcntl.ioctl(d, 0x541b, b"    "))[0] == 5 and copied() == before
assert d.recv(5, socket.MSG_PEEK) == b"12345"
assert len(d.recv(100, socket.MSG_PEEK | socket.MSG_TRUNC)) == 5
# Passed over, not copied.
assert len(d.recv(2, socket.MSG_TRUNC)) == 2 and d.recv(5) == b"345"
# So does a child.
child = os.fork()
if child == 0:
    assert d.getpeername() == names[1]
    d.sendall(b"child")
    os._exit(0)
assert d.recv(5, socket.MSG_WAITALL) == b"child"
assert os.waitpid(child, 0)[1] == 0
d.sendall(b"go on")
assert d.recv(5, socket.MSG_WAITALL) == b"go on"
# Half of it ends.
if listener:
    d.shutdown(socket.SHUT_WR)
    assert d.recv(10) == b"last word" and d.recv(1) == b""
else:
    assert d.recv(1) == b""
    d.sendall(b"last word")
    d.shutdown(socket.SHUT_WR)
d.close()

# A reset is a reset.
c = connect()
assert moved() >= 1
if listener:
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert c.recv(5, socket.MSG_WAITALL) == b"hello"
    c.close()
else:
    c.sendall(b"hello")
    try:
        c.recv(1)
        assert False, "an end"
    except ConnectionResetError:
        pass
    c.close()

# Writing to who is gone: EPIPE, and SIGPIPE before it.
c = connect()
if listener:
    c.recv(1)
    c.close()
else:
    caught = []
    signal.signal(signal.SIGPIPE, lambda *_: caught.append(1))
    c.sendall(b"x")
    assert c.recv(1) == b""
    try:
        while True:
            c.sendall(b"y" * 1000)
            time.sleep(0.01)
    except (BrokenPipeError, ConnectionResetError) as error:
        # Python runs its handlers between calls.
        signal.getsignal(signal.SIGPIPE)
        assert caught or isinstance(error, ConnectionResetError)
print("fine")
"""


@check
def guests_names_and_options():
    """What a program can ask of its connection is what TCP says."""
    ready()
    for domain in "ab":
        script(domain, "names", NAMES)
    listen("b", f"{RUN} python3 /tmp/names.py listen {PORT}")
    start("a", "client", f"{RUN} python3 /tmp/names.py connect {PORT} {ADDRESS['b']}")
    try:
        output = finish("a", "client", timeout_s=120)
    except Failed as error:
        raise Failed(f"{error}\nthe listener: {run('b', 'cat /tmp/server.out')}")
    equal(output, "fine\n", "what the connector says")
    equal(finish("b", "server", timeout_s=60), "listening\nfine\n", "what the listener says")
    no_traces()


@check
def guests_ipv6():
    """IPv6 to a listener for both, IPv4 to the same, and IPv4 written as IPv6; the names are TCP's."""
    ready()
    run("a", f"until grep -q '^{ADDRESS_6['b']} {cid('b')}$' /etc/yasmin/hosts; do usleep 50000; done", timeout_s=60)
    size = 50 * 256
    for address, seen in ((ADDRESS_6["b"], ADDRESS_6["a"]), (ADDRESS["b"], f"::ffff:{ADDRESS['a']}"),
                          (f"::ffff:{ADDRESS['b']}", f"::ffff:{ADDRESS['a']}")):
        listen("b", f"{RUN} python3 /tmp/server6.py {PORT} 1")
        output = run("a", f"{RUN} python3 /tmp/client.py {address} {PORT} {size}", timeout_s=120)
        told = finish("b", "server", timeout_s=60)
        equal(output.split(), ["carried", str(size + 64 + 8), "peer", address, str(PORT)], f"client of {address}")
        equal(told.split()[1:3], ["from", seen], f"what the server sees of {address}")
    no_traces()


@check
def guests_show_in_status():
    ready()
    listen("b", f"{RUN} python3 /tmp/server.py {PORT} 1")
    script("a", "holder", "import os, socket, sys, time\n"
           "held = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
           "while not os.path.exists('/tmp/enough'): time.sleep(0.01)\n")
    run("a", "rm -f /tmp/enough")
    start("a", "client", f"{RUN} python3 /tmp/holder.py {ADDRESS['b']} {PORT}")
    for domain in "ab":
        run(domain, "until yasmin status | grep python3 | grep -q vsock; do usleep 100000; done", timeout_s=30)
    run("a", "touch /tmp/enough")
    finish("a", "client")
    finish("b", "server")
    run("a", "while yasmin status | grep python3 | grep -q vsock; do usleep 100000; done", timeout_s=30)


@check
def guests_die():
    """A guest is destroyed under a connection: the other program is told, and the guest comes back."""
    ready()
    listen("a", f"{RUN} python3 /tmp/server.py {PORT} 1")
    start("b", "client", f"{RUN} python3 /tmp/client.py {ADDRESS['a']} {PORT} 20000000")
    # Some of the program's bytes have come.
    run("a", f"until awk '$7 > 50000 && NR > 1' {STATS}/connections | grep -q .; do usleep 20000; done", timeout_s=60)
    run("dom0", "xl destroy b")
    try:
        output = finish("a", "server", status=1, timeout_s=120)
        if "ConnectionResetError" not in output:
            raise Failed(output)
        run("a", f"while grep -q {ADDRESS['b']} /etc/yasmin/hosts; do usleep 50000; done", timeout_s=60)
    finally:
        create_guest("b")
    guests_python_stream()


@check
def guests_reboot():
    """A guest reboots under a connection: that one ends, new ones go to its new number both ways.

    The other guest goes on as it is, with its broker and a listener from before.
    """
    ready()
    run("a", f"cp /tmp/server.py /tmp/old.py")
    listen("a", f"{RUN} python3 /tmp/old.py {PORT + 1} 1", name="old", port=PORT + 1)
    listen("b", f"{RUN} python3 /tmp/server.py {PORT} 1")
    start("a", "client", f"{RUN} python3 /tmp/client.py {ADDRESS['b']} {PORT} 20000000")
    run("a", f"until awk '$7 > 50000 && NR > 1' {STATS}/connections | grep -q .; do usleep 20000; done", timeout_s=60)
    before = cid("b")
    try:
        lab.run("b", "reboot -f", timeout_s=5)
    except lab.Lost:
        pass
    output = finish("a", "client", status=1, timeout_s=120)
    if "ConnectionResetError" not in output:
        raise Failed(output)
    run("dom0", f"until [ \"$(xl domid b 2>/dev/null)\" ] && [ $(xl domid b) != {before - 1000} ]; do usleep 100000; done",
        timeout_s=120)
    await_guest("b")
    run("b", "modprobe vsock_loopback && modprobe yasmin")
    ready_in("b")
    knows("a", "b")
    knows("b", "a")
    if run("a", f"grep -c '^{ADDRESS['b']} ' /etc/yasmin/hosts").strip() != "1":
        raise Failed(run("a", "cat /etc/yasmin/hosts"))
    size = 100 * 256
    equal(talk(size)[0], size + 64 + 8, "bytes carried to the guest as it is now")
    output = run("b", f"{RUN} python3 /tmp/client.py {ADDRESS['a']} {PORT + 1} {size}", timeout_s=120)
    equal(int(re.search(r"carried (\d+)", output)[1]), size + 64 + 8, "bytes carried to a listener from before")
    finish("a", "old")
    no_traces()
