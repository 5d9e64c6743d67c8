"""KVM guests that move to another QEMU, and one that is hostile.

These need the command, the broker and the library built (make build).
"""
import json
import os
import struct

import kvm
import kvm_site as site
import lab
from check import Failed, check, equal, finish, no_oops, run, start
from check_rings import RUN, SOME, Flow, await_devices, await_regions, rings_again


@check
def a_guest_moves_with_its_connections_open():
    """Under a stream that has rings again where the guest arrives. Nobody has to let it join there."""
    site.brokers_up()
    flow = Flow(1_500_000_000, 1_500_000_000)
    flow.await_ring(SOME)
    site.host("leave", "b")
    equal(site.devices("b"), [], "devices")
    at = {guest: flow.by_ring(guest) for guest in "ab"}
    kvm.move("b")
    if lab.run("a", "test -e /tmp/source.rc")[0] == 0:
        raise Failed("the stream ended before the guest had moved: " + finish("a", "source"))
    for guest in "ab":
        flow.await_ring(at[guest] + SOME, guest=guest)
    print(f"      {sum(at.values())} bytes by ring before it moved, "
          f"{sum(flow.by_ring(guest) - at[guest] for guest in 'ab')} since it is there")
    flow.finish()
    for guest in "ab":
        no_oops(guest)
    rings_again()


def noise(session_free_messages=2000):
    """What a guest's root may write into its port: messages that need no session, those that do, and neither."""
    random = os.urandom
    parts = []
    for number in range(session_free_messages):
        kind = number % 9
        session = 0 if kind == 1 else int.from_bytes(random(8), "little")
        parts.append(struct.pack("<4sIQQ", b"YMUP", kind, session, 1) + random(40))
        parts.append(random(number % 100))
    return b"".join(parts)


@check
def a_hostile_guest_harms_only_its_own_connections():
    """Its root lets its driver go without a word, writes anything over all of the shared memory, and floods the port."""
    site.brokers_up()
    flow = Flow(2_000_000_000, 2_000_000_000)
    flow.await_ring(SOME)
    log_bytes = os.path.getsize(site.HOST_LOG)
    pid = run("b", "pidof yasmind")
    run("a", "killall -9 yasmind; while pidof yasmind >/dev/null; do usleep 20000; done")
    run("a", "cat >/tmp/noise", stdin=noise())
    start("a", "flood", "while [ ! -e /tmp/enough ]; do cat /tmp/noise; done >/dev/$(cd /sys/class/virtio-ports && "
          "grep -l org.yasmin.0 */name | head -1 | cut -d/ -f1)")
    device = run("a", "cd /sys/bus/pci/drivers/yasmin-ivshmem && echo 0000:*").strip()
    run("a", f"echo {device} >/sys/bus/pci/drivers/yasmin-ivshmem/unbind; echo 1 >/sys/bus/pci/devices/{device}/enable")
    start("a", "scribble", f"slices /sys/bus/pci/devices/{device}/resource2 scribble 10")
    # The other guest's own connections, all the while.
    start("b", "own-sink", f"{RUN} stream listen 7001")
    run("b", "until netstat -ltn | grep -q :7001; do usleep 20000; done")
    run("b", f"{RUN} stream connect 127.0.0.1 7001 -s 100000000 -r 100000000")
    finish("b", "own-sink")
    print("      " + finish("a", "scribble").strip())
    run("a", "touch /tmp/enough")
    finish("a", "flood")
    equal(run("b", "pidof yasmind"), pid, "the other guest's broker")
    no_oops("b")
    status, output = lab.run("b", "cat /tmp/sink.rc 2>/dev/null || { killall stream; echo runs; }")
    # Its connection to the hostile one may end in an error, and may not be by a signal.
    if output.strip() not in ("runs", "0", "1"):
        raise Failed(f"the program in b ended with {output} ({status})")
    print(f"      its own program in b: {output.strip()}")
    if site.host_process.poll() is not None:
        raise Failed("the host's broker has ended")
    said = os.path.getsize(site.HOST_LOG) - log_bytes
    if said > 20_000:
        raise Failed(f"the host's broker logged {said} bytes")
    json.loads(site.host("status", "--json"))
    # With another system in the guest all is as before.
    kvm.again("a")
    await_regions(0)
    await_devices("b", 0)
    site.brokers_up()
    rings_again()
