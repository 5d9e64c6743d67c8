#!/usr/bin/env python3
"""Installs, uses, upgrades, removes and purges the packages in a fresh Debian, with systemd and without. Needs root.

    test.py FOLDER      with the packages; the Debian is made once, in FOLDER/test/base

The Debian is this machine's release, from the mirror that this machine's apt uses, with a kernel's headers. systemd
runs in namespaces of its own there. Not here: udev, loading the modules, Xen.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
TOOLS = ["linux-headers-amd64", "gcc", "libc6-dev", "make", "pkg-config", "redis-server", "redis-tools"]
PROGRAMS = ["yasmin", "yasmin-dev"]
OTHERS = ["yasmin-host", "yasmin-dkms", "yasmin-dom0"]
GUEST = "yasmin-guest"
ALL = [*PROGRAMS, *OTHERS, GUEST]
NAMESPACES = ["--pid", "--mount", "--uts", "--ipc", "--cgroup"]
PATIENCE_S = 60
# What is written by apt, dpkg and systemd themselves, for every package.
OF_THE_SYSTEM = ["/var/cache/", "/var/lib/apt/", "/var/lib/dpkg/", "/var/log/", "/var/tmp/", "/etc/machine-id",
                 "/var/lib/systemd/"]
# Python writes it where root imports the module.
PYTHON_CACHE = "/usr/lib/yasmin/python/__pycache__"
# The user of sysusers.d stays, as Debian's users do.
OF_THE_USER = ["/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/.pwd.lock"]


class Failed(Exception):
    pass


def make_base(base):
    """A minimal Debian with systemd and what the checks use; none of its services run."""
    if (base / "complete").exists():
        return
    print(f"making a Debian in {base}", flush=True)
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = release["VERSION_CODENAME"]
    targets = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages",
                              f"Codename: {suite}"], check=True, capture_output=True, text=True).stdout
    mirror = targets.splitlines()[0]
    log = base.parent / "base.log"
    with log.open("w") as output:
        for command in (["debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv,udev,python3,iproute2",
                         suite, base, mirror],
                        ["chroot", base, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "install", "-y",
                         "--no-install-recommends", *TOOLS]):
            if subprocess.run(command, stdout=output, stderr=output).returncode:
                raise Failed(f"{command[0]} failed; see {log}")
    (base / "complete").touch()


def later(package, folder):
    """The same package as its next version, with other defaults."""
    inside = folder / "inside"
    shutil.rmtree(inside, ignore_errors=True)
    subprocess.run(["dpkg-deb", "-R", package, inside], check=True)
    control = inside / "DEBIAN/control"
    text = control.read_text()
    version = next(line.split()[1] for line in text.splitlines() if line.startswith("Version:"))
    control.write_text(text.replace(f"Version: {version}", f"Version: {version}+1")
                       .replace(f"(= {version})", f"(= {version}+1)"))
    defaults = inside / "etc/yasmin/guests"
    if defaults.exists():
        defaults.write_text(defaults.read_text() + "# later\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", inside, folder], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(inside)


class Debian:
    """A fresh one, with its first process."""

    def __init__(self, folder, first):
        self.work = folder / "test" / "work"
        shutil.rmtree(self.work, ignore_errors=True)
        srv = self.work / "upper/srv"
        (srv / "later").mkdir(parents=True)
        for package in folder.glob("*.deb"):
            shutil.copy(package, srv)
            later(package, srv / "later")
        shutil.copy(SOURCE / "tests/systemd/exchange.py", srv)
        shutil.copy(SOURCE / "crates/segment/examples/words.c", srv)
        unified = Path("/sys/fs/cgroup/unified")
        self.group = (unified if unified.is_dir() else unified.parent) / f"yasmin-deb-{os.getpid()}"
        self.group.mkdir()
        boot = ["unshare", "--fork", *NAMESPACES, "--kill-child", HERE / "boot.sh", folder / "test/base", self.work,
                first]
        enter = f"echo $$ >{self.group}/cgroup.procs && exec \"$@\""
        self.log = (folder / "test/boot.log").open("w")
        self.unshare = subprocess.Popen(["sh", "-c", enter, "sh", *map(str, boot)], stdout=self.log, stderr=self.log)
        self.pid = None
        try:
            self.pid = until(self.first_process, "boot")
            if first == "systemd":
                until(lambda: self.run("systemctl is-system-running")[0] == 0, "systemd")
            self.at_first = self.packages()
        except BaseException:
            self.__exit__()
            raise

    def first_process(self):
        """Its number out here, once boot.sh has become it."""
        if self.unshare.poll() is not None:
            raise Failed(f"it does not start; see {self.log.name}")
        children = Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children")
        pid = children.read_text().strip()
        name = Path(f"/proc/{pid}/comm").read_text().strip() if pid else ""
        return pid if name in ("systemd", "sleep") else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The first process of its namespace has no other way to be told; without it, --kill-child does it.
        if self.pid:
            subprocess.run(["kill", "-KILL", self.pid], check=False)
        else:
            self.unshare.kill()
        self.unshare.wait()
        for folder, _, _ in os.walk(self.group, topdown=False):
            until(lambda: not Path(folder).exists() or rmdir(folder), "control groups")
        shutil.rmtree(self.work)
        self.log.close()

    def run(self, command, user=None):
        """Exit status, and output."""
        enter = ["nsenter", "-t", self.pid, "-m", "-p", "-u", "-i", "-C", "-r", "-w"]
        if user:
            command = f"setpriv --reuid {user} --clear-groups sh -c '{command}'"
        inside = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", command]
        done = subprocess.run([*enter, *inside], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, text=True, check=False)
        return done.returncode, done.stdout

    def tell(self, command, user=None):
        """Output of a command that succeeds."""
        status, output = self.run(command, user)
        if status:
            _, log = self.run("journalctl -u yasmind -u yasmin-host --no-pager -n 30")
            raise Failed(f"{command!r} ended with {status}:\n{output}\n{log}")
        return output

    def packages(self):
        return set(self.tell("dpkg-query -f '${Package}\n' -W").split())

    def files(self):
        """All files and folders but those that the system keeps for itself."""
        found = self.tell("find / -xdev -mindepth 1 -path /srv -prune -o -print").splitlines()
        return {file for file in found if not any(file.startswith(one) for one in OF_THE_SYSTEM)}

    def install(self, names, folder="/srv"):
        packages = " ".join(f"{folder}/{name}_*.deb" for name in names)
        # Who is asked about a file that he changed, and whose default changed, keeps it unless he says otherwise.
        options = "-o APT::Sandbox::User=root -o Dpkg::Options::=--force-confold"
        return self.tell(f"apt-get -q {options} install -y --no-install-recommends {packages}")

    def ring_bytes(self):
        return json.loads(self.tell("yasmin status --json"))["broker"]["closed_ring_bytes"]

    def by_ring(self, command, user=None):
        """Runs it until bytes went by ring; two programs may not be awake at once the first time. Its output."""
        before = self.ring_bytes()
        for _ in range(10):
            output = self.tell(command, user)
            for _ in range(10):
                if self.ring_bytes() > before + 100_000:
                    return output
                time.sleep(0.05)
        raise Failed(f"{command!r}: nothing by ring")


def rmdir(folder):
    try:
        os.rmdir(folder)
        return True
    except OSError:
        return False


def until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise Failed(f"{what}: not within {PATIENCE_S} s")


def equal(got, wanted, what):
    if got != wanted:
        got = sorted(got)[:20] if isinstance(got, set) else got
        raise Failed(f"{what}: {got!r}, not {wanted!r}")


def say(what):
    print(f"ok  {what}", flush=True)


def programs_talk(debian):
    """Real programs, by ring."""
    for user in (None, "nobody"):
        told = debian.by_ring("timeout 60 yasmin run python3 /srv/exchange.py passed", user)
        equal(told, "whole\n", "exchange")
    debian.tell("(setsid yasmin run --quiet -- redis-server --port 7777 --save \"\" >/tmp/redis.log 2>&1 </dev/null &)")
    until(lambda: debian.run("redis-cli -p 7777 ping")[0] == 0, "redis-server")
    told = debian.by_ring("yasmin run --quiet -- redis-benchmark -p 7777 -t get -n 50000 -c 4 --csv")
    if "GET" not in told:
        raise Failed(told)
    debian.tell("redis-cli -p 7777 shutdown nosave")


def development(debian):
    """What yasmin-dev has is enough to compile, and yasmin to run."""
    debian.tell("cc -o /tmp/words /srv/words.c $(pkg-config --cflags --libs yasmin-segment)")
    told = debian.tell("ldd /tmp/words")
    if "libyasmin-segment.so.0 => /" not in told:
        raise Failed(told)
    debian.tell("PYTHONPATH=/usr/lib/yasmin/python python3 -c 'import yasmin_segment'")
    debian.tell("printf '#include <shmem.h>\\nint main(void) { shmem_init(); shmem_barrier_all(); "
                "int n = shmem_n_pes(); shmem_finalize(); return n != 2; }\\n' >/tmp/two.c && "
                "oshcc -o /tmp/two /tmp/two.c && timeout 60 oshrun -n 2 /tmp/two")


def belongs(debian, before, names):
    """What is new belongs to a package, and dpkg is content."""
    equal(debian.tell("dpkg --audit"), "", "dpkg --audit")
    equal(debian.tell(f"dpkg --verify {' '.join(names)}"), "", "dpkg --verify")
    owned = set(debian.tell("dpkg -L $(dpkg-query -f '${Package} ' -W)").splitlines())
    # dpkg knows them by their old names where /lib is a link.
    owned |= {f"/usr{file}" for file in owned}
    # Units that are enabled, modules that are built, and what other packages keep.
    known = ("/etc/systemd/system/", "/var/lib/dkms/", "/usr/lib/modules/")
    strange = {file for file in debian.files() - before - owned if "yasmin" in file and not file.startswith(known)}
    strange = {file for file in strange if not file.startswith(PYTHON_CACHE)}
    equal(strange, set(), "files of no package")


def modules(debian):
    """DKMS has built both for the headers' kernel."""
    status = debian.tell("dkms status -m yasmin")
    if ": installed" not in status:
        raise Failed(f"{status}{debian.run('cat /var/lib/dkms/yasmin/*/build/make.log')[1]}")
    found = debian.tell("ls /lib/modules/*/updates/dkms").split()
    names = {name.split(".ko")[0] for name in found}
    if not {"yasmin", "yasmin-region", "yasmin-grant"} <= names:
        raise Failed(f"modules: {found}")
    say(f"modules: {status.strip()}")


