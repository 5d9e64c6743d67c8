"""KVM guests: memory that two of them map, plugged by hand; kmod/region.c in a guest."""
import os
import struct
import time

import kvm
import lab
from check import Failed, check, equal, finish, no_oops, run, start

REGION_BYTES = 16 << 20
DEVICE = "/dev/yasmin-region0"
names = 0


def make_region(magic=b"YASMINRG"):
    """A file for a region, and its number."""
    os.makedirs(kvm.REGIONS, exist_ok=True)
    number = int.from_bytes(os.urandom(8), "little")
    path = os.path.join(kvm.REGIONS, f"by-hand-{number:016x}")
    with open(path, "wb") as file:
        # Whoever runs QEMU.
        os.chmod(path, 0o666)
        file.truncate(REGION_BYTES)
        file.write(struct.pack("<8sIIQQ", magic, 1, 0, number, REGION_BYTES))
    return path, number


def plug(guest, path, slot=kvm.LAST_SLOT):
    """Gives a guest a file's memory; the device's name."""
    global names
    names += 1
    name = f"by-hand{names}"
    with kvm.Qmp(kvm.check_path(guest)) as qmp:
        qmp("object-add", **{"qom-type": "memory-backend-file", "id": f"{name}-memory", "mem-path": path,
                             "size": REGION_BYTES, "share": True})
        qmp("device_add", driver="ivshmem-plain", id=name, memdev=f"{name}-memory", bus=slot, master=True)
    return name


def unplug(guest, name):
    with kvm.Qmp(kvm.check_path(guest)) as qmp:
        qmp("device_del", id=name)
        qmp.wait_event("DEVICE_DELETED", lambda data: data.get("device") == name)
        qmp("object-del", id=f"{name}-memory")


def await_device(guest, present=True):
    test = "-e" if present else "! -e"
    run(guest, f"i=0; until [ {test} {DEVICE} ]; do usleep 20000; i=$((i+1)); [ $i -lt 500 ] || exit 1; done")


class Plugged:
    """One region in both guests."""

    def __enter__(self):
        self.path, self.number = make_region()
        self.names = {guest: plug(guest, self.path) for guest in "ab"}
        for guest in "ab":
            await_device(guest)
        return self

    def unplug(self, guest):
        unplug(guest, self.names.pop(guest))
        await_device(guest, present=False)

    def __exit__(self, *_):
        for guest in list(self.names):
            self.unplug(guest)
        os.unlink(self.path)


@check
def guests_talk_over_the_bridge():
    start("b", "sink", "flow tcp listen 5001")
    run("b", "until netstat -ltn | grep -q :5001; do usleep 20000; done")
    run("a", f"flow tcp connect {kvm.address('b')} 5001 -s 4000000 -r 1000000")
    finish("b", "sink")


@check
def a_region_is_plugged_and_says_who_it_is():
    with Plugged() as region:
        identity = struct.pack("<IIQQ", 1, 0, region.number, REGION_BYTES).hex()
        for guest in "ab":
            equal(run(guest, f"slices {DEVICE} identity"), f"YASMINRG {identity}\n", "identity")
            equal(run(guest, f"stat -c %a:%u {DEVICE}"), "600:0\n", "rights")
    for guest in "ab":
        no_oops(guest)


@check
def a_slice_maps_itself_and_nothing_beside_it():
    with Plugged():
        equal(run("a", f"slices {DEVICE} limits"), "refused\n", "limits")
        no_oops("a")


@check
def what_one_guest_writes_the_other_reads():
    with Plugged():
        run("a", f"slices {DEVICE} write 0x200000 from-a")
        equal(run("b", f"slices {DEVICE} read 0x200000"), "from-a\n", "text")
        run("b", f"slices {DEVICE} write 0x200000 from-b")
        equal(run("a", f"slices {DEVICE} read 0x200000"), "from-b\n", "text")
        equal(run("a", f"slices {DEVICE} read 0x300000"), "\n", "another slice")


@check
def memory_that_is_taken_away_goes_on_as_a_copy():
    """Slices that a program uses meanwhile: parked, copied, never a fault."""
    for _ in range(3):
        with Plugged() as region:
            for number, offset in enumerate((0x200000, 0x400000)):
                start("a", f"keep{number}", f"slices {DEVICE} keep {offset}")
                run("a", f"until grep -q holds /tmp/keep{number}.out; do usleep 20000; done")
            region.unplug("a")
            for number in range(2):
                equal(finish("a", f"keep{number}"), "holds\ncopied\n", "what it saw")
            run("b", f"slices {DEVICE} write 0x600000 text")
    no_oops("a")
    no_oops("b")


@check
def other_devices_of_this_kind_are_left_alone():
    path, _ = make_region(magic=b"SOMEBODY")
    name = plug("a", path)
    deadline = time.monotonic() + 20
    while "1af4:1110" not in run("a", "lspci -n 2>/dev/null || cat /sys/bus/pci/devices/*/uevent | grep -i PCI_ID").lower():
        if time.monotonic() > deadline:
            raise Failed("the device did not come")
        time.sleep(0.1)
    if lab.run("a", f"[ -e {DEVICE} ]")[0] == 0:
        raise Failed("the driver took it")
    unplug("a", name)
    os.unlink(path)
