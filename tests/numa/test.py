#!/usr/bin/env python3
"""Discovery and placement on a machine with two NUMA nodes and a card on each, which QEMU emulates
without KVM: Debian's kernel, the yasmin command and busybox in an initramfs. Under a minute.

    test.py YASMIN [--keep]     --keep leaves the console's log and says where
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("YASMIN_NUMA_CACHE", Path.home() / ".cache" / "yasmin-numa"))
CPUS_OF_NODE = [range(0, 4), range(4, 8)]
DISTANCE = 31
MODULES = ["e1000e"]
PATIENCE_S = 600


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, capture_output=True, **options).stdout


def packages():
    """Debian's present kernel and a static busybox, unpacked in the cache; installs nothing."""
    shown = run("apt-cache", "show", "linux-image-amd64")
    kernel = "linux-image-" + re.findall(r"^Depends: linux-image-(\S+-amd64)", shown, re.M)[0]
    root = CACHE / kernel
    if not (root / "complete").exists():
        print(f"fetching {kernel} into {CACHE}", flush=True)
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", kernel, "busybox-static",
            cwd=root)
        for package in root.glob("*.deb"):
            run("dpkg", "-x", str(package), str(root))
            package.unlink()
        (root / "complete").touch()
    return root, kernel.removeprefix("linux-image-")


def with_dependencies(modules, names):
    """Files of modules, those that others need first, by what modinfo says of each."""
    files = {path.name.split(".ko")[0].replace("_", "-"): path for path in modules.rglob("*.ko*")}
    order = []

    def add(name):
        path = files.get(name.replace("_", "-"))
        if path is None or path in order:
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", b"\0" + path.read_bytes() + b"\0")
        for need in needs.group(1).decode().split(",") if needs else []:
            add(need)
        order.append(path)

    for name in names:
        add(name)
    return order


def archive(root, release, yasmin, folder):
    tree = folder / "tree"
    for name in ["bin", "usr/bin", "proc", "sys", "dev", "run", "tmp", "modules"]:
        (tree / name).mkdir(parents=True)
    shutil.copy(next(root.rglob("bin/busybox")), tree / "bin/busybox")
    shutil.copy(yasmin, tree / "usr/bin/yasmin")
    shutil.copy(HERE / "init", tree / "init")
    (tree / "init").chmod(0o755)
    for library in re.findall(r"(/\S+) \(0x", run("ldd", str(yasmin))):
        target = tree / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    order = with_dependencies(next(root.rglob(f"lib/modules/{release}")), MODULES)
    for module in order:
        shutil.copy(module, tree / "modules")
    (tree / "modules/order").write_text("\n".join(module.name for module in order) + "\n")
    image = folder / "image"
    with open(image, "wb") as out:
        subprocess.run("find . | cpio --quiet -o -H newc", shell=True, check=True, cwd=tree, stdout=out)
    return image


def boot(root, release, image, folder):
    log = folder / "console"
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max",
               "-m", "1024", "-smp", "8,sockets=2,cores=4,threads=1", "-nodefaults",
               "-display", "none", "-no-reboot", "-serial", f"file:{log}",
               "-kernel", str(next(root.rglob(f"vmlinuz-{release}"))), "-initrd", str(image),
               "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"]
    for node, cpus in enumerate(CPUS_OF_NODE):
        command += ["-object", f"memory-backend-ram,id=m{node},size=512M",
                    "-numa", f"node,nodeid={node},cpus={cpus[0]}-{cpus[-1]},memdev=m{node}",
                    "-device", f"pxb-pcie,id=bus{node},bus=pcie.0,bus_nr={64 * (node + 1)},numa_node={node}",
                    "-device", f"pcie-root-port,id=port{node},bus=bus{node},chassis={node + 1}",
                    "-netdev", f"user,id=net{node}", "-device", f"e1000e,bus=port{node},netdev=net{node}"]
    command += ["-numa", f"dist,src=0,dst=1,val={DISTANCE}", "-numa", f"dist,src=1,dst=0,val={DISTANCE}"]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    text = log.read_text(errors="replace").replace("\r", "")
    return dict(re.findall(r"^== (\w+)\n(.*?)^== end$", text, re.M | re.S)), text