HOST_CHECK = """
import socket, subprocess
qmp = socket.socket(socket.AF_UNIX); qmp.bind("/srv/vm/web.qmp"); qmp.listen()
qmp.settimeout(30)
subprocess.run(["systemctl", "start", "yasmin-host"], check=True)
qmp.accept()
"""


def host(debian):
    """The host's broker, as its unit, meets a QEMU's socket; it was not started unasked."""
    equal(debian.run("systemctl is-active yasmin-host")[1].strip(), "inactive", "yasmin-host")
    debian.tell("mkdir -p /srv/vm && "
                "echo 'web qmp=/srv/vm/web.qmp port=/srv/vm/web.port slots=s0' >>/etc/yasmin/guests")
    debian.tell(f"chown nobody /srv/vm && chmod 700 /srv/vm && python3 -c '{HOST_CHECK}'")
    told = debian.tell("yasmin host status")
    if "web" not in told:
        raise Failed(told)
    # QEMU finds the memory by its path, and is not in the unit's namespace.
    debian.tell("test -d /dev/shm/yasmin-host")
    debian.tell("systemctl enable yasmin-host")


def guest(debian):
    """The drop-in holds, and the broker under it serves."""
    equal(debian.tell("systemctl show yasmind -p User --value").strip(), "root", "the guest's broker")
    until(lambda: debian.run("systemctl is-active yasmind")[0] == 0, "the guest's broker")
    programs_talk(debian)


