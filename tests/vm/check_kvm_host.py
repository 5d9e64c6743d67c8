"""KVM guests: what the host's administrator asks for, guests that move.

These need the command, the broker and the library built (make build).
"""
import json
import os
import subprocess
import time

import check_kvm_rings as rings
import kvm
import lab
from check import Failed, check, equal, finish, run, start
from check_kvm_memory import no_oops
from check_kvm_rings import Flow, brokers_up, rings_again


def host(*words, status=0):
    """`yasmin host`; what it says."""
    command = [os.path.join(rings.BUILT, "yasmin"), "host", *words, "--socket", rings.HOST_SOCKET]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != status:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}, not {status}: {done.stderr}")
    return done.stdout + done.stderr


@check
def the_host_says_who_shares_memory():
    brokers_up()
    flow = Flow(200_000_000, 200_000_000)
    flow.await_ring(rings.SOME)
    status = json.loads(host("status", "--json"))
    equal([region["guests"] for region in status["regions"]], [["a", "b"]], "who shares memory")
    equal([(guest["name"], guest["has_broker"], guest["has_left"]) for guest in status["guests"]],
          [("a", True, False), ("b", True, False)], "guests")
    if "a and b" not in host("status"):
        raise Failed(host("status"))
    if "there are: a, b" not in host("leave", "x", status=1):
        raise Failed(host("leave", "x", status=1))
    flow.finish()


@check
def a_pair_leaves_and_joins_again():
    """In the middle of a stream: every byte arrives, by TCP, and so do the next connection's."""
    brokers_up()
    flow = Flow(300_000_000, 300_000_000)
    flow.await_ring(rings.SOME)
    host("leave", "a", "b")
    equal(rings.regions(), [], "regions")
    for guest in "ab":
        equal(rings.devices(guest), [], "devices")
    flow.finish()
    flow = Flow(20_000_000, 20_000_000)
    flow.finish()
    equal(flow.by_ring(), 0, "bytes by ring of who has left")
    host("join", "a", "b")
    rings_again()


@check
def a_guest_moves_with_its_connections_open():
    brokers_up()
    flow = Flow(600_000_000, 600_000_000)
    flow.await_ring(rings.SOME)
    host("leave", "b")
    equal(rings.devices("b"), [], "devices")
    kvm.move("b")
    if lab.run("a", "test -e /tmp/source.rc")[0] == 0:
        raise Failed("the stream ended before the guest had moved: " + finish("a", "source"))
    flow.finish()
    for guest in "ab":
        no_oops(guest)
    # Nobody had to let it join: who comes back is served.
    rings_again()
