"""The table of docs/conformance.md, and the same as JSON."""

import json
import platform

from modes import MODES

# Differences that are understood and stay, by test: why.
REASONS = {
    "test-http-writable-true-after-close": "two connections, one with bytes and one at its end, are "
    "told of by one epoll_wait; which comes first nothing promises (the test itself names systems "
    "where it is the other one), and rings come before the kernel's part",
    "http/bad_request": "the test gives itself 10 ms, and the call that offers waits up to 50 ms for its "
    "channel in these two ways; with a wait of 3 ms it passes",
    "nng.compat_surveyttl": "the test gives two connections 100 ms, and the one thread that accepts "
    "them waits up to 50 ms for each one's channel in these two ways; with a wait of 30 ms it passes",
}
# It compares the virtual size of a server while connections come and go.
for test in ("(end)", "# check memleak failed handshake (N,N,N)"):
    REASONS[f"t/memleak_bad_handshake.t {test}"] = (
        "the test looks at the size of a server's memory at some moment, and the rings of the "
        "connection that is open then count; they go with it"
    )
# Without TLS in the kernel these are tests of TCP.
MORE = (
    "bytes sent with MSG_MORE through a ring are there at once; TCP may wait for more, up to 200 ms, "
    "and who sends cannot be relied on to come back and publish them"
)
for cipher in (
    "12_aes_gcm 13_aes_gcm 12_chacha 13_chacha 13_sm4_gcm 13_sm4_ccm 12_aes_ccm 13_aes_ccm "
    "12_aes_gcm_256 13_aes_gcm_256 13_nopad"
).split():
    for test in ("msg_more", "msg_more_unsent"):
        REASONS[f"tls tls.{cipher}.{test}"] = MORE


def unexplained(row):
    """Tests of a row that differ from plain TCP for no reason that is known."""
    return [
        name
        for result in row["modes"].values()
        for name, found in result["differences"].items()
        if found["verdict"] == "differs" and name not in REASONS
    ]


class Table:
    """All rows, by suite and batch, and what was run."""

    def __init__(self):
        self.rows, self.versions, self.notes = {}, {}, {}

    @classmethod
    def load(cls, path):
        table = cls()
        if path and path.exists():
            vars(table).update(json.loads(path.read_text()))
        return table

    def row(self, suite, batch):
        empty = {"suite": suite, "batch": batch, "modes": {}}
        return self.rows.setdefault(f"{suite}/{batch}", empty)

    def save(self, path, document):
        if path:
            path.write_text(json.dumps(vars(self), indent=1) + "\n")
        if document:
            document.write_text(markdown(self))


def amount(count):
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def cell(mode, result):
    """Passes, and how much went through rings."""
    if result is None:
        return "not run"
    counts = result["counts"]
    text = str(counts.get("pass", 0))
    bad = sum(counts.get(word, 0) for word in ("fail", "error", "hang", "crash"))
    if bad:
        text += f" ({bad} not)"
    if mode.knobs is not None and result["channels"] == 0:
        text += "; no channel"
    elif mode.knobs is not None:
        text += f"; {amount(result['ring_bytes'])} of "
        text += amount(result["ring_bytes"] + result["tcp_bytes"])
    return text


HEAD = """# Conformance

Other people's tests of sockets, and jobs of our own where those send too little or cannot be had, on
plain TCP and under `yasmin run`, made by `make conformance`.
A test has to end as it does on plain TCP. Behind the number of passes: how many of the bytes of
connections that had a channel went through rings, so that a pass by not accelerating is visible.

- *channel from the first byte*: connections are offered at connect and accept, and these calls
  wait for their channel;
- *defaults*: as `yasmin run` does, from 16 messages or 64 KiB on;
- *parking and opening at random*: a channel from the first byte, and one protocol step of twenty
  takes the unlikely turn (parks, does not offer, does not open) or is delayed.

*Waits*, and what is called jobs elsewhere: an echo server and a client that checks each byte, of
1 to 200 connections at once and messages of up to 500 KB, with itself and opposite threads that block.
Bun, smol and async-std wait by system calls of their own, which call the library instead. The packages of
mio and smol leave their tests out; polling is what smol and async-std wait by.

Of curl's tests these are the first 250; of Ruby's tests of OpenSSL, those that connect.

A test that ends differently runs again alone, three times each way. Tests that fail or are
skipped on plain TCP, for the machine's sake, have to do the same under `yasmin run`.
"""


def markdown(table):
    lines = [HEAD]
    named = ", ".join(f"{name} {version}" for name, version in table.versions.items())
    lines.append(f"Linux {platform.release()}; {named}.\n")
    titles = [mode.title for mode in MODES]
    lines.append("| suite | tests | " + " | ".join(titles) + " | differs |")
    lines.append("|---|---|" + "---|" * (len(titles) + 1))
    differing, unsteady = [], []
    for row in table.rows.values():
        results = row["modes"]
        if not results:
            # Its first run is not over.
            continue
        total = max(sum(result["counts"].values()) for result in results.values())
        cells = [cell(mode, results.get(mode.name)) for mode in MODES]
        found = {}
        for result in results.values():
            found.update(result["differences"])
        here = [name for name, one in found.items() if one["verdict"] == "differs"]
        differing += here
        unsteady += [name for name in found if name not in here]
        name = f"{row['suite']} {row['batch']}"
        lines.append(f"| {name} | {total} | {' | '.join(cells)} | {len(here) or 'none'} |")
    lines.append("\n## Differences\n")
    if not differing:
        lines.append("None.")
    lines += [f"- `{name}`: {REASONS.get(name, 'not explained yet')}" for name in differing]
    if unsteady:
        names = ", ".join(f"`{name}`" for name in unsteady)
        lines.append(f"\nEnded differently once, and the same when run again: {names}.")
    lines += [f"\n{suite}: {note}." for suite, note in table.notes.items()]
    return "\n".join(lines) + "\n"
