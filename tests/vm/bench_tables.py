"""What bench.py measured, as Markdown: on the screen and in tables.md."""
import os

import bench_connects
import bench_programs

# What the paper (Rozis, Gerangelos, Koziris 2017) says in figures: against netfront and netback.
PAPER_BANDWIDTH = 4.4
PAPER_LATENCY = 0.35


def number(value):
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def size(text):
    value = int(text)
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= bytes_:
            return f"{value // bytes_} {unit}"
    return f"{value} B"


def table(title, columns, rows, heading):
    """rows: name -> {x: value}; columns in the order of the first row that has them."""
    lines = ["", title, "", f"| {heading} | " + " | ".join(columns.values()) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        lines.append(f"| {name} | " + " | ".join(number(row.get(x)) for x in columns) + " |")
    return lines


def columns_of(rows, label):
    return {x: label(x) for x in max(rows.values(), key=len)}


def largest(results, figure, prefix):
    """The row of this path with the largest ring that was measured."""
    rows = {int(name.split()[1]): row for name, row in results[figure].items() if name.startswith(prefix)}
    return rows[max(rows)]


def against_paper(results):
    latency, stream = results["latency_us"], results["gbit_s"]
    rows = [("bandwidth against netfront",
             max(largest(results, "gbit_s", "yasmin").values()) / max(stream["netfront"].values()), PAPER_BANDWIDTH),
            ("latency of 1 byte against netfront",
             largest(results, "latency_us", "yasmin")["1"] / latency["netfront"]["1"], PAPER_LATENCY)]
    lines = ["", "Against the paper (largest ring of figure 4; best message size)", "",
             "| what | here | the paper |", "|---|---|---|"]
    iperf = results.get("programs", {}).get("iperf3 -n 60M", {})
    if "yasmin" in iperf:
        figure = {path: iperf[path]["stream, Gbit/s"] for path in iperf}
        rows.insert(0, ("iperf3, unmodified, against netfront", figure["yasmin"] / figure["netfront"], PAPER_BANDWIDTH))
    return lines + [f"| {what} | {ours:.2f} | {paper} |" for what, ours, paper in rows]


def against_vchan(results):
    rows = {}
    for figure, what in (("latency_us", "latency"), ("gbit_s", "throughput")):
        for name, row in results[figure].items():
            other = results[figure].get(name.replace("yasmin", "libvchan"))
            if name.startswith("yasmin") and other:
                rows[f"{what}, {name.split(' ', 1)[1]}"] = {x: row[x] / other[x] for x in row}
    lines = []
    for what in ("latency", "throughput"):
        some = {name: row for name, row in rows.items() if name.startswith(what)}
        lines += table(f"yasmin divided by libvchan at the same ring: {what}", columns_of(some, size), some, "ring")
    return lines


def carried(results):
    lines = ["", "Who touches the bytes of a stream", "",
             "| path | bytes | copied in by the sender | copied out by the receiver | carried by dom0 | bells | events |",
             "|---|---|---|---|---|---|---|"]
    for name, row in results["carried"].items():
        row = row["0"]
        cells = [row.get(key, "") for key in ("bytes", "copied_in_bytes", "copied_out_bytes", "dom0_bytes", "bells", "events")]
        lines.append(f"| {name} | " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def show(results, out):
    lines = table("Figure 4: round trip in us, by message size", columns_of(results["latency_us"], size),
                  results["latency_us"], "path, ring")
    lines += table("Figure 5: throughput in Gbit/s, by bytes a call", columns_of(results["gbit_s"], size),
                   results["gbit_s"], "path, ring")
    rings = results["ring_gbit_s"]
    lines += table("Figure 6: throughput in Gbit/s, by ring (64 KiB a call)",
                   columns_of(rings, lambda kib: size(int(kib) * 1024)), rings, "path")
    lines += table("Figure 7: throughput in Gbit/s of all pairs of guests, by pairs at once",
                   columns_of(results["pairs_gbit_s"], str), results["pairs_gbit_s"], "path")
    lines += against_paper(results) + against_vchan(results) + carried(results)
    costs = results["cost_ns"]["a guest"]["0"]
    lines += ["", "What a step costs in a guest", "", "| step | ns |", "|---|---|"]
    lines += [f"| {what} | {ns} |" for what, ns in costs.items()]
    lines += bench_programs.table(results.get("programs", {})) + bench_connects.table(results.get("connect_us", {})) + [""]
    text = "\n".join(lines)
    print(text)
    with open(os.path.join(out, "tables.md"), "w") as file:
        file.write(text)
