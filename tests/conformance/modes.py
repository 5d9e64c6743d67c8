"""The ways a suite is run: plain TCP, and `yasmin run` with the library in several moods.

Each run has a network namespace, a process namespace and a broker of its own, and all of it ends
with it:

    unshare ── sh ──┬── yasmind
                    └── [yasmin run] program     (then yasmin status --json)

Without root there are no namespaces; then runs share the machine's loopback.
"""

import dataclasses
import json
import os
import signal
import subprocess

# A channel from the first byte on: offered at connect and accept, waited for, offered to receive
# before anything came.
AT_ONCE = {"YASMIN_PROMOTE_MESSAGES": "0", "YASMIN_PROMOTE_WAIT_MS": "50", "YASMIN_SPIN_US": "300"}


@dataclasses.dataclass(frozen=True)
class Mode:
    name: str
    title: str
    # None: without the library.
    knobs: dict | None

    def environment(self, seed):
        knobs = dict(self.knobs or {})
        if "YASMIN_CHAOS" in knobs:
            knobs["YASMIN_CHAOS_SEED"] = str(seed)
        return knobs


MODES = [
    Mode("plain", "plain TCP", None),
    Mode("forced", "channel from the first byte", AT_ONCE),
    Mode("default", "defaults", {}),
    Mode("chaos", "parking and opening at random", {**AT_ONCE, "YASMIN_CHAOS": "50"}),
]

SCRIPT = """
ip link set lo up 2>/dev/null
"$YASMIND" --socket "$BROKER" >broker.log 2>&1 &
broker=$!
for i in $(seq 200); do "$YASMIN" status --json --socket "$BROKER" >/dev/null 2>&1 && break; done
"$@"
rc=$?
"$YASMIN" status --json --socket "$BROKER" >status.json
kill $broker
exit $rc
"""


@dataclasses.dataclass
class Done:
    """What a run left behind. `rc` is None when it was ended after its time."""

    rc: int | None
    output: str
    ring_bytes: int = 0
    tcp_bytes: int = 0
    channels: int = 0


def carried(status):
    """Bytes by ring and by TCP of connections that had a channel, and how many had."""
    ring = status["broker"]["closed_ring_bytes"]
    tcp = status["broker"]["closed_tcp_bytes"]
    for connection in status["connections"]:
        for end in connection["ends"]:
            ring += end["sends"]["ring_bytes"]
            tcp += end["sends"]["tcp_bytes"]
    return ring, tcp, status["broker"]["channels_total"]


def run(mode, binaries, folder, argv, environment, timeout_s, seed):
    """Runs `argv` in `folder` as `mode` says, to its end."""
    argv = [str(word) for word in argv]
    if mode.knobs is None:
        # The shell stays, as below: the first of the process namespace has to reap orphans.
        argv = ["sh", "-c", 'ip link set lo up 2>/dev/null; "$@"; exit $?', "sh", *argv]
    else:
        broker = str(folder / "broker.sock")
        environment = {
            **environment,
            **mode.environment(seed),
            "YASMIN": str(binaries / "yasmin"),
            "YASMIND": str(binaries / "yasmind"),
            "BROKER": broker,
        }
        launch = [str(binaries / "yasmin"), "run", "--quiet", "--socket", broker, "--", *argv]
        argv = ["sh", "-c", SCRIPT, "sh", *launch]
    if os.geteuid() == 0:
        apart = ["--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        argv = ["unshare", *apart, "--", *argv]
    log, status = folder / "output", folder / "status.json"
    status.unlink(missing_ok=True)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            rc = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            rc = None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if rc is None or os.geteuid() != 0:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    done = Done(rc, log.read_text(errors="replace"))
    if status.exists() and status.stat().st_size:
        done.ring_bytes, done.tcp_bytes, done.channels = carried(json.loads(status.read_text()))
    return done
