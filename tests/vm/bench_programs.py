"""Unmodified TCP programs between two guests: by netfront and netback, and under `yasmin run`.

Beside each figure stands which way the bytes took: what dom0 carried, and what went through grants.
"""
import check_guests
import check_vsock
import lab
from bench_paths import SETTLE, sums
from guest_programs import PROGRAMS

# Name of the path, and what stands before the command.
PATHS = {"netfront": "", "yasmin": check_guests.RUN}


def granted_bytes():
    for domain in "ab":
        check_vsock.settle(domain)
    return sum(sums(domain)["copied_in_bytes"] for domain in "ab")


def measured(program, prefix):
    """The program's figures, and its bytes by path; None if the command was not built when the images were."""
    if lab.run("a", "command -v yasmin")[0]:
        return None
    # Brokers without a memory of the connections before.
    check_guests.ready()
    before = check_vsock.bridged_bytes(), granted_bytes()
    program.serve(prefix)
    lab.run("a", SETTLE)
    figures = program.figures(program.ask(check_guests.ADDRESS["b"], prefix))
    program.end()
    after = check_vsock.bridged_bytes(), granted_bytes()
    return figures | {"dom0_bytes": after[0] - before[0], "granted_bytes": after[1] - before[1]}


def steps():
    return [("programs", program.name, path, lambda p=program, x=prefix: measured(p, x))
            for program in PROGRAMS for path, prefix in PATHS.items()]


def table(results):
    """Markdown; a program whose bytes did not go by grants is named."""
    lines = ["", "Unmodified TCP programs: netfront and netback, and under `yasmin run`", "",
             "| program | figure | netfront | yasmin | yasmin / netfront | of yasmin's bytes by dom0 | by grants |", "|---" * 7 + "|"]
    for name, paths in results.items():
        ours, theirs = paths.get("yasmin"), paths.get("netfront")
        if not ours or not theirs:
            continue
        dom0, granted = ours["dom0_bytes"], ours["granted_bytes"]
        way = f"{dom0 / 1e6:.1f} MB | {granted / 1e6:.1f} MB"
        if dom0 > granted:
            way += ": **by the network**"
        for figure in ours:
            if figure in ("dom0_bytes", "granted_bytes"):
                continue
            lines.append(f"| `{name}` | {figure} | {theirs[figure]:.4g} | {ours[figure]:.4g} | "
                         f"{ours[figure] / theirs[figure]:.2f} | {way} |")
    return lines
