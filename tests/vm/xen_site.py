"""The Xen lab as check_rings and check_segments have it: dom0 is the host."""
import contextlib

import lab
from check import await_text, equal, no_oops, run, unless_broker  # noqa: F401
from check_lab import await_guest, create_guest  # noqa: F401

# Reads a list of pairs, flags and what to say of it: what slices of a segment the driver gives.
PIERCE = """
import fcntl, glob, mmap, os, struct
device = os.open(glob.glob("/dev/yasmin-region*")[0], os.O_RDWR)
for flags in (0, 1, 3):
    try:
        slice = fcntl.ioctl(device, 0x40207904, bytearray(struct.pack("QQQQ", 4096, 4096, 1, flags)), True)
        print(flags, "given", end=" ")
        try:
            mmap.mmap(slice, 4096)
            print("to write")
        except PermissionError:
            print("to read", mmap.mmap(slice, 4096, prot=mmap.PROT_READ)[0])
    except PermissionError:
        print(flags, "refused")
"""


# Bytes by ring that many connections send at least, together: dom0 has a processor with one of the guests, and they
# sleep more.
SOME_OF_MANY = 20_000


def host(*words, status=0):
    """`yasmin host`; what it says."""
    quoted = " ".join(f"'{word}'" for word in words)
    return run("dom0", f"yasmin host {quoted} 2>&1", status=status)


def host_up():
    run("dom0", "modprobe yasmin-grant && modprobe vsock_loopback && modprobe yasmin && mkdir -p /run/yasmin && "
        "echo xen >/etc/yasmin.guests && { pidof yasmind >/dev/null || { rm -f /tmp/host.log; "
        "setsid yasmind --host /etc/yasmin.guests --memory-limit 300M --log debug </dev/null >/tmp/host.log 2>&1 & } ; } && "
        "i=0; until yasmin host status >/dev/null 2>&1; do usleep 50000; i=$((i+1)); [ $i -lt 200 ] || "
        "{ cat /tmp/host.log; exit 1; }; done", timeout_s=60)


def host_down(by_itself=True):
    run("dom0", f"kill {'' if by_itself else '-9'} $(pidof yasmind); while pidof yasmind >/dev/null; do usleep 20000; done")


def broker_up(guest):
    run(guest, "mkdir -p /run/yasmin; modprobe vsock_loopback; modprobe yasmin; modprobe yasmin-region; "
        + unless_broker("setsid yasmind --log info,yasmind=debug </dev/null >/tmp/yasmind.log 2>&1 &"))


def brokers_up():
    host_up()
    for guest in "ab":
        broker_up(guest)
    for guest in "ab":
        await_text(guest, "/tmp/yasmind.log", "the host's broker is there")


def state():
    """What the brokers know and said, for a check that failed."""
    lines = ["host:", lab.run("dom0", "yasmin host status; tail -n 12 /tmp/host.log; xenstore-ls /local/domain/0/backend/yasmin-region")[1]]
    for guest in "ab":
        lines += [f"{guest}:", lab.run(guest, "tail -n 12 /tmp/yasmind.log; dmesg | tail -n 5")[1]]
    return "\n".join(lines)


def address(guest):
    return lab.ADDRESS[guest]


def regions():
    """Those that two guests share."""
    return run("dom0", "ls /dev/shm/yasmin-host 2>/dev/null | grep ^region- || true").split()


def domid(guest):
    return run("dom0", f"xl domid {guest}").strip()


def backend(guest):
    return f"/local/domain/0/backend/yasmin-region/{domid(guest)}"


def devices(guest):
    """Their ids."""
    found = run("dom0", f"for n in $(xenstore-list {backend(guest)} 2>/dev/null); do xenstore-read {backend(guest)}/$n/id; done")
    return found.split()


@contextlib.contextmanager
def paused(guest):
    run("dom0", f"xl pause {guest}")
    yield
    run("dom0", f"xl unpause {guest}")


def again(guest):
    """Ends a guest without a word to it, and boots it anew."""
    run("dom0", f"xl destroy {guest}")
    create_guest(guest)


def unplug(guest, name):
    """By hand: whoever can write dom0's part of XenStore."""
    run("dom0", f"for n in $(xenstore-list {backend(guest)}); do [ $(xenstore-read {backend(guest)}/$n/id) != {name} ] || "
        f"xenstore-write {backend(guest)}/$n/state 5; done")


def pierces(guest, _):
    """Root of a guest that may only read gets no slice that can be written: its own kernel could not write it."""
    run(guest, "cat >/tmp/pierce.py", stdin=PIERCE.encode())
    equal(run(guest, "python3 /tmp/pierce.py"), "0 refused\n1 refused\n3 given to read 89\n", "root of a guest that may read")
