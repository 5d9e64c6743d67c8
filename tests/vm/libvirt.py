"""The KVM lab's guests as libvirt's: transient, run by libvirt's own user, with ports as libvirt makes them.

kvm.py uses it where YASMIN_VM_LIBVIRT is set. A libvirt that runs is used; if none does, one is started and stays.
"""
import os
import shutil
import subprocess
import time
from xml.sax.saxutils import escape

from lab import fail

# What libvirt's user can reach.
OPEN = "/run/yasmin-vm"
BRIDGE = "yasmin-lab"
# Six of eight ports are empty; the broker leaves the lowest of these alone.
SLOT = "pci.3"
ALIAS = "ua-yasmin"
PORT = f"<channel type='unix'><target type='virtio' name='org.yasmin.0'/><alias name='{ALIAS}'/></channel>"


def virsh(*words):
    done = subprocess.run(["virsh", "--connect", "qemu:///system", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"virsh {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def await_answer(timeout_s=10):
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return virsh("version")
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def restart():
    """Ends libvirt, but not its guests, and starts it again."""
    subprocess.run(["killall", "-9", "libvirtd"], check=True)
    subprocess.run(["libvirtd", "-d"], check=True)
    await_answer()


def start(images):
    """A libvirt that answers, a bridge, and the images where its user can read them."""
    for program in ("virsh", "libvirtd", "virtlogd"):
        if not shutil.which(program):
            fail(f"{program} is missing: apt-get install libvirt-daemon-system libvirt-clients")
    try:
        virsh("version")
    except RuntimeError:
        subprocess.run(["virtlogd", "-d"], check=True)
        subprocess.run(["libvirtd", "-d"], check=True)
        await_answer()
    shutil.rmtree(OPEN, ignore_errors=True)
    os.makedirs(OPEN)
    # Sockets, by another user.
    os.chmod(OPEN, 0o1777)
    for name in ("kvm-vmlinuz", "kvm-guest.cpio"):
        shutil.copy(os.path.join(images, name), OPEN)
        os.chmod(os.path.join(OPEN, name), 0o644)
    subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], stderr=subprocess.DEVNULL)
    subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)


def describe(name, number, memory_mib, append, port, console, check):
    """`port`: of the agent, on this machine. `check`: the second QMP socket."""
    ports = "<controller type='pci' model='pcie-root-port'/>" * 8
    out = [
        "-netdev", f"user,id=out,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:7000",
        "-device", f"virtio-net-pci,netdev=out,mac=52:54:00:0a:00:{number:02x},bus=pcie.0,addr=0x1d",
        "-qmp", f"unix:{check},server=on,wait=off",
    ]
    arguments = "".join(f"<qemu:arg value='{escape(word)}'/>" for word in out)
    return f"""
<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name><memory unit='MiB'>{memory_mib}</memory><vcpu current='1'>2</vcpu>
  <os><type machine='q35'>hvm</type><kernel>{OPEN}/kvm-vmlinuz</kernel><initrd>{OPEN}/kvm-guest.cpio</initrd>
    <cmdline>{escape(append)}</cmdline></os>
  <features><acpi/></features><on_reboot>destroy</on_reboot>
  <devices>
    <controller type='pci' model='pcie-root'/>{ports}
    <controller type='usb' model='none'/>
    <interface type='bridge'><mac address='52:54:00:09:00:{number:02x}'/><source bridge='{BRIDGE}'/>
      <model type='virtio'/></interface>
    {PORT}
    <serial type='file'><source path='{console}'/></serial>
    <memballoon model='none'/>
  </devices>
  <qemu:commandline>{arguments}</qemu:commandline>
</domain>"""


def create(name, xml):
    """Starts a guest; its QEMU's pid."""
    path = os.path.join(OPEN, f"{name}.xml")
    with open(path, "w") as file:
        file.write(xml)
    virsh("create", path)
    return pid(name)


def pid(name):
    with open(f"/run/libvirt/qemu/{name}.pid") as file:
        return int(file.read())


def destroy(name):
    try:
        virsh("destroy", name)
    except RuntimeError as error:
        # It has ended.
        if "failed to get domain" not in str(error):
            raise


def move(name):
    """Through a file, as to another host; its new QEMU's pid."""
    saved = os.path.join(OPEN, f"{name}.saved")
    virsh("save", name, saved)
    virsh("restore", saved)
    os.unlink(saved)
    return pid(name)


def down(names):
    for name in names:
        destroy(name)
    subprocess.run(["ip", "link", "del", BRIDGE], stderr=subprocess.DEVNULL)
    shutil.rmtree(OPEN, ignore_errors=True)


def check_path(name):
    return os.path.join(OPEN, f"{name}.qmp")