def upgrade(debian):
    """To the next version: configuration, enabled units and segments stay."""
    debian.tell("yasmin segment create kept --size 1M")
    broker = debian.tell("systemctl show yasmind -p MainPID --value")
    debian.tell("systemctl disable yasmin-directory")
    guests = debian.tell("cat /etc/yasmin/guests")
    debian.install(ALL, "/srv/later")
    versions = set(debian.tell(f"dpkg-query -f '${{Version}}\\n' -W {' '.join(ALL)}").split())
    equal([version.endswith("+1") for version in versions], [True], f"versions {versions}")
    equal(debian.tell("cat /etc/yasmin/guests"), guests, "configuration")
    if debian.tell("systemctl show yasmind -p MainPID --value") == broker:
        raise Failed("the broker is the old one")
    for unit, wanted in (("yasmind", "active"), ("yasmind.socket", "active"), ("yasmin-host", "active"),
                         ("yasmin-place", "inactive")):
        equal(debian.run(f"systemctl is-active {unit}")[1].strip(), wanted, unit)
    for unit, wanted in (("yasmind.socket", "enabled"), ("yasmin-host", "enabled"), ("yasmin-directory", "disabled")):
        equal(debian.run(f"systemctl is-enabled {unit}")[1].strip(), wanted, unit)
    if "kept" not in debian.tell("yasmin segment ls"):
        raise Failed("the segment is gone")
    debian.tell("yasmin segment rm kept")


