#!/usr/bin/env python3
"""QEMU guests that can share memory, a bridge between them.

  kvm.py up [--guests N] [--lifetime S]            build what is to be tested, boot, wait until all answer
  kvm.py exec [--timeout S] a|b|... COMMAND...     run a shell command inside; its output, its exit status
  kvm.py push a|b|... FILE PATH                    copy a file inside
  kvm.py console a|b|... [LINES]                   the end of a console
  kvm.py hosts                                     the file for yasmind --host
  kvm.py down                                      end it

Emulated, so it needs no /dev/kvm. Each guest has a tap on a bridge in a network namespace of the lab's, a
QMP socket, a virtio-serial port org.yasmin.0 and root ports for devices to be plugged into. The guests end by
themselves after their lifetime (default: an hour). With YASMIN_VM_LIBVIRT=1 libvirt runs them: libvirt.py.
"""
import argparse
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

BY_LIBVIRT = os.environ.get("YASMIN_VM_LIBVIRT") == "1"
os.environ.setdefault("YASMIN_VM_RUN", "libvirt" if BY_LIBVIRT else "kvm")
import lab  # noqa: E402
import libvirt  # noqa: E402
from lab import GUESTS, RUN, STATE, Lost, execute, fail, say  # noqa: E402

# Of this lab alone: another YASMIN_VM_RUN can be up beside it.
NAMESPACE = f"yasmin-{os.path.basename(RUN)}"
IMAGES = os.path.join(RUN, "images")
HOSTS = os.path.join(RUN, "hosts")
REGIONS = "/dev/shm/yasmin-vm" if BY_LIBVIRT else os.path.join(RUN, "regions")
SLOTS = 3
# For devices that checks plug by hand.
LAST_SLOT = libvirt.SLOT if BY_LIBVIRT else f"slot{SLOTS - 1}"
BOOT_TIMEOUT_S = 180


def address(name):
    return f"10.9.0.{1 + GUESTS.index(name)}"


def qmp_path(name):
    return os.path.join(RUN, f"{name}.qmp")


def check_path(name):
    """A second QMP socket, for the tests: the host's broker has the first one for itself."""
    if BY_LIBVIRT:
        return libvirt.check_path(name)
    return os.path.join(RUN, f"{name}.qmp2")


def port_path(name):
    return os.path.join(RUN, f"{name}.port")


def console_path(name):
    return os.path.join(RUN, f"{name}.console")


class Qmp:
    """A QEMU's monitor: `with Qmp(path) as qmp: qmp("query-status")`."""

    def __init__(self, path, timeout_s=20):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout_s)
        self.sock.connect(path)
        self.lines = self.sock.makefile("r")
        self.events = []
        json.loads(self.lines.readline())
        self("qmp_capabilities")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def __call__(self, command, **arguments):
        self.sock.sendall((json.dumps({"execute": command, "arguments": arguments}) + "\n").encode())
        while True:
            answer = json.loads(self.lines.readline())
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            else:
                return answer["return"]

    def wait_event(self, name, match=lambda data: True):
        while True:
            for event in self.events:
                if event["event"] == name and match(event.get("data", {})):
                    return event
            self.events.append(json.loads(self.lines.readline()))


