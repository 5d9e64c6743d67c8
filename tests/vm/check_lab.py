"""The lab itself: without it nothing else that is found here means anything."""
import hashlib
import os
import time

import lab
from check import Failed, check, equal, finish, run, start


@check
def commands_give_output_and_status():
    equal(run("dom0", "echo one; echo two >&2; exit 3", status=3), "one\ntwo\n", "output")
    equal(run("a", "hostname").strip(), "a", "name of a")
    equal(run("b", "hostname").strip(), "b", "name of b")


@check
def input_arrives_whole():
    data = os.urandom(3_000_000)
    output = run("a", "sha256sum", stdin=data)
    equal(output.split()[0], hashlib.sha256(data).hexdigest(), "sum of what a got")


@check
def commands_end_after_their_time():
    run("a", "sleep 1000", status=124, timeout_s=1)


@check
def guests_talk_through_netfront():
    """The baseline: TCP from guest to guest over dom0's bridge, every byte."""
    start("b", "sink", "flow tcp listen 5001")
    run("b", "until netstat -ltn | grep -q :5001; do usleep 20000; done")
    run("a", "flow tcp connect 10.0.2.21 5001 -s 4000000 -r 1000000")
    finish("b", "sink")


@check
def a_guest_is_destroyed_and_comes_back():
    before = run("dom0", "xl domid b").strip()
    run("dom0", "xl destroy b")
    try:
        status, _ = lab.run("b", "true", timeout_s=1)
        raise Failed(f"b answers after its end: {status}")
    except lab.Lost:
        pass
    create_guest("b")
    if run("dom0", "xl domid b").strip() == before:
        raise Failed("the same domain number twice")


def create_guest(name):
    """Creates a guest again that was destroyed, and waits until it answers."""
    run("dom0", f"xl create -q /etc/xen/{name}.cfg", timeout_s=120)
    await_guest(name)


def await_guest(name):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if lab.run(name, "true", timeout_s=1)[0] == 0:
                return
        except lab.Lost:
            time.sleep(0.2)
    raise Failed(f"guest {name} does not come back")
