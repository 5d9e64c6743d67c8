"""Two guests of a host whose broker serves them, of KVM or of Xen: TCP connections of programs with the library go by
rings, whatever becomes of the memory.

These need the command, the broker and the library built (make build).
"""
import json
import time

import lab
from check import Failed, check, equal, finish, no_oops, run, start

# To look through a program for system calls of its own takes an emulated guest long.
# The host's CPUs are crowded with emulators, and then the library leaves rings alone: here it does not.
# A Xen guest's connections would go by vsock from the beginning, if the peer's broker could be waited for.
RUN = ("YASMIN_TRUST_TEXT=1 YASMIN_PROMOTE_MESSAGES=0 YASMIN_SPIN_US=2000 YASMIN_GUEST_WAIT_MS=0 "
       "yasmin run --quiet --")
# So many bytes by ring say that there was one.
SOME = 300_000
# How the host and its guests are reached, and what is done to them: kvm_site or xen_site, set by the program that
# runs the checks.
site = None


def sent(guest, kind):
    """Bytes that this guest's ends sent by `ring` or `tcp`, of connections that have a channel, and the others' sums."""
    status = json.loads(run(guest, "yasmin status --json"))
    now = sum(end["sends"][f"{kind}_bytes"] for connection in status["connections"] for end in connection["ends"])
    return now + status["broker"][f"closed_{kind}_bytes"]


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
        start("a", "source", f"{RUN} stream connect {site.address('b')} {Flow.port} "
              f"-s {there} -r {back} {options}")

    def by_ring(self, guest="a"):
        return sent(guest, "ring") - self.before[guest]

    def await_ring(self, more_than=0, timeout_s=40, guest="a"):
        deadline = time.monotonic() + timeout_s
        while self.by_ring(guest) <= more_than:
            if time.monotonic() > deadline:
                raise Failed("no bytes by ring\n" + site.state())
            time.sleep(0.1)

    def finish(self):
        finish("a", "source")
        finish("b", "sink")


def rings_again():
    """A connection that is made now gets its memory."""
    flow = Flow(200_000_000, 200_000_000)
    flow.await_ring(SOME)
    flow.finish()


