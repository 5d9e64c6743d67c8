"""Guests with too few grants, too little room for a peer's pages, too little memory: less speed, nothing worse."""
import check_guests
from check import Failed, check, equal, finish, run, start
from check_lab import create_guest
from check_vsock import STATS, cid, flow, ready, settle, totals

PORT = 7300
FULL_RING = 512 << 10

# Accepts, and gives back what comes.
ECHO = """
import select, socket, sys
listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
listener.bind((socket.VMADDR_CID_ANY, int(sys.argv[1])))
listener.listen(64)
print("listening", flush=True)
peers = {}
while True:
    for ready in select.select([listener, *peers], [], [])[0]:
        if ready is listener:
            connection = listener.accept()[0]
            peers[connection] = 1
            continue
        try:
            data = ready.recv(65536)
        except OSError:
            data = b""
        if data:
            ready.sendall(data)
        else:
            del peers[ready]
            ready.close()
            if not peers:
                sys.exit()
"""

# Opens connections until there are so many, or one fails; says why, what rings they got, checks bytes through
# each; waits for the word to go on, and closes them.
HOLD = """
import errno, os, socket, sys, time
cid, port, most = map(int, sys.argv[1:])
held, error = [], "none"
while len(held) < most:
    connection = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    connection.settimeout(60)
    try:
        connection.connect((cid, port))
    except OSError as failure:
        error = errno.errorcode[failure.errno]
        break
    held.append(connection)
rings = [int(line.split()[4]) for line in open("/sys/kernel/debug/yasmin/connections").readlines()[1:]
         if " connector established " in line]
print(len(held), error, max(rings), min(rings), flush=True)
for number, connection in enumerate(held):
    sent = bytes((number + i * i) % 256 for i in range(20001))
    # Pieces that the smallest ring holds: the other side reads nothing while it sends.
    for at in range(0, len(sent), 2000):
        piece, got = sent[at:at + 2000], b""
        connection.sendall(piece)
        while len(got) < len(piece):
            part = connection.recv(65536)
            assert part, number
            got += part
        assert got == piece, number
print("checked", flush=True)
while not os.path.exists("/tmp/enough"):
    time.sleep(0.01)
for connection in held:
    connection.close()
print("closed", flush=True)
"""


def hold(client, server, most):
    """Starts HOLD; gives how many connections it got, why not more, its largest and its smallest ring."""
    for name, text, domain in (("echo", ECHO, server), ("hold", HOLD, client)):
        check_guests.script(domain, name, text)
    start(server, "echo", f"python3 /tmp/echo.py {PORT}")
    run(server, "until grep -q listening /tmp/echo.out; do usleep 10000; done")
    run(client, "rm -f /tmp/enough")
    start(client, "hold", f"python3 /tmp/hold.py {cid(server)} {PORT} {most}")
    run(client, "until grep -q checked /tmp/hold.out || [ -e /tmp/hold.rc ]; do usleep 10000; done", timeout_s=120)
    count, error, largest, smallest = run(client, "cat /tmp/hold.out").split()[:4]
    return int(count), error, int(largest), int(smallest)


def let_go(client, server):
    run(client, "touch /tmp/enough")
    finish(client, "hold", timeout_s=60)
    finish(server, "echo", timeout_s=60)


def altered(change):
    """Guest b again, with its configuration changed by a sed expression; gives what undoes that."""
    run("dom0", f"cp /etc/xen/b.cfg /tmp/b.cfg && xl destroy b && sed -i '{change}' /etc/xen/b.cfg")
    create_guest("b")

    def undo():
        run("dom0", "xl destroy b; cp /tmp/b.cfg /etc/xen/b.cfg")
        create_guest("b")
    return undo


def as_before(before):
    for domain in "ab":
        equal(settle(domain), before[domain], f"figures in {domain}")
    flow("-s 300000 -r 300000")
    for domain in "ab":
        equal(settle(domain), before[domain], f"figures in {domain} after one more")


