"""The KVM lab as check_rings and check_segments have it."""
import contextlib
import os
import socket
import subprocess
import time

import kvm
import lab
from check import Failed, await_text, equal, no_oops, run, unless_broker  # noqa: F401
from kvm import address  # noqa: F401

BUILT = os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(kvm.lab.HERE, "../../target"), "release")
HOST_LOG = os.path.join(kvm.RUN, "host.log")
HOST_SOCKET = os.path.join(kvm.RUN, "host.sock")
# Bytes by ring that many connections send at least, together.
SOME_OF_MANY = 300_000
host_process = None


def host(*words, status=0):
    """`yasmin host`; what it says."""
    command = [os.path.join(BUILT, "yasmin"), "host", *words, "--socket", HOST_SOCKET]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != status:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}, not {status}: {done.stderr}")
    return done.stdout + done.stderr


def host_up(*options):
    """The host's broker, if it is not there; its log is kept."""
    global host_process
    if host_process and host_process.poll() is None:
        return
    with open(HOST_LOG, "a") as log:
        host_process = subprocess.Popen([os.path.join(BUILT, "yasmind"), "--host", kvm.HOSTS, "--host-memory", kvm.REGIONS,
                                 "--host-socket", HOST_SOCKET, "--memory-limit", "1G", *options],
                                stderr=log, start_new_session=True)
    await_answer(HOST_SOCKET)


def await_answer(path, timeout_s=10):
    """Until somebody listens there."""
    deadline = time.monotonic() + timeout_s
    while True:
        with socket.socket(socket.AF_UNIX) as question:
            try:
                return question.connect(path)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Failed(f"nobody listens at {path}: {error}") from error
        time.sleep(0.02)


def host_down(by_itself=True, timeout_s=20):
    """It ends, and takes all away; or is killed."""
    global host_process
    if host_process:
        host_process.terminate() if by_itself else host_process.kill()
        host_process.wait(timeout_s)
        host_process = None


def brokers_up(*options):
    """The host's and the guests', started so if they are not there."""
    host_up(*options)
    for guest in "ab":
        broker_up(guest, *options)
    for guest in "ab":
        await_text(guest, "/tmp/yasmind.log", "the host's broker is there")


def broker_up(guest, *options):
    """Started so if it is not there; it need not have met the host's."""
    run(guest, "mkdir -p /run/yasmin; " + unless_broker(
        f"YASMIND_LOG=debug setsid yasmind {' '.join(options)} >/tmp/yasmind.log 2>&1 </dev/null &"))


def state():
    """What the brokers know and said, for a check that failed."""
    with open(HOST_LOG) as log:
        lines = ["host:", *log.read().splitlines()[-12:]]
    for guest in "ab":
        lines += [f"{guest}:", lab.run(guest, "yasmin status; tail -n 12 /tmp/yasmind.log")[1]]
    return "\n".join(lines)


def regions():
    """Those that two guests share."""
    return [name for name in os.listdir(kvm.REGIONS) if name.startswith("region-")]


def devices(guest):
    """Their ids."""
    with kvm.Qmp(kvm.check_path(guest)) as qmp:
        return [item["name"] for item in qmp("qom-list", path="/machine/peripheral")
                if item["name"].startswith("yasmin-")]


@contextlib.contextmanager
def paused(guest):
    with kvm.Qmp(kvm.check_path(guest)) as qmp:
        qmp("stop")
        yield
        qmp("cont")


def again(guest):
    """Ends a guest without a word to it, and boots it anew."""
    kvm.again(guest)


def unplug(guest, name):
    """By hand."""
    with kvm.Qmp(kvm.check_path(guest)) as qmp:
        qmp("device_del", id=name)
        qmp.wait_event("DEVICE_DELETED", lambda data: data.get("device") == name)


def pierces(guest, memory_bytes):
    """Root of a guest that may only read writes beside everything that is ours: that is not in the memory."""
    device = run(guest, "cd /sys/bus/pci/drivers/yasmin-ivshmem && for device in 0000:*; do "
                 f"[ $(stat -c %s $device/resource2) != {memory_bytes} ] || echo $device; done").strip()
    driver = f"echo {device} >/sys/bus/pci/drivers/yasmin-ivshmem"
    run(guest, f"{driver}/unbind; echo 1 >/sys/bus/pci/devices/{device}/enable")
    said = run(guest, f"members pierce /sys/bus/pci/devices/{device}/resource2")
    # 89: the header.
    equal(said, "wrote, and reads 89\n", "root of a guest that may read")
    run(guest, f"{driver}/bind")
