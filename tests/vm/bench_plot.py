"""The figures of bench.py as SVG, one line for each path. Needs matplotlib."""
import os

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "yasmin"  # the same picture for the same figures
matplotlib.rcParams["svg.fonttype"] = "none"
from matplotlib import pyplot  # noqa: E402

COLOURS = {"netfront": "#555555", "yasmin": "#c0392b", "libvchan": "#2471a3"}
# Small rings are dotted, the largest is a full line.
STYLES = {4: ":", 16: "-.", 64: "--", 512: "-"}
NAMES = {1: "1 B", 1 << 10: "1 KiB", 1 << 20: "1 MiB"}


def bytes_name(value):
    for unit in (1 << 20, 1 << 10, 1):
        if value >= unit:
            return NAMES[unit].replace("1", str(int(value // unit)), 1)
    return ""


def draw_one(rows, out, name, title, x_label, y_label, x_name, logarithmic=True):
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    ticks = []
    for path, row in rows.items():
        kind, *ring = path.split()
        x = [float(value) for value in row]
        ticks = max(ticks, x, key=len)
        style = STYLES.get(int(ring[0]) if ring else 512, "-")
        axes.plot(x, list(row.values()), style, color=COLOURS[kind], marker=".", label=path)
    if logarithmic:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(ticks, [x_name(tick) for tick in ticks], fontsize=7)
    axes.minorticks_off()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=2)
    figure.tight_layout()
    figure.savefig(os.path.join(out, f"{name}.svg"), metadata={"Date": None})
    pyplot.close(figure)


def draw(results, out):
    draw_one(results["latency_us"], out, "figure4-latency", "Round trip between two guests",
             "message", "us, virtual time", bytes_name)
    draw_one(results["gbit_s"], out, "figure5-throughput", "Throughput between two guests",
             "bytes in a call", "Gbit/s, virtual time", bytes_name)
    draw_one(results["ring_gbit_s"], out, "figure6-rings", "Throughput by ring, 64 KiB a call",
             "ring each way", "Gbit/s, virtual time", lambda kib: bytes_name(kib * 1024))
    draw_one(results["pairs_gbit_s"], out, "figure7-pairs", "Pairs of guests at once, one emulated CPU for all",
             "pairs", "Gbit/s of all, virtual time", lambda n: str(int(n)), logarithmic=False)
    print(f"plots: {out}/figure*.svg")
