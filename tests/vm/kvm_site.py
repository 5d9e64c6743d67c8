"""The KVM lab as check_segments has it."""
import contextlib

import check_kvm_rings as rings
import kvm
from check import equal, no_oops, run  # noqa: F401
from check_kvm_host import host  # noqa: F401
from check_kvm_rings import broker_up, brokers_up, devices, host_up, state  # noqa: F401


def host_down(by_itself):
    if by_itself:
        rings.host_down()
    else:
        rings.host.kill()
        rings.host.wait()


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