@check
def shortage_of_grants():
    """A guest that may grant little: rings get smaller, then connects fail; TCP programs stay on TCP."""
    undo = altered("$a max_grant_frames=4")
    try:
        check_guests.ready()
        before = {domain: settle(domain) for domain in "ab"}
        # Twice: what is short comes back.
        for _ in range(2):
            count, error, largest, smallest = hold("b", "a", 60)
            if error not in ("ENOBUFS", "ENOMEM") or largest != FULL_RING or smallest >= FULL_RING or count < 3:
                raise Failed(f"{count} connections, then {error}; rings of {smallest} to {largest} bytes")
            print(f"      {count} connections, then {error}; rings of {smallest} to {largest} bytes")
            # Connections between programs of the two, now that there is nothing left.
            check_guests.listen("a", f"{check_guests.RUN} python3 /tmp/server.py {check_guests.PORT} 1")
            output = run("b", f"{check_guests.RUN} python3 /tmp/client.py {check_guests.ADDRESS['a']} {check_guests.PORT} 51200", timeout_s=120)
            finish("a", "server", timeout_s=60)
            if "vsock" in run("b", "yasmin status"):
                raise Failed(f"moved to vsock: {output}")
            let_go("b", "a")
            for domain in "ab":
                equal(settle(domain), before[domain], f"figures in {domain}")
        flow("-s 300000 -r 300000")
        vsock_ring("b", "a")
    finally:
        undo()
    ready()
    flow("-s 100000 -r 100000")


def vsock_ring(client, server):
    """One more connection has rings of the usual size."""
    count, error, largest, smallest = hold(client, server, 1)
    equal((count, error, largest, smallest), (1, "none", FULL_RING, FULL_RING), "one connection more")
    let_go(client, server)


@check
def shortage_of_room_for_a_peers_pages():
    """A guest that may map little refuses connections; those that stand are as ever."""
    undo = altered("$a max_maptrack_frames=2")
    try:
        ready()
        before = {domain: settle(domain) for domain in "ab"}
        for _ in range(2):
            count, error, largest, smallest = hold("a", "b", 60)
            if error != "ECONNRESET" or not 1 <= count < 60:
                raise Failed(f"{count} connections, then {error}; rings of {smallest} to {largest} bytes")
            print(f"      {count} connections, then {error}; rings of {smallest} to {largest} bytes")
            let_go("a", "b")
            for domain in "ab":
                equal(settle(domain), before[domain], f"figures in {domain}")
        vsock_ring("a", "b")
    finally:
        undo()
    ready()
    flow("-s 100000 -r 100000")


# Takes memory until little is left; if anybody is killed for want of it, this one.
HOG = """
import mmap, os, time
open("/proc/self/oom_score_adj", "w").write("1000")
taken = []
def available():
    return next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
while available() > 56 << 10:
    piece = mmap.mmap(-1, 1 << 20)
    for at in range(0, 1 << 20, 4096):
        piece[at] = 1
    taken.append(piece)
print("full", flush=True)
while not os.path.exists("/tmp/enough-memory"):
    time.sleep(0.01)
"""


@check
def shortage_of_memory():
    """In the connecting guest smaller rings, in the accepting one none the less; nobody is killed."""
    ready()
    before = {domain: settle(domain) for domain in "ab"}
    for short in "ab":
        check_guests.script(short, "hog", HOG)
        run(short, "rm -f /tmp/enough-memory")
        start(short, "hog", "python3 /tmp/hog.py")
        run(short, "until grep -q full /tmp/hog.out || [ -e /tmp/hog.rc ]; do usleep 10000; done", timeout_s=120)
        count, error, largest, smallest = hold("a", "b", 40)
        print(f"      in {short}: {count} connections, then {error}; rings of {smallest} to {largest} bytes")
        # Rings are the connector's memory; mapped, they cost next to none.
        if error not in ("none", "ENOMEM") or count < 1 or (short == "a") != (smallest < FULL_RING):
            raise Failed("memory was not short, or a connect failed in some other way")
        let_go("a", "b")
        run(short, "touch /tmp/enough-memory")
        # Nobody was killed: it ends by itself.
        finish(short, "hog", timeout_s=60)
    as_before(before)
    for domain in "ab":
        bad = run(domain, "dmesg | grep -E 'BUG:|WARNING:|Oops|Out of memory|blocked for more' | head")
        equal(bad, "", f"log of {domain}")
