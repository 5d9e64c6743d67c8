#!/usr/bin/env python3
"""Xen, dom0 and guests in one emulated machine.

  lab.py up [--guests N] [--vcpus N] [--type pv|pvh] [--cpus N] [--scheduler NAME] [--icount] [--lifetime S]
                                                      build what is to be tested, boot, wait until all answer
  lab.py exec [--timeout S] dom0|a|b|... COMMAND...    run a shell command inside; its output, its exit status
  lab.py push dom0|a|b|... FILE PATH                   copy a file inside
  lab.py console [LINES]                               the end of all consoles
  lab.py down                                          end it

With --icount virtual time counts instructions (2 ns each): repeats agree whatever the host is doing, at
about twice the wall time. The machine ends by itself after its lifetime (default: an hour).
"""
import argparse
import glob
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
CACHE = os.environ.get("YASMIN_VM_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "yasmin-vm"
)
IMAGES = os.path.join(CACHE, "images")
# One machine for each YASMIN_VM_RUN; `default` serves most people.
RUN = os.path.join(CACHE, "run", os.environ.get("YASMIN_VM_RUN", "default"))
STATE = os.path.join(RUN, "state.json")
CONSOLE = os.path.join(RUN, "console.log")
GUESTS = "abcdefgh"
ADDRESS = {"a": "10.0.2.20", "b": "10.0.2.21"}
# Those that Debian's Xen has: told to use rtds, it uses credit2.
SCHEDULERS = ["credit2", "credit"]
BOOT_TIMEOUT_S = 120
GUEST_TIMEOUT_S = 60