def tap(name):
    """A tap device on the bridge, open; made inside the namespace, used from here."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{NAMESPACE}", os.O_RDONLY)
    try:
        if libc.setns(there, 0):
            raise OSError(ctypes.get_errno(), "setns")
        fd = os.open("/dev/net/tun", os.O_RDWR)
        # TUNSETIFF; IFF_TAP | IFF_NO_PI | IFF_VNET_HDR.
        fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x0002 | 0x1000 | 0x4000))
    finally:
        libc.setns(home, 0)
        os.close(home)
        os.close(there)
    ip = ["ip", "-n", NAMESPACE, "link", "set", name]
    subprocess.run([*ip, "master", "br0"], check=True)
    subprocess.run([*ip, "up"], check=True)
    return fd


def bridge():
    subprocess.run(["ip", "netns", "del", NAMESPACE], stderr=subprocess.DEVNULL)
    for command in (f"ip netns add {NAMESPACE}", f"ip -n {NAMESPACE} link add br0 type bridge",
                    f"ip -n {NAMESPACE} link set br0 up"):
        subprocess.run(command.split(), check=True)


def boot(name, port, options, saved=None):
    """Starts a guest, from the file to which it was saved if there is one; its pid."""
    number = GUESTS.index(name)
    append = f"console=ttyS0 quiet mitigations=off lab.name={name} lab.address={address(name)}"
    if BY_LIBVIRT:
        # What tells lab.alive() that it is ours.
        append += f" lab.run={RUN}/"
        return libvirt.create(name, libvirt.describe(name, number + 1, options.memory, append, port,
                                                     console_path(name), check_path(name)))
    fd = tap(f"tap-{name}")
    # maxcpus=2: with one CPU the emulator drops the fences and the atomicity that memory shared with another
    # emulator needs. acpi-pci-hotplug: no 5 s that a person has to take back an unplugging.
    command = [
        "qemu-system-x86_64", "-accel", "tcg", "-cpu", "qemu64", "-smp", "1,maxcpus=2", "-m", str(options.memory),
        "-machine", "q35", "-nodefaults", "-display", "none", "-no-reboot",
        "-netdev", f"tap,id=lan,fd={fd}", "-device", f"virtio-net-pci,netdev=lan,mac=52:54:00:09:00:{number + 1:02x}",
        "-netdev", f"user,id=out,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:7000",
        "-device", f"virtio-net-pci,netdev=out,mac=52:54:00:0a:00:{number + 1:02x}",
        "-chardev", f"socket,id=port,path={port_path(name)},server=on,wait=off",
        "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port,name=org.yasmin.0",
        "-qmp", f"unix:{qmp_path(name)},server=on,wait=off", "-qmp", f"unix:{check_path(name)},server=on,wait=off",
        "-serial", f"file:{console_path(name)}",
        "-kernel", f"{IMAGES}/kvm-vmlinuz", "-initrd", f"{IMAGES}/kvm-guest.cpio",
        "-append", append,
    ]
    if saved:
        command += ["-incoming", f"exec:cat {saved}"]
    for slot in range(SLOTS):
        command += ["-device", f"pcie-root-port,id=slot{slot},chassis={slot + 1},pref64-reserve=256M"]
    with open(os.path.join(RUN, f"{name}.log"), "w") as log:
        process = subprocess.Popen(
            ["timeout", "--kill-after=5", str(options.lifetime), *command], stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True, pass_fds=[fd])
    os.close(fd)
    return process.pid


def await_guests(names, ports, pids, timeout_s=BOOT_TIMEOUT_S):
    started = time.monotonic()
    for name in names:
        while True:
            try:
                if execute(ports[name], "true", timeout_s=1)[0] == 0:
                    break
            except Lost:
                pass
            if not lab.alive(pids[name]) or time.monotonic() - started > timeout_s:
                for path in (os.path.join(RUN, f"{name}.log"), console_path(name)):
                    lab.show(path, 40)
                down()
                fail(f"guest {name} does not answer")
            time.sleep(0.2)
        say(f"{time.monotonic() - started:5.1f} s  guest {name} answers")


def up(options):
    if not shutil.which("qemu-system-x86_64"):
        fail("qemu-system-x86_64 is missing: apt-get install qemu-system-x86")
    down(quiet=True)
    if subprocess.run([os.path.join(lab.HERE, "kvm-images"), IMAGES]).returncode:
        fail("the images cannot be built")
    os.makedirs(RUN, exist_ok=True)
    # Other guests' segments.
    shutil.rmtree(REGIONS, ignore_errors=True)
    names = list(GUESTS[: options.guests])
    ports = dict(zip(names, lab.free_ports(len(names))))
    if BY_LIBVIRT:
        libvirt.start(IMAGES)
    else:
        bridge()
    pids = {name: boot(name, ports[name], options) for name in names}
    slots = ",".join(f"slot{slot}" for slot in range(SLOTS))
    with open(HOSTS, "w") as file:
        if BY_LIBVIRT:
            file.write("libvirt\n")
        else:
            for name in names:
                file.write(f"{name} qmp={qmp_path(name)} port={port_path(name)} slots={slots}\n")
    with open(STATE, "w") as file:
        json.dump({"pids": pids, "ports": ports, "options": vars(options)}, file)
    await_guests(names, ports, pids)


def again(name, saved=None):
    """Ends a guest, without a word to it, and boots it anew, or lets it go on from where it was saved."""
    with open(STATE) as file:
        state = json.load(file)
    if BY_LIBVIRT:
        libvirt.destroy(name)
    kill(state["pids"][name])
    subprocess.run(["ip", "-n", NAMESPACE, "link", "del", f"tap-{name}"], stderr=subprocess.DEVNULL)
    state["pids"][name] = boot(name, state["ports"][name], argparse.Namespace(**state["options"]), saved)
    with open(STATE, "w") as file:
        json.dump(state, file)
    if saved:
        go_on(name)
    await_guests([name], state["ports"], state["pids"])


def go_on(name, timeout_s=60):
    """Lets a guest run that was stopped when it was saved, once it is loaded."""
    started = time.monotonic()
    while True:
        try:
            with Qmp(check_path(name)) as qmp:
                while qmp("query-status")["status"] != "paused":
                    if time.monotonic() - started > timeout_s:
                        raise RuntimeError(f"guest {name} is not loaded")
                    time.sleep(0.05)
                qmp("cont")
            return
        except OSError:
            if time.monotonic() - started > timeout_s:
                raise
            time.sleep(0.05)


def move(name, timeout_s=60):
    """Moves a guest into another QEMU, as to another host: its connections are open all the while.

    It is stopped first. The emulator (not KVM) forgets some pages that a running guest writes while it is saved: in
    QEMU 7.2 149 pages of 768 MiB in one save, of which the source had newer ones than what was loaded.
    """
    if BY_LIBVIRT:
        with open(STATE) as file:
            state = json.load(file)
        state["pids"][name] = libvirt.move(name)
        with open(STATE, "w") as file:
            json.dump(state, file)
        await_guests([name], state["ports"], state["pids"])
        return
    saved = os.path.join(RUN, f"{name}.saved")
    # QEMU is done before the pipe's reader is.
    part = saved + ".part"
    with Qmp(check_path(name)) as qmp:
        qmp("stop")
        qmp("migrate", uri=f"exec:cat >{part} && mv {part} {saved}")
        started = time.monotonic()
        while (status := qmp("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() - started > timeout_s:
                raise RuntimeError(f"guest {name} does not move: {qmp('query-migrate')}")
            time.sleep(0.05)
    while not os.path.exists(saved):
        if time.monotonic() - started > timeout_s:
            raise RuntimeError(f"what guest {name} was is not in {saved}")
        time.sleep(0.05)
    again(name, saved)
    os.unlink(saved)


def kill(pid, sig=signal.SIGTERM):
    if lab.alive(pid):
        os.kill(pid, sig)
        while lab.alive(pid):
            time.sleep(0.05)


def is_up():
    try:
        with open(STATE) as file:
            return all(lab.alive(pid) for pid in json.load(file)["pids"].values())
    except OSError:
        return False


def down(quiet=False):
    try:
        with open(STATE) as file:
            pids = json.load(file)["pids"]
    except OSError:
        if not quiet:
            say("nothing is up")
        return
    if BY_LIBVIRT:
        libvirt.down(pids)
        shutil.rmtree(REGIONS, ignore_errors=True)
    for pid in pids.values():
        kill(pid)
    subprocess.run(["ip", "netns", "del", NAMESPACE], stderr=subprocess.DEVNULL)
    os.unlink(STATE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    start = commands.add_parser("up")
    start.add_argument("--guests", type=int, default=2, choices=range(1, len(GUESTS) + 1))
    start.add_argument("--memory", type=int, default=768, help="MiB for each guest")
    start.add_argument("--lifetime", type=int, default=3600, help="seconds")
    lab.add_inside(commands)
    console = commands.add_parser("console")
    console.add_argument("domain")
    console.add_argument("lines", type=int, nargs="?", default=100)
    commands.add_parser("hosts")
    commands.add_parser("down")
    options = parser.parse_args()

    if options.what == "up":
        up(options)
    elif options.what == "down":
        down()
    elif options.what == "hosts":
        print(HOSTS)
    elif options.what == "console":
        lab.show(console_path(options.domain), options.lines)
    else:
        lab.inside(options)


if __name__ == "__main__":
    main()