def check(what, is_so, seen):
    print(("ok    " if is_so else "WRONG ") + what, flush=True)
    if not is_so:
        print(f"      {seen}")
    return is_so


def node_of(cpus):
    """The node of a single CPU, as /proc lists it; None for several."""
    return next((node for node, own in enumerate(CPUS_OF_NODE) if cpus.isdigit() and int(cpus) in own), None)


def judge(parts):
    lines = lambda part: parts.get(part, "").split("\n")[:-1]
    records = [json.loads(line) for line in lines("log")]
    machine = next((one["machine"]["machine"] for one in records if "machine" in one), {})
    cards = {name: int(node) for name, _, node in (line.split() for line in lines("cards"))}
    found = {nic["name"]: nic["node"] for nic in machine.get("nics", []) if nic["name"] in cards}
    nodes = [node["cpus"] for node in machine.get("nodes", [])]
    before, placed, after = lines("before"), lines("placed"), lines("after")
    pages = {}
    for node, count in re.findall(r"N(\d+)=(\d+)", parts.get("memory", "")):
        pages[int(node)] = pages.get(int(node), 0) + int(count)
    unplugged = lines("unplugged")
    topology = parts.get("topology", "")
    good = [
        check("the kernel has a card on each node", sorted(cards.values()) == [0, 1], cards),
        check("both cards are found, each on its node", found == cards, found),
        check("nodes and CPUs", nodes == [list(cpus) for cpus in CPUS_OF_NODE], nodes),
        check("distances", machine.get("distances", {}).get("table") == [[10, DISTANCE], [DISTANCE, 10]],
              machine.get("distances")),
        check("the chain is on the card's node, a CPU each",
              [node_of(cpus) for cpus in placed[:2] + placed[3:4]] == [1, 1, 1]
              and len(set(placed[:4])) == 4, placed),
        check("the container is pinned by its cpuset", placed[4:] == placed[3:4], placed),
        check("memory has followed", pages.get(1, 0) > 0 and pages.get(0, 0) <= pages.get(1, 0) / 10, pages),
        check("a function whose CPU is unplugged goes to another of the node",
              len(unplugged) == 2 and unplugged[0] != unplugged[1] and node_of(unplugged[1]) == 1, unplugged),
        check("all is put back", after[:4] == before and after[4:] in (["cpuset ''"], ["cpuset '0-7'"]), after),
    ]
    if "unrecognized subcommand" not in topology:
        try:
            told = json.loads(topology)
        except ValueError:
            told = topology
        text = json.dumps(told)
        good.append(check("yasmin topology tells both cards and the distances",
                          isinstance(told, dict) and all(f'"{card}"' in text for card in cards)
                          and str(DISTANCE) in text, text[:400]))
    try:
        seats = {one["function"]: one["node"] for one in json.loads(parts.get("plan", ""))["plans"][0]["seats"]}
    except ValueError:
        seats = parts.get("plan", "")
    # Of the four CPUs beside the card the heavy chain has three.
    good.append(check("yasmin place plan puts the heavy chain beside the card, and the light one not between",
                      isinstance(seats, dict) and len(seats) == 5
                      and [seats[name] for name in "abc"] == [1, 1, 1] and 0 in seats.values(), seats))
    return all(good)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--keep"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    root, release = packages()
    folder = Path(tempfile.mkdtemp(prefix="yasmin-numa-"))
    try:
        image = archive(root, release, Path(arguments[0]), folder)
        parts, text = boot(root, release, image, folder)
        passed = judge(parts)
        if not passed:
            print(text[-6000:])
    finally:
        if "--keep" in sys.argv:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    sys.exit(0 if passed else 1)


main()
