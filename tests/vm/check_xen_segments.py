"""Segments of Xen guests: what is of Xen in them."""
import time

import check_segments
import lab
import xen_site as site
from check import Failed, await_text, check, equal, finish, no_oops, run, start
from check_segments import Table, await_state, shown


def granted():
    """What dom0 has granted: the kernel's count of the module's users is one for each segment in a guest, and one for
    the broker."""
    return int(run("dom0", "cat /sys/module/yasmin_grant/refcnt")) - 1


@check
def a_guest_without_the_driver_gets_it_when_it_comes():
    with Table("a:write"):
        await_state("a", "ready")
        run("b", "rmmod yasmin-region")
        said = check_segments.segment("allow", "table", "b:write", status=1)
        if "guest b does not have it yet" not in said:
            raise Failed(said)
        time.sleep(3)
        equal({one["guest"]: one["state"] for one in shown()["guests"]}, {"a": "ready", "b": "coming"}, "states")
        run("b", "modprobe yasmin-region")
        await_state("b", "ready")
        run("b", "members push table 4")
        equal(run("a", "members sum table"), "4 nodes, sum 10, 0 blocks left\n", "the list")


@check
def a_driver_that_is_unbound_lets_go():
    """Whoever touches it gets SIGBUS; it comes again when the driver is bound."""
    with Table("a:write", "b:write"):
        start("a", "watch", "members watch table")
        await_text("a", "/tmp/watch.out", "watching")
        name = run("a", "ls /sys/bus/xen/drivers/yasmin-region | grep yasmin-region-").strip()
        run("a", f"echo {name} >/sys/bus/xen/drivers/yasmin-region/unbind")
        equal(finish("a", "watch"), "watching\nSIGBUS\n", "who watches where it was unbound")
        await_state("a", "ready")
        run("a", "members push table 7")
        equal(run("b", "members sum table"), "7 nodes, sum 28, 0 blocks left\n", "the list")


@check
def all_grants_come_back():
    """Of segments that are removed, of a guest that is destroyed, and of one that reboots with a segment in use."""
    site.brokers_up()
    equal(granted(), 0, "segments granted before")
    with Table("a:write", "b:read"):
        await_state("a", "ready")
        await_state("b", "ready")
        equal(granted(), 2, "segments granted")
        start("b", "watch", "members watch table")
        await_text("b", "/tmp/watch.out", "watching")
        before = site.domid("b")
        try:
            lab.run("b", "reboot -f", timeout_s=5)
        except lab.Lost:
            pass
        run("dom0", f"until [ \"$(xl domid b 2>/dev/null)\" ] && [ $(xl domid b) != {before} ]; do usleep 100000; done", timeout_s=120)
        site.await_guest("b")
        site.brokers_up()
        await_state("b", "ready")
        equal(granted(), 2, "segments granted after it has rebooted")
    equal(granted(), 0, "segments granted at the end")
    equal(run("dom0", "xenstore-ls /local/domain/0/backend/yasmin-region | grep -c yasmin || true").strip(), "0", "devices left")
    no_oops("dom0")


@check
def a_guest_that_ends_without_a_broker_leaves_nothing():
    """dom0's broker is killed, then the guest is destroyed: the next broker takes back what that guest had."""
    with Table("a:write", "b:write"):
        for guest in "ab":
            await_state(guest, "ready")
        site.host_down(by_itself=False)
        run("dom0", "xl destroy b")
        site.host_up()
        deadline = time.monotonic() + 20
        while granted() != 1:
            if time.monotonic() > deadline:
                raise Failed(f"{granted()} segments granted\n{run('dom0', 'cat /tmp/host.log')}")
            time.sleep(0.1)
        await_state("a", "ready", timeout_s=60)
        site.create_guest("b")
        site.brokers_up()
        await_state("b", "ready")
    equal(granted(), 0, "segments granted at the end")


@check
def a_large_segment_and_many():
    """64 MiB, whose grants fill 17 lists; and ten at once in each guest."""
    site.brokers_up()
    if shown("large"):
        check_segments.segment("rm", "--force", "large")
        check_segments.await_gone("large")
    check_segments.segment("create", "large", "--size", "64M", "--allow", "a:write", "--allow", "b:read")
    for guest in "ab":
        deadline = time.monotonic() + 60
        while {one["guest"]: one["state"] for one in shown("large")["guests"]}[guest] != "ready":
            if time.monotonic() > deadline:
                raise Failed(site.state())
            time.sleep(0.2)
    run("a", "members fill large 1", timeout_s=120)
    said = run("b", "members verify large 1", timeout_s=120)
    equal(said, "all 67108864 bytes as written\n", "what the other guest reads")
    check_segments.segment("rm", "large")
    check_segments.await_gone("large", timeout_s=60)
    names = [f"small-{number}" for number in range(10)]
    for name in names:
        check_segments.segment("create", name, "--size", "4K", "--allow", "a:write", "--allow", "b:write")
    for name in names:
        for guest in "ab":
            run(guest, f"i=0; until members address {name} >/dev/null 2>&1; do usleep 50000; i=$((i+1)); [ $i -lt 400 ] || exit 1; done", timeout_s=60)
        check_segments.segment("rm", name)
    for name in names:
        check_segments.await_gone(name, timeout_s=60)
    equal(granted(), 0, "segments granted at the end")


@check
def a_pv_guest_is_refused():
    """Its programs could not map the memory: the host says so, and the other guest has the segment all the same."""
    run("dom0", "sed -i s/pvh/pv/ /etc/xen/b.cfg")
    try:
        site.again("b")
        site.brokers_up()
        with Table("a:write"):
            await_state("a", "ready")
            said = check_segments.segment("allow", "table", "b:write", status=1)
            if "b does not take it: yasmin-region.ko there: 95 a PV guest" not in said:
                raise Failed(said)
            run("a", "members push table 3")
            run("b", "members address table", status=1)
    finally:
        run("dom0", "sed -i s/pv/pvh/ /etc/xen/b.cfg")
        site.again("b")
