"""Two guests of a host whose broker serves them, of KVM or of Xen: what programs in them get, by each path between them.

Rounds alternate between the paths; medians, the spread between least and most, and how many times better than the first
path. Where the guests are emulated only the ratios mean something.
"""
import argparse
import json
import re
import signal
import statistics
import subprocess
import sys

import check_rings as rings
from bench_tables import number
from check import Failed, finish, run, start

# One that some figures have.
SEGMENT = "segment"
INTS = 8192
# How the host and its guests are reached: kvm_site or xen_site. Set by the program that measures.
site = None
port = 8000


def serve(command):
    """Starts a server in b on a port of its own, and waits until it listens; the port."""
    global port
    port += 1
    start("b", "server", command.format(port=port))
    run("b", f"until netstat -ltn | grep -q :{port}; do usleep 20000; done")
    return port


def ping_pong_us(prefix, echoes=4000, size=64):
    serve(f"{prefix} stream listen {{port}}")
    said = run("a", f"{prefix} stream connect {site.address('b')} {port} -e {echoes} -c {size}")
    finish("b", "server")
    return float(re.search(r"([\d.]+) us an echo", said)[1])


def iperf_gbit_s(prefix, seconds=4):
    serve(f"{prefix} iperf3 -s -1 -p {{port}}")
    said = run("a", f"{prefix} iperf3 -c {site.address('b')} -p {port} -t {seconds} -J")
    finish("b", "server")
    return json.loads(said[said.index("{"):])["end"]["sum_received"]["bits_per_second"] / 1e9


def redis(prefix, options):
    serve(f"{prefix} redis-server --port {{port}} --save \"\" --protected-mode no")
    said = run("a", f"{prefix} redis-benchmark -h {site.address('b')} -p {port} -t get --csv {options}")
    run("b", "killall redis-server")
    finish("b", "server")
    return float(re.search(r'"GET","([\d.]+)"', said)[1])


def short_connections(prefix):
    # By the library's own judgement: a short connection is not worth a channel.
    return redis(prefix.replace("YASMIN_PROMOTE_MESSAGES=0 ", ""), "-c 1 -k 0 -n 200")


def ints_us(prefix):
    """There and back: the experiment of the paper on memory that VMs share. No prefix: by a segment and flags in it."""
    if prefix is not None:
        return ping_pong_us(prefix, echoes=1000, size=4 * INTS)
    rounds = 2000
    site.host("segment", "create", "table", "--size", "2M", "--allow", "a:write", "--allow", "b:write")
    start("b", "exchange", f"members exchange table 1 {rounds} {INTS}")
    said = run("a", f"members exchange table 0 {rounds} {INTS}")
    finish("b", "exchange")
    site.host("segment", "rm", "table")
    return float(said.split()[0])


# What, and whether more is better.
FIGURES = {
    "ping-pong of 64 B, us": (ping_pong_us, False),
    "8,192 ints there and back, us": (ints_us, False),
    "iperf3, one stream, Gbit/s": (iperf_gbit_s, True),
    "redis-benchmark GET, 50 clients, 1/s": (lambda prefix: redis(prefix, "-c 50 -n 10000"), True),
    "redis-benchmark GET, each on a new connection, 1/s": (short_connections, True),
}


def table(results, paths):
    """Markdown. `paths`: names; all are compared with the first."""
    first, *others = paths
    heads = [first, *(cell for path in others for cell in (path, "times better"))]
    lines = ["", f"| | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]

    def cells(what):
        values = results[what]
        middle = {path: statistics.median(values[path]) for path in values}
        for path in paths:
            yield f"{number(middle[path])} ({number(min(values[path]))} to {number(max(values[path]))})"
            if path != first:
                ratio = middle[path] / middle[first]
                yield number(ratio if FIGURES[what][1] else 1 / ratio)

    lines += [f"| {what} | {' | '.join(cells(what))} |" for what in results]
    for what, values in results.items():
        if SEGMENT in values:
            middle = {path: statistics.median(values[path]) for path in values}
            times = " and ".join(f"{number(middle[path] / middle[SEGMENT])} times less than {path}" for path in paths)
            lines += ["", f"{what}, by a segment: {number(middle[SEGMENT])} ({number(min(values[SEGMENT]))} to "
                      f"{number(max(values[SEGMENT]))}), {times}"]
    return "\n".join(lines)


def measure(rounds, only, paths):
    """Each figure's values by path. `paths`: what stands before a command, by name."""
    site.brokers_up()
    results = {}
    for what, (figure, _) in FIGURES.items():
        if only not in what:
            continue
        of_figure = paths | ({SEGMENT: None} if figure is ints_us else {})
        results[what] = {path: [] for path in of_figure}
        for turn in range(rounds):
            # None always goes first.
            for path in sorted(of_figure, reverse=turn % 2 == 0):
                before = rings.sent("a", "ring")
                value = figure(of_figure[path])
                results[what][path].append(value)
                print(f"{what}, {path}: {number(value)}; by ring from a: {rings.sent('a', 'ring') - before} bytes", flush=True)
    return results


def command(about, machine, the_site, paths, up=(), ready=lambda: None):
    """The command line. `machine`: the module that boots it, with the options `up`; `ready`: what is done then."""
    global site
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="TEXT", default="", help="figures whose names have this in them")
    options = parser.parse_args()
    # Ended from outside, it ends what it booted too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    site = rings.site = the_site
    was_up = machine.is_up()
    if not was_up and subprocess.run([sys.executable, machine.__file__, "up", *up]).returncode:
        sys.exit(1)
    try:
        ready()
        print(table(measure(options.rounds, options.only, paths), list(paths)))
    except Failed as error:
        sys.exit(f"failed: {error}")
    finally:
        site.host_down()
        if not was_up and not options.keep:
            machine.down()
