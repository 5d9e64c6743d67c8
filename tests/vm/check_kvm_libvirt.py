"""KVM guests that libvirt runs: what only libvirt does. The other checks are of such guests, too (YASMIN_VM_LIBVIRT=1)."""
import json
import os
import time

import check_rings as rings
import kvm_site as site
import libvirt
from check import Failed, check, run


def await_status(wanted, timeout_s=40):
    """Until the host's broker says so of its guests: name, QEMU and broker are there."""
    deadline = time.monotonic() + timeout_s
    while True:
        guests = json.loads(site.host("status", "--json"))["guests"]
        now = sorted((guest["name"], guest["has_qemu"], guest["has_broker"]) for guest in guests)
        if now == wanted:
            return
        if time.monotonic() > deadline:
            raise Failed(f"guests: {now}, not {wanted}")
        time.sleep(0.2)


@check
def a_guest_of_libvirt_gets_its_port_while_it_runs():
    """It is none of the host's before. The guest's broker finds the port, and when it goes and comes again."""
    site.brokers_up()
    site.host_down()
    port = os.path.join(libvirt.OPEN, "port.xml")
    with open(port, "w") as file:
        file.write(libvirt.PORT)
    libvirt.virsh("detach-device-alias", "b", libvirt.ALIAS, "--live")
    site.host_up()
    await_status([("a", True, True)])
    run("b", "while grep -q org.yasmin.0 /sys/class/virtio-ports/*/name; do usleep 20000; done")
    # One that begins without a port, and one that has lost it.
    run("b", "killall yasmind; while pidof yasmind >/dev/null; do usleep 20000; done")
    site.broker_up("b")
    for _ in range(2):
        libvirt.virsh("attach-device", "b", port, "--live")
        await_status([("a", True, True), ("b", True, True)])
        rings.rings_again()
        libvirt.virsh("detach-device-alias", "b", libvirt.ALIAS, "--live")
        await_status([("a", True, True), ("b", True, False)])
    libvirt.virsh("attach-device", "b", port, "--live")
    await_status([("a", True, True), ("b", True, True)])
    rings.rings_again()


@check
def libvirt_may_start_anew():
    """Guests and their rings go on, and what ends meanwhile is found out."""
    site.brokers_up()
    rings.rings_again()
    libvirt.restart()
    flow = rings.Flow(200_000_000, 200_000_000)
    flow.await_ring(rings.SOME)
    flow.finish()
    site.host("leave", "a")
    if site.devices("a"):
        raise Failed(f"after leaving: {site.devices('a')}")
    site.host("join", "a")
    rings.rings_again()