def remove(debian, before):
    debian.tell(f"apt-get -q remove -y {' '.join(ALL)}")
    equal(debian.tell("cat /proc/[0-9]*/comm | grep yasmin || true"), "", "processes")
    left = {file for file in debian.files() - before if "yasmin" in file}
    # What an administrator may have written or decided stays until the purge.
    left = {file for file in left if not file.startswith(("/etc/systemd/system/", "/etc/yasmin"))}
    equal(left, set(), "left by remove")
    debian.tell("test -e /etc/yasmin/guests")


def purge(debian, before, names):
    debian.tell(f"apt-get -q purge -y {' '.join(names)}")
    # What they had brought with them, even what others would suggest.
    brought = debian.packages() - debian.at_first
    debian.tell(f"apt-get -q purge -y {' '.join(brought)}")
    equal(debian.tell("dpkg --audit"), "", "dpkg --audit")
    left = debian.files() - before - set(OF_THE_USER)
    # depmod's, where no kernel is.
    left = {file for file in left if not file.startswith("/usr/lib/modules/") or "dkms" in file or "yasmin" in file}
    equal(left, set(), "left by purge")
    equal(before - debian.files(), set(), "lost by purge")
    equal(debian.tell("ls -A /run/yasmin /dev/shm/yasmin-host 2>/dev/null || true"), "", "left in memory")


def with_systemd(folder):
    with Debian(folder, "systemd") as debian:
        before = debian.files()
        debian.install(PROGRAMS)
        for unit in ("yasmind.socket", "yasmind"):
            equal(debian.run(f"systemctl is-active {unit}")[1].strip(), "active", unit)
        say("yasmin and yasmin-dev install, and the broker serves")
        programs_talk(debian)
        say("programs of root and of others, and redis, by ring")
        development(debian)
        say("programs compile and run with yasmin-dev")
        debian.install(OTHERS)
        modules(debian)
        host(debian)
        say("the host's broker meets a QEMU's socket of another user")
        debian.install([GUEST])
        guest(debian)
        say("the guest's broker is root's, and programs talk by ring")
        belongs(debian, before, ["yasmin", "yasmin-dev", "yasmin-dkms", "yasmin-dom0", GUEST])
        say("every file belongs to a package")
        upgrade(debian)
        say("upgraded; configuration, units and segments stay")
        remove(debian, before)
        say("removed; configuration stays")
        purge(debian, before, ALL)
        say("purged; nothing is left")


def without_systemd(folder):
    with Debian(folder, "none") as debian:
        before = debian.files()
        debian.install(PROGRAMS)
        debian.tell("(setsid /usr/libexec/yasmin/yasmind >/tmp/yasmind.log 2>&1 </dev/null &)")
        until(lambda: debian.run("yasmin status")[0] == 0, "the broker")
        programs_talk(debian)
        belongs(debian, before, PROGRAMS)
        debian.tell("kill $(pidof yasmind)")
        purge(debian, before, PROGRAMS)
        say("without systemd: programs by ring with a broker started by hand; purged, nothing is left")


def main():
    folder = Path(sys.argv[1]).resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        make_base(folder / "test/base")
        without_systemd(folder)
        with_systemd(folder)
    except Failed as error:
        sys.exit(f"failed: {error}")


main()