def say(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


def fail(text, console=False):
    if console:
        show_console(60)
    say(text)
    sys.exit(1)


def show(path, lines):
    """The end of a log."""
    try:
        with open(path, errors="replace") as file:
            print("".join(file.readlines()[-lines:]), file=sys.stderr, end="")
    except OSError as error:
        say(f"no console: {error}")


def show_console(lines):
    """The end of the host's console, or of each guest's."""
    for path in [CONSOLE] if os.path.exists(CONSOLE) else sorted(glob.glob(os.path.join(RUN, "*.console"))):
        show(path, lines)


class Lost(Exception):
    """The domain does not answer, or went away under a command."""


def faults():
    """Guests that the emulation has broken, as Xen says it. Processors that are emulated at the same time, and switch
    between hypervisor and guests, do that to a PVH guest now and then, also to one that just boots."""
    if not os.path.exists(CONSOLE):
        return []
    with open(CONSOLE, errors="replace") as console:
        return [line.strip() for line in console if "Triple fault" in line]


def exactly(sock, count, deadline):
    """So many bytes. The machine may break meanwhile, or have been broken before."""
    quiet_after, known, data = time.monotonic() + 60, len(faults()), b""
    while len(data) < count:
        sock.settimeout(min(5, max(0.1, deadline - time.monotonic())))
        try:
            part = sock.recv(count - len(data))
        except TimeoutError:
            if time.monotonic() >= deadline:
                raise
            if len(faults()) > (known if time.monotonic() < quiet_after else 0):
                raise Lost(faults()[-1]) from None
            continue
        if not part:
            raise Lost("the connection ended early")
        data += part
    return data


def execute(port, command, stdin=b"", timeout_s=300, output=None):
    """Runs a command through the agent behind `port`: (exit status, output). Frames: agent.c."""
    chunks = []
    try:
        # The agent ends the command after its time; twice that long, and it is the agent that is gone.
        within_s = timeout_s * 2 + 10
        deadline = time.monotonic() + within_s
        with socket.create_connection(("127.0.0.1", port), timeout=within_s) as sock:
            encoded = command.encode()
            sock.sendall(f"{len(encoded)} {timeout_s}\n".encode() + encoded)

            def feed():
                try:
                    sock.sendall(stdin)
                    sock.shutdown(socket.SHUT_WR)
                except OSError:
                    pass

            threading.Thread(target=feed, daemon=True).start()
            while True:
                kind, length = struct.unpack("<BI", exactly(sock, 5, deadline))
                data = exactly(sock, length, deadline)
                if kind == 2:
                    return struct.unpack("<I", data)[0], b"".join(chunks)
                if output:
                    output.write(data)
                    output.flush()
                else:
                    chunks.append(data)
    except OSError as error:
        raise Lost(str(error)) from error


def state():
    try:
        with open(STATE) as file:
            return json.load(file)
    except OSError:
        fail("the lab is not up (make vm-up)")


def run(domain, command, **options):
    """What tests use: (exit status, text)."""
    ports = state()["ports"]
    if domain not in ports:
        fail(f"no domain {domain}; there are {', '.join(ports)}")
    status, output = execute(ports[domain], command, **options)
    return status, output.decode(errors="replace")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def alive(pid):
    """Whether our QEMU still runs: not only some process of that number."""
    try:
        for _ in range(100):
            with open(f"/proc/{pid}/cmdline") as file:
                if line := file.read():
                    return RUN + os.sep in line
            # Who is ended and not reaped has no arguments, nor has, for a moment, who is about to be a QEMU:
            # exec closes what tells Popen of its success before it sets them.
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    return False
            time.sleep(0.01)
    except OSError:
        pass
    return False


def is_up():
    try:
        with open(STATE) as file:
            return alive(json.load(file)["pid"])
    except OSError:
        return False


def down(quiet=False):
    try:
        with open(STATE) as file:
            pid = json.load(file)["pid"]
    except OSError:
        if not quiet:
            say("nothing is up")
        return
    if alive(pid):
        os.kill(pid, signal.SIGTERM)
        while alive(pid):
            time.sleep(0.05)
    os.unlink(STATE)


def up(options):
    if not shutil.which("qemu-system-x86_64"):
        fail("qemu-system-x86_64 is missing: apt-get install qemu-system-x86")
    down(quiet=True)
    if subprocess.run([os.path.join(HERE, "images")]).returncode:
        fail("the images cannot be built")
    os.makedirs(RUN, exist_ok=True)
    domains = ["dom0", *GUESTS[: options.guests]]
    ports = dict(zip(domains, free_ports(len(domains))))
    addresses = {"dom0": "10.0.2.15"} | {g: f"10.0.2.{20 + i}" for i, g in enumerate(GUESTS)}
    forwards = "".join(f",hostfwd=tcp:127.0.0.1:{port}-{addresses[domain]}:7000"
                       for domain, port in ports.items())
    # -smap: dom0 crashes early under emulation. -erms: with it, copies go byte by byte. -xsave: vector
    # registers are lost now and then when guests take turns (programs crash at fork).
    command = [
        "qemu-system-x86_64", "-accel", f"tcg,thread={'multi' if options.cpus > 1 else 'single'}",
        "-cpu", "max,-smap,-erms,-xsave", "-smp", str(options.cpus),
        "-m", str(1600 + options.guests * (options.memory + 40)), "-nodefaults", "-display", "none",
        "-nic", f"user,model=e1000{forwards}", "-serial", f"file:{CONSOLE}", "-no-reboot",
        "-kernel", f"{IMAGES}/xen.elf",
        "-append", "com1=115200,8n1 console=com1 noreboot bootscrub=0 spec-ctrl=no xpti=no "
        f"sched={options.scheduler} "
        "gnttab_max_frames=256 gnttab_max_maptrack_frames=4096 dom0_mem=1200M,max:1200M dom0_max_vcpus=1",
        "-initrd", f"{IMAGES}/vmlinux console=hvc0 mitigations=off quiet "
        f"lab.guests={options.guests} lab.guest_memory={options.memory} lab.guest_vcpus={options.vcpus} lab.guest_type={options.type} lab.debug={int(options.debug)},{IMAGES}/dom0.cpio",
    ]
    if options.icount:
        command += ["-icount", "shift=1,sleep=off"]
    with open(CONSOLE, "w"), open(os.path.join(RUN, "qemu.log"), "w") as log:
        process = subprocess.Popen(
            ["timeout", "--kill-after=5", str(options.lifetime), *command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    with open(STATE, "w") as file:
        json.dump({"pid": process.pid, "ports": ports}, file)

    started = time.monotonic()
    timeout_s = BOOT_TIMEOUT_S + GUEST_TIMEOUT_S * options.guests
    shown = 0
    waiting = domains
    while waiting:
        if process.poll() is not None:
            with open(os.path.join(RUN, "qemu.log")) as log:
                print(log.read(), file=sys.stderr)
            fail("the machine ended while it booted", console=True)
        if time.monotonic() - started > timeout_s:
            down()
            fail(f"no answer from {', '.join(waiting)} in {timeout_s} s", console=True)
        with open(CONSOLE, errors="replace") as file:
            news = [line for line in file if "lab: " in line]
        for line in news[shown:]:
            say(f"{time.monotonic() - started:5.1f} s  {line.split('lab: ', 1)[1].strip()}")
        shown = len(news)
        if any("guest " in line for line in news):
            try:
                if execute(ports[waiting[0]], "true", timeout_s=1)[0] == 0:
                    waiting = waiting[1:]
                    continue
            except Lost:
                pass
        time.sleep(0.2)
    say(f"{time.monotonic() - started:5.1f} s  all answer: {', '.join(domains)}")


def add_inside(commands):
    """The words `exec` and `push` of a lab's command line, which `inside` does."""
    execs = commands.add_parser("exec")
    execs.add_argument("--timeout", type=int, default=60)
    execs.add_argument("domain")
    execs.add_argument("command", nargs=argparse.REMAINDER)
    push = commands.add_parser("push")
    push.add_argument("domain")
    push.add_argument("file")
    push.add_argument("path")


def inside(options, stdin=b"", console=False):
    """Runs a command in a domain, or copies a file into it; ends with the status of that."""
    port = state()["ports"].get(options.domain) or fail(f"no domain {options.domain}")
    try:
        if options.what == "push":
            with open(options.file, "rb") as file:
                data = file.read()
            status, output = execute(port, f"mkdir -p '{os.path.dirname(options.path)}' && cat >'{options.path}' && chmod 755 '{options.path}'", stdin=data)
            print(output.decode(errors="replace"), end="")
        else:
            status, _ = execute(port, " ".join(options.command), stdin=stdin, timeout_s=options.timeout,
                                output=sys.stdout.buffer)
    except Lost as error:
        fail(f"{options.domain} does not answer: {error}", console=console)
    sys.exit(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    boot = commands.add_parser("up")
    boot.add_argument("--guests", type=int, default=2, choices=range(1, len(GUESTS) + 1))
    boot.add_argument("--memory", type=int, default=320, help="MiB for each guest")
    boot.add_argument("--vcpus", type=int, default=1, help="of each guest; all share one CPU")
    boot.add_argument("--type", default="pv", choices=["pv", "pvh"], help="of the guests; pvh is slower here")
    boot.add_argument("--cpus", type=int, default=1, help="of the host; more than one wants as many idle ones")
    boot.add_argument("--scheduler", default="credit2", choices=SCHEDULERS, help="Xen's")
    boot.add_argument("--icount", action="store_true")
    boot.add_argument("--debug", action="store_true", help="guests whose kernels poison freed memory and check what surrounds objects")
    boot.add_argument("--lifetime", type=int, default=3600, help="seconds")
    add_inside(commands)
    console = commands.add_parser("console")
    console.add_argument("lines", type=int, nargs="?", default=100)
    commands.add_parser("down")
    options = parser.parse_args()

    if options.what == "up":
        up(options)
    elif options.what == "down":
        down()
    elif options.what == "console":
        show_console(options.lines)
    else:
        inside(options, b"" if sys.stdin.isatty() or options.what == "push" else sys.stdin.buffer.read(), console=True)


if __name__ == "__main__":
    main()
