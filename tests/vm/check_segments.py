"""Segments that the host gives its guests, and programs of several guests around one: of KVM, or of Xen.

These need the command, the broker and the libraries built (make build).
"""
import json
import time

from check import Failed, await_text, check, equal, finish, run, start

SIZE = "2M"
# How the host and its guests are reached, and what is done to them: kvm_site or xen_site, set by the program that
# runs the checks.
site = None


def segment(*words, status=0):
    return site.host("segment", *words, status=status)


def shown(name="table"):
    """What the host says of it; None: it is gone."""
    return next((one for one in json.loads(segment("ls", "--json")) if one["name"] == name), None)


def await_gone(name="table", timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while shown(name):
        if time.monotonic() > deadline:
            raise Failed(f"it does not go\n{segment('ls')}\n{site.state()}")
        time.sleep(0.1)


def await_state(guest, state, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while (now := {one["guest"]: one["state"] for one in shown()["guests"]})[guest] != state:
        if time.monotonic() > deadline:
            raise Failed(f"{guest} is {now[guest]}, not {state}\n{site.state()}")
        time.sleep(0.1)


class Table:
    """A segment `table` of the host's, with these rights; nothing of it is left."""

    def __init__(self, *rights):
        self.rights = rights

    def __enter__(self):
        site.brokers_up()
        if shown():
            # What a check that failed has left.
            segment("rm", "--force", "table")
            await_gone()
        allowed = [word for right in self.rights for word in ("--allow", right)]
        print(f"      {segment('create', 'table', '--size', SIZE, *allowed).strip()}")

    def __exit__(self, *_):
        for guest in "ab":
            run(guest, "killall -9 members 2>/dev/null || true")
        # Asked once: what is being removed may be gone the next time.
        if (left := shown()) and not left["is_removed"]:
            segment("rm", "table")
        await_gone()
        for guest in "ab":
            site.no_oops(guest)


@check
def programs_of_two_guests_use_one_memory_at_one_address():
    """A list of plain pointers that one guest makes and the other one reads and frees; a heap that stays whole."""
    with Table("a:write", "b:write"):
        addresses = {guest: run(guest, "members address table").strip() for guest in "ab"}
        equal(addresses["a"], addresses["b"], "addresses")
        equal(int(addresses["a"], 16), shown()["address"], "the address that the host says")
        run("a", "members push table 1000")
        run("b", "members push table 500")
        equal(run("a", "members sum table"), "1500 nodes, sum 625750, 0 blocks left\n", "the list")
        listed = json.loads(run("a", "yasmin segment ls --json"))
        equal([(one["name"], one["of_host"]) for one in listed], [("table", True)], "segments in a guest")
        if "it is the host's" not in run("a", "yasmin segment rm table 2>&1", status=1):
            raise Failed("a guest removes what is the host's")


@check
def rights_hold_by_the_mapping():
    """A guest that may read has memory that it cannot write, and a program a descriptor that maps no other way."""
    with Table("a:write", "b:read"):
        run("a", "members push table 3")
        said = run("b", "members trespass table")
        equal(said, "open to write: EACCES\nallow: EPERM\nmprotect: EACCES\nwrite: SIGSEGV\n", "who may read")
        site.pierces("b", shown()["memory_bytes"])
        equal(run("a", "members sum table"), "3 nodes, sum 6, 0 blocks left\n", "the list")
        # A user of the guest who was not named.
        segment("allow", "table", "b:none", "b/1234:read")
        run("b", "members address table", status=1)


@check
def locks_hold_between_guests():
    with Table("a:write", "b:write"):
        for guest in "ab":
            start(guest, "count", "members count table 3000")
        said = [finish(guest, "count") for guest in "ab"]
        if "counter 6000, 0 died\n" not in said:
            raise Failed(f"3000 times in each guest: {said}")
        for guest in "ab":
            start(guest, "meet", "members meet table 50")
        for guest in "ab":
            equal(finish(guest, "meet"), "met 50 times\n", "barrier")


@check
def a_long_sleeper_is_woken_by_a_bell():
    """And not by its own looks, which are few."""
    rounds = 6
    with Table("a:write", "b:write"):
        for side, guest in enumerate("ab"):
            start(guest, "ring", f"members ring table {side} {rounds}")
        said = [finish(guest, "ring") for guest in "ab"]
        print(f"      {said[0].strip()}")
        sleeps = [int(one.split()[4]) for one in said]
        if max(sleeps) > 200:
            raise Failed(f"sleeps in a wait of half a second: {sleeps}")
        rings = [one["rings"] for one in shown()["guests"]]
        if min(rings) < rounds - 1:
            raise Failed(f"bells rung in the guests: {rings}, in {rounds} rounds")


@check
def a_holder_that_dies_in_another_guest_is_found_out():
    """The next owner is told, with a greater fence; while the holder lives nobody is."""
    with Table("a:write", "b:write"):
        start("a", "hold", "members hold table")
        await_text("a", "/tmp/hold.out", "holds fence")
        start("b", "next", "members hold table")
        time.sleep(1)
        equal(run("b", "cat /tmp/next.out"), "", "who waits for a holder that lives")
        begun = time.monotonic()
        run("a", "killall -9 members")
        await_text("b", "/tmp/next.out", "1 died")
        print(f"      {time.monotonic() - begun:.2f} s after the kill")
        fences = [int(run(guest, f"cut -d' ' -f3 /tmp/{name}.out").strip(",\n")) for guest, name in (("a", "hold"), ("b", "next"))]
        if fences[0] >= fences[1]:
            raise Failed(f"fences {fences}")


@check
def a_guest_that_is_paused_keeps_what_it_holds():
    """Others wait as long as it is paused, and longer; its holder gives the lock back as it had it."""
    with Table("a:write", "b:write"):
        start("a", "late", "{ sleep 2; echo; } | members late table")
        await_text("a", "/tmp/late.out", "holds fence")
        with site.paused("a"):
            start("b", "next", "members hold table")
            time.sleep(3)
            equal(run("b", "cat /tmp/next.out"), "", "who waits for a holder that is paused")
        if not finish("a", "late").endswith("unlock: 0\n"):
            raise Failed(run("a", "cat /tmp/late.out"))
        await_text("b", "/tmp/next.out", "0 died")


@check
def a_guest_that_ends_gives_back_what_it_held():
    """Without a word; when it is back it has the segment as it was left."""
    with Table("a:write", "b:write"):
        start("a", "hold", "members hold table")
        await_text("a", "/tmp/hold.out", "holds fence")
        run("a", "members push other 1", status=1)
        site.again("a")
        begun = time.monotonic()
        equal(run("b", "members count table 10", timeout_s=60), "counter 10, 1 died\n", "the next owner")
        print(f"      {time.monotonic() - begun:.2f} s")
        site.brokers_up()
        await_state("a", "ready")
        equal(run("a", "members count table 10"), "counter 20, 0 died\n", "who is back")


@check
def another_broker_in_a_guest_knows_who_lives():
    """It is killed while a program holds a lock: the holder is alive to the others, and its death is seen."""
    with Table("a:write", "b:write"):
        start("a", "hold", "members hold table")
        await_text("a", "/tmp/hold.out", "holds fence")
        # Not the one that keeps its segments.
        run("a", "for p in $(pidof yasmind); do grep -q keep /proc/$p/cmdline && continue; kill -9 $p; "
            "while [ -e /proc/$p ]; do usleep 10000; done; done")
        run("a", "mv /tmp/yasmind.log /tmp/yasmind.before")
        site.broker_up("a")
        await_text("a", "/tmp/yasmind.log", "the host's broker is there")
        await_state("a", "ready")
        start("b", "next", "members hold table")
        time.sleep(1)
        equal(run("b", "cat /tmp/next.out"), "", "who waits for a holder that lives")
        run("a", "killall -9 members")
        await_text("b", "/tmp/next.out", "1 died")


@check
def a_segment_is_removed_when_nobody_has_it():
    with Table("a:write", "b:write"):
        start("a", "hold", "members hold table")
        await_text("a", "/tmp/hold.out", "holds fence")
        segment("rm", "table")
        await_state("b", "absent")
        equal(shown()["guests"][0]["state"], "going", "where it is in use")
        run("a", "members address table", status=1)
        run("a", "killall -9 members")
        await_gone()
        equal([site.devices(guest) for guest in "ab"], [[], []], "devices")


@check
def memory_that_is_taken_away_faults():
    """By force, and by whoever unplugs a device by hand: SIGBUS, and never other bytes; the other guest goes on."""
    with Table("a:write", "b:write"):
        for guest in "ab":
            start(guest, "watch", "members watch table")
            await_text(guest, "/tmp/watch.out", "watching")
        site.unplug("a", site.devices("a")[0])
        equal(finish("a", "watch"), "watching\nSIGBUS\n", "who watches where it was unplugged")
        # It comes again there.
        await_state("a", "ready")
        run("a", "members push table 7")
        equal(run("b", "cat /tmp/watch.out"), "watching\n", "who watches in the other guest")
        segment("rm", "--force", "table")
        equal(finish("b", "watch"), "watching\nSIGBUS\n", "who watches when it is removed by force")


@check
def the_hosts_broker_ends_and_segments_stay():
    with Table("a:write", "b:write"):
        run("a", "members push table 10")
        start("b", "hold", "members hold table")
        await_text("b", "/tmp/hold.out", "holds fence")
        for ends_by_itself in (True, False):
            site.host_down(ends_by_itself)
            run("a", "members address table")
            site.host_up()
            for guest in "ab":
                await_state(guest, "ready", timeout_s=60)
        run("b", "killall -9 members")
        equal(run("a", "members sum table"), "10 nodes, sum 55, 0 blocks left\n", "the list")


@check
def a_guest_that_has_one_in_use_does_not_move():
    with Table("a:write", "b:write"):
        start("a", "hold", "members hold table")
        await_text("a", "/tmp/hold.out", "holds fence")
        if "programs in guest a still have segment table" not in site.host("leave", "a", "--within", "2", status=1):
            raise Failed("it may move")
        run("a", "killall -9 members")
        site.host("leave", "a")
        equal(site.devices("a"), [], "devices")
        site.host("join", "a")
        await_state("a", "ready")
