"""What the checks in tests/ share: running things in domains, and running the checks themselves."""
import argparse
import inspect
import signal
import subprocess
import sys
import time
import traceback

import lab

checks = []


def check(function):
    """Marks a function as a check; they run in the order in which they are written."""
    checks.append(function)
    return function


def long(function):
    """Marks a check that runs only when it is asked for by name."""
    function.long = True
    return check(function)


class Failed(Exception):
    pass


def run(domain, command, status=0, **options):
    """Runs a command, insists on its exit status, returns its output."""
    got, output = lab.run(domain, command, **options)
    if got != status:
        raise Failed(f"{domain}: {command!r} ended with {got}, not {status}:\n{output}")
    return output


def equal(got, wanted, what):
    if got != wanted:
        raise Failed(f"{what}: {got!r}, not {wanted!r}")


def start(domain, name, command):
    """Starts a command in the background; `finish` gives its output and insists on its status."""
    script = f"( {command} ) >/tmp/{name}.out 2>&1; echo $? >/tmp/{name}.rc.new; mv /tmp/{name}.rc.new /tmp/{name}.rc"
    run(domain, f"rm -f /tmp/{name}.rc; setsid sh -c '{script}' </dev/null >/dev/null 2>&1 &")


def finish(domain, name, status=0, timeout_s=300):
    wait = f"while [ ! -e /tmp/{name}.rc ]; do usleep 20000; done; cat /tmp/{name}.out; exit $(cat /tmp/{name}.rc)"
    return run(domain, wait, status=status, timeout_s=timeout_s)


def await_text(domain, file, text):
    """Until a file there has this text."""
    run(domain, f"i=0; until grep -q \"{text}\" {file} 2>/dev/null; do usleep 20000; i=$((i+1)); [ $i -lt 1000 ] || "
        f"{{ cat {file}; exit 1; }}; done")


def unless_broker(command):
    """In a shell: the command, if there is no broker; who keeps segments is none."""
    return f"b=; for p in $(pidof yasmind); do grep -q keep /proc/$p/cmdline || b=1; done; [ $b ] || {{ {command} }}"


def no_oops(domain):
    equal(run(domain, "dmesg | grep -E 'BUG|Oops|WARNING|general protection|Call Trace' || true"), "", f"log of {domain}")


def repeats(function, boot_again):
    """A check that fails although nothing is wrong with what it checks is repeated, twice at most."""
    for _ in range(2):
        try:
            return function()
        except (Failed, lab.Lost):
            if not (why := boot_again()):
                raise
            print(f"again {function.__name__}: {why}", flush=True)
    return function()


def main(names, boot_again=lambda: None):
    """Runs the checks whose names contain one of `names`; if there is none, all but the long ones.

    `boot_again`: whether the machine itself has failed since it was booted; it says how, and has booted it again.
    """
    failures = []
    chosen = [c for c in checks if any(name in c.__name__ for name in names) or not (names or hasattr(c, "long"))]
    for function in chosen:
        started = time.monotonic()
        try:
            repeats(function, boot_again)
            print(f"ok    {function.__name__}  {time.monotonic() - started:.1f} s", flush=True)
        except (Failed, lab.Lost) as error:
            failures.append(function.__name__)
            print(f"FAIL  {function.__name__}  {inspect.getdoc(function) or ''}\n{error}", flush=True)
            lab.show_console(40)
        except Exception:
            failures.append(function.__name__)
            print(f"FAIL  {function.__name__}\n{traceback.format_exc()}", flush=True)
            lab.show_console(40)
    print(f"{len(chosen) - len(failures)} of {len(chosen)} checks passed", flush=True)
    return 1 if failures or not chosen else 0


def command(about, machine, clean_up=lambda: None, up=(), has_failed=lambda: None):
    """The command line of a lab's tests. `machine`: the module that boots it (is_up, down, `up` as a program, with these
    options). `has_failed`: what is wrong with the machine itself, if something is."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    # Ended from outside, it ends what it booted too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    was_up = machine.is_up()

    def boot():
        if subprocess.run([sys.executable, machine.__file__, "up", *up]).returncode:
            sys.exit(1)

    def boot_again():
        if why := has_failed():
            machine.down()
            boot()
        return why

    if not was_up:
        boot()
    try:
        sys.exit(main(options.names, boot_again))
    finally:
        clean_up()
        if not was_up and not options.keep:
            machine.down()
