"""KVM guests: TCP connections of programs with the library go by rings, whatever becomes of the memory.

These need the command, the broker and the library built (make build).
"""
import json
import os
import socket
import subprocess
import time

import kvm
import lab
from check import Failed, await_text, check, equal, finish, no_oops, run, start, unless_broker

BUILT = os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(kvm.lab.HERE, "../../target"), "release")
# To look through a program for system calls of its own takes an emulated guest long.
# The host's CPUs are crowded with emulators, and then the library leaves rings alone: here it does not.
RUN = "YASMIN_TRUST_TEXT=1 YASMIN_PROMOTE_MESSAGES=0 YASMIN_SPIN_US=2000 yasmin run --quiet --"
# So many bytes by ring say that there was one.
SOME = 300_000
HOST_LOG = os.path.join(kvm.RUN, "host.log")
HOST_SOCKET = os.path.join(kvm.RUN, "host.sock")
host = None


def host_up(*options):
    """The host's broker, if it is not there; its log is kept."""
    global host
    if host and host.poll() is None:
        return
    with open(HOST_LOG, "a") as log:
        host = subprocess.Popen([os.path.join(BUILT, "yasmind"), "--host", kvm.HOSTS, "--host-memory", kvm.REGIONS,
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


def host_down(timeout_s=20):
    global host
    if host:
        host.terminate()
        host.wait(timeout_s)
        host = None


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


def sent(guest, kind):
    """Bytes that this guest's ends sent by `ring` or `tcp`, of connections that have a channel, and the others' sums."""
    status = json.loads(run(guest, "yasmin status --json"))
    now = sum(end["sends"][f"{kind}_bytes"] for connection in status["connections"] for end in connection["ends"])
    return now + status["broker"][f"closed_{kind}_bytes"]


def state():
    """What the brokers know and said, for a check that failed."""
    with open(HOST_LOG) as log:
        lines = ["host:", *log.read().splitlines()[-12:]]
    for guest in "ab":
        lines += [f"{guest}:", lab.run(guest, "yasmin status; tail -n 12 /tmp/yasmind.log")[1]]
    return "\n".join(lines)


class Flow:
    """Checked bytes from a to b and back, in programs with the library, in the background.

    Who has sent all says so (FIN), and from then on the other one sends by TCP for good: there are rings only
    as long as both send.
    """

    port = 6000

    def __init__(self, there, back=0, options=""):
        Flow.port += 1
        for guest in "ab":
            # What a check that failed has left.
            run(guest, "killall -9 stream 2>/dev/null || true")
        self.before = {guest: sent(guest, "ring") for guest in "ab"}
        start("b", "sink", f"{RUN} stream listen {Flow.port} {options if '-n' in options else ''}")
        run("b", f"until netstat -ltn | grep -q :{Flow.port}; do usleep 20000; done")
        start("a", "source", f"{RUN} stream connect {kvm.address('b')} {Flow.port} "
              f"-s {there} -r {back} {options}")

    def by_ring(self, guest="a"):
        return sent(guest, "ring") - self.before[guest]

    def await_ring(self, more_than=0, timeout_s=40, guest="a"):
        deadline = time.monotonic() + timeout_s
        while self.by_ring(guest) <= more_than:
            if time.monotonic() > deadline:
                raise Failed("no bytes by ring\n" + state())
            time.sleep(0.1)

    def finish(self):
        finish("a", "source")
        finish("b", "sink")


def rings_again():
    """A connection that is made now gets its memory."""
    flow = Flow(200_000_000, 200_000_000)
    flow.await_ring(SOME)
    flow.finish()


def regions():
    return [name for name in os.listdir(kvm.REGIONS) if name.startswith("region-")]


def await_regions(count, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while len(regions()) != count:
        if time.monotonic() > deadline:
            raise Failed(f"{len(regions())} regions, not {count}")
        time.sleep(0.1)


def devices(guest):
    with kvm.Qmp(kvm.check_path(guest)) as qmp:
        return [item["name"] for item in qmp("qom-list", path="/machine/peripheral")
                if item["name"].startswith("yasmin-")]


def await_devices(guest, count, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while len(devices(guest)) != count:
        if time.monotonic() > deadline:
            raise Failed(f"{guest}: {devices(guest)}, not {count}")
        time.sleep(0.1)


@check
def connections_of_two_guests_go_by_ring():
    brokers_up()
    flow = Flow(100_000_000, 50_000_000)
    flow.finish()
    for guest, wanted in (("a", 100_000_000), ("b", 50_000_000)):
        got = flow.by_ring(guest)
        print(f"      {guest}: {got} of {wanted} bytes by ring")
        if got < SOME:
            raise Failed(f"{guest} sent {got} of {wanted} bytes by ring")
    equal(len(regions()), 1, "regions")
    for guest in "ab":
        no_oops(guest)


def channels(guest):
    return json.loads(run(guest, "yasmin status --json"))["broker"]["channels_total"]


@check
def many_connections_share_the_memory():
    """Each gets its slice. How much of it they use in an emulated guest with one CPU differs a lot from run to run."""
    brokers_up()
    before = {guest: channels(guest) for guest in "ab"}
    flow = Flow(20_000_000, 20_000_000, "-n 20")
    flow.finish()
    for guest in "ab":
        equal(channels(guest) - before[guest], 20, f"channels in {guest}")
    by_ring = sum(flow.by_ring(guest) for guest in "ab")
    print(f"      {by_ring} of 800000000 bytes by ring")
    if by_ring < SOME:
        raise Failed(f"only {by_ring} bytes by ring")
    equal(len(regions()), 1, "regions")


@check
def echoes_by_ring():
    brokers_up()
    flow = Flow(0, 0, "-e 20000 -c 64")
    print("      " + finish("a", "source").strip())
    finish("b", "sink")
    if flow.by_ring() < 20000 * 64 // 10:
        raise Failed(f"only {flow.by_ring()} bytes by ring")


@check
def memory_is_taken_away_mid_stream():
    """device_del by somebody else, in each guest in turn: every byte arrives, and the same connection gets memory again."""
    brokers_up()
    for guest in "ab":
        flow = Flow(600_000_000, 600_000_000)
        flow.await_ring(SOME)
        name = devices(guest)[0]
        with kvm.Qmp(kvm.check_path(guest)) as qmp:
            qmp("device_del", id=name)
            qmp.wait_event("DEVICE_DELETED", lambda data: data.get("device") == name)
        at = flow.by_ring()
        flow.await_ring(at + SOME)
        flow.finish()
        print(f"      taken from {guest}: {at} bytes by ring until then, {flow.by_ring()} in all")
        no_oops("a")
        no_oops("b")


@check
def the_hosts_broker_is_killed_and_comes_back():
    brokers_up()
    flow = Flow(400_000_000, 400_000_000)
    flow.await_ring(SOME)
    before = regions()
    host.kill()
    host.wait()
    at = flow.by_ring()
    flow.await_ring(at + SOME)
    brokers_up()
    time.sleep(1)
    equal(regions(), before, "regions found again")
    flow.finish()
    rings_again()
    equal(regions(), before, "regions used again")


@check
def a_guests_broker_is_killed_and_comes_back():
    brokers_up()
    flow = Flow(300_000_000, 300_000_000)
    flow.await_ring(SOME)
    # Until its parent has heard of it, it still has a name.
    run("a", "killall -9 yasmind; while pidof yasmind >/dev/null; do usleep 20000; done")
    brokers_up()
    flow.finish()
    rings_again()


@check
def a_guest_that_ends_leaves_nothing():
    brokers_up()
    flow = Flow(2_000_000_000, 2_000_000_000)
    flow.await_ring(SOME)
    kvm.again("b")
    await_regions(0)
    await_devices("a", 0)
    run("a", "killall stream || true")
    no_oops("a")
    brokers_up()
    rings_again()


@check
def the_hosts_broker_takes_all_away_when_it_ends():
    brokers_up()
    flow = Flow(300_000_000, 300_000_000)
    flow.await_ring(SOME)
    host_down()
    equal(regions(), [], "regions")
    for guest in "ab":
        equal(devices(guest), [], "devices")
    flow.finish()
    no_oops("a")
    no_oops("b")
    brokers_up()
    rings_again()


@check
def without_the_hosts_broker_connections_stay_on_tcp():
    host_down()
    flow = Flow(50_000_000, 50_000_000)
    flow.finish()
    equal(flow.by_ring(), 0, "bytes by ring")