def await_regions(count, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while len(site.regions()) != count:
        if time.monotonic() > deadline:
            raise Failed(f"{len(site.regions())} regions, not {count}")
        time.sleep(0.1)


def await_devices(guest, count, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while len(site.devices(guest)) != count:
        if time.monotonic() > deadline:
            raise Failed(f"{guest}: {site.devices(guest)}, not {count}")
        time.sleep(0.1)


@check
def connections_of_two_guests_go_by_ring():
    site.brokers_up()
    flow = Flow(100_000_000, 50_000_000)
    flow.finish()
    for guest, wanted in (("a", 100_000_000), ("b", 50_000_000)):
        got = flow.by_ring(guest)
        print(f"      {guest}: {got} of {wanted} bytes by ring")
        if got < SOME:
            raise Failed(f"{guest} sent {got} of {wanted} bytes by ring")
    equal(len(site.regions()), 1, "regions")
    for guest in "ab":
        no_oops(guest)


def channels(guest):
    return json.loads(run(guest, "yasmin status --json"))["broker"]["channels_total"]


@check
def many_connections_share_the_memory():
    """Each gets its slice. How much of it they use in an emulated guest with one CPU differs a lot from run to run."""
    site.brokers_up()
    before = {guest: channels(guest) for guest in "ab"}
    flow = Flow(20_000_000, 20_000_000, "-n 20")
    flow.finish()
    for guest in "ab":
        equal(channels(guest) - before[guest], 20, f"channels in {guest}")
    by_ring = sum(flow.by_ring(guest) for guest in "ab")
    print(f"      {by_ring} of 800000000 bytes by ring")
    if by_ring < site.SOME_OF_MANY:
        raise Failed(f"only {by_ring} bytes by ring")
    equal(len(site.regions()), 1, "regions")


@check
def echoes_by_ring():
    site.brokers_up()
    flow = Flow(0, 0, "-e 20000 -c 64")
    print("      " + finish("a", "source").strip())
    finish("b", "sink")
    if flow.by_ring() < 20000 * 64 // 10:
        raise Failed(f"only {flow.by_ring()} bytes by ring")


@check
def memory_is_taken_away_mid_stream():
    """By somebody else, in each guest in turn: every byte arrives, and the same connection gets memory again."""
    site.brokers_up()
    for guest in "ab":
        flow = Flow(600_000_000, 600_000_000)
        flow.await_ring(SOME)
        name = site.devices(guest)[0]
        site.unplug(guest, name)
        at = flow.by_ring()
        flow.await_ring(at + SOME)
        flow.finish()
        print(f"      taken from {guest}: {at} bytes by ring until then, {flow.by_ring()} in all")
        no_oops("a")
        no_oops("b")


@check
def the_hosts_broker_is_killed_and_comes_back():
    site.brokers_up()
    flow = Flow(400_000_000, 400_000_000)
    flow.await_ring(SOME)
    before = site.regions()
    site.host_down(by_itself=False)
    at = flow.by_ring()
    flow.await_ring(at + SOME)
    site.brokers_up()
    time.sleep(1)
    equal(site.regions(), before, "regions found again")
    flow.finish()
    rings_again()
    equal(site.regions(), before, "regions used again")


@check
def a_guests_broker_is_killed_and_comes_back():
    site.brokers_up()
    flow = Flow(300_000_000, 300_000_000)
    flow.await_ring(SOME)
    # Until its parent has heard of it, it still has a name.
    run("a", "killall -9 yasmind; while pidof yasmind >/dev/null; do usleep 20000; done")
    site.brokers_up()
    flow.finish()
    rings_again()


@check
def a_guest_that_ends_leaves_nothing():
    site.brokers_up()
    flow = Flow(2_000_000_000, 2_000_000_000)
    flow.await_ring(SOME)
    site.again("b")
    await_regions(0)
    await_devices("a", 0)
    run("a", "killall stream || true")
    no_oops("a")
    site.brokers_up()
    rings_again()


@check
def the_hosts_broker_takes_all_away_when_it_ends():
    site.brokers_up()
    flow = Flow(300_000_000, 300_000_000)
    flow.await_ring(SOME)
    site.host_down()
    equal(site.regions(), [], "regions")
    for guest in "ab":
        equal(site.devices(guest), [], "devices")
    flow.finish()
    no_oops("a")
    no_oops("b")
    site.brokers_up()
    rings_again()


@check
def without_the_hosts_broker_connections_stay_on_tcp():
    site.host_down()
    flow = Flow(50_000_000, 50_000_000)
    flow.finish()
    equal(flow.by_ring(), 0, "bytes by ring")


@check
def the_host_says_who_shares_memory():
    site.brokers_up()
    flow = Flow(200_000_000, 200_000_000)
    flow.await_ring(SOME)
    status = json.loads(site.host("status", "--json"))
    equal([region["guests"] for region in status["regions"]], [["a", "b"]], "who shares memory")
    equal(sorted((guest["name"], guest["has_broker"], guest["has_left"]) for guest in status["guests"]),
          [("a", True, False), ("b", True, False)], "guests")
    if "a and b" not in site.host("status"):
        raise Failed(site.host("status"))
    if "there are: a, b" not in site.host("leave", "x", status=1):
        raise Failed(site.host("leave", "x", status=1))
    flow.finish()


@check
def a_pair_leaves_and_joins_again():
    """In the middle of a stream: every byte arrives, by TCP, and so do the next connection's. Both get rings when the
    pair is back."""
    site.brokers_up()
    flow = Flow(1_500_000_000, 1_500_000_000)
    flow.await_ring(SOME)
    site.host("leave", "a", "b")
    equal(site.regions(), [], "regions")
    for guest in "ab":
        equal(site.devices(guest), [], "devices")
    at = flow.by_ring()
    # One that began meanwhile, and is declined for now.
    start("b", "late-sink", f"{RUN} stream listen 7002")
    run("b", "until netstat -ltn | grep -q :7002; do usleep 20000; done")
    start("a", "late-source", f"{RUN} stream connect {site.address('b')} 7002 -s 400000000 -r 400000000")
    run("a", "i=0; until yasmin status | grep -q 'tried again'; do usleep 20000; i=$((i+1)); [ $i -lt 500 ] || exit 1; done")
    equal(flow.by_ring(), at, "bytes by ring of who has left")
    site.host("join", "a", "b")
    flow.await_ring(at + SOME)
    print(f"      {at} bytes by ring before it left, {flow.by_ring() - at} since it is back")
    flow.finish()
    finish("a", "late-source")
    finish("b", "late-sink")
    for guest in "ab":
        no_oops(guest)
