#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""report.py RAW OUT: makes report.md and report.json in OUT from what guest.sh left in RAW; prints the first, then
the bar lines. Fails if a target failed."""

import json
import pathlib
import statistics
import sys
from collections import defaultdict

OURS, PEER, BARE = "zbd-lz4", "vdo", "bare"
JOBS = {
    "seqwrite": ("128k sequential write, depth 16", "MiB/s"),
    "seqread": ("128k sequential read, depth 16", "MiB/s"),
    "randwrite": ("4k random write, depth 128", "k IOPS"),
    "randread": ("4k random read, depth 128", "k IOPS"),
    "randwrite1": ("4k random write, depth 1", "k IOPS"),
    "randread1": ("4k random read, depth 1", "k IOPS"),
}
KINDS = {"half": "50 % compressible", "random": "incompressible"}
SHOWN = {"bare": "bare", "vdo": "dm-vdo", "zbd-lz4": "zbd lz4", "zbd-zstd1": "zbd zstd:1"}
BLOCK, MIB = 4096, 1 << 20
# Per cent of the machine that other programs may take before a run counts as disturbed.
OTHERS_MAX = 5


def read_facts(raw):
    """(target, data) -> name -> one value a round; and what failed."""
    facts, failed = defaultdict(lambda: defaultdict(list)), []
    path = raw / "facts"
    for line in path.read_text().splitlines() if path.exists() else []:
        _round, data, target, name, value = line.split(" ", 4)
        if name == "failed":
            failed.append((target, data, value))
        elif not name.endswith((".start", ".end", ".busy_ticks")):
            facts[target, data][name].append(float(value))
    return facts, failed


def read_jobs(raw, machine):
    """(target, data, job) -> lists of bytes per second, operations per second and microseconds of work per 4 KiB."""
    jobs = defaultdict(lambda: defaultdict(list))
    for line in (raw / "facts").read_text().splitlines():
        round_, data, target, name, value = line.split(" ", 4)
        if not name.endswith(".busy_ticks"):
            continue
        job = name.removesuffix(".busy_ticks")
        text = (raw / f"{round_}.{data}.{target}.{job}.json").read_text()
        result = json.loads(text[text.index("{"):])["jobs"][0]
        way = result["read" if "read" in job else "write"]
        if result["error"]:
            continue
        ticks = float(value) - float(machine["startup_ticks"])
        work = max(ticks, 0) / float(machine["ticks_per_second"]) * 1e6 / max(way["io_bytes"] / BLOCK, 1)
        jobs[target, data, job]["bytes_per_second"].append(way["bw_bytes"])
        jobs[target, data, job]["iops"].append(way["iops"])
        jobs[target, data, job]["work_us_per_block"].append(work)
        jobs[target, data, job]["p99_us"].append(way["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1000)
    return jobs


def summary(jobs, facts, region_bytes):
    """Everything measured, as nested dictionaries: medians, and the rounds they come from."""
    out = {}
    for (target, data, job), values in jobs.items():
        cell = out.setdefault(data, {}).setdefault(target, {}).setdefault(job, {})
        for name, rounds in values.items():
            cell[name] = {"median": statistics.median(rounds), "rounds": rounds}
    for (target, data), values in facts.items():
        cell = out.setdefault(data, {}).setdefault(target, {})
        for name, rounds in values.items():
            cell[name] = {"median": statistics.median(rounds), "rounds": rounds}
        if "used_filled" in values and "used_empty" in values:
            used = statistics.median(values["used_filled"]) - statistics.median(values["used_empty"])
            cell["stored_per_logical"] = {"median": used / region_bytes}
    return out


def median(out, data, target, *path):
    """A median, or None for what was not measured."""
    cell = out.get(data, {}).get(target, {})
    for name in path:
        cell = cell.get(name, {})
    return cell.get("median")


def ratio(a, b):
    """a / b, None if there is no such thing."""
    return a / b if a is not None and b else None


def show(value, digits):
    """A number for the table."""
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def spread(out, data, target, job):
    """How far the rounds are apart, in per cent of their median."""
    cell = out.get(data, {}).get(target, {}).get(job, {}).get("bytes_per_second")
    return None if not cell else (max(cell["rounds"]) - min(cell["rounds"])) / cell["median"] * 100


def add_ratios(out):
    """Ratios of speed to bare and to dm-vdo, beside the speeds."""
    for data, targets in out.items():
        for target, cell in targets.items():
            for job in JOBS:
                if job in cell:
                    own = median(out, data, target, job, "bytes_per_second")
                    for name, other in (("to_bare", BARE), ("to_vdo", PEER)):
                        cell[job][name] = ratio(own, median(out, data, other, job, "bytes_per_second"))


def table(head, rows):
    """Lines of a markdown table: words to the left, numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def speed_rows(out, data, targets):
    """One row a job: speeds, then ratios."""
    for job, (words, unit) in JOBS.items():
        speeds = {t: median(out, data, t, job, "bytes_per_second") for t in targets}
        if not any(speeds.values()):
            continue
        scale = MIB if unit == "MiB/s" else BLOCK * 1000
        worst = max((spread(out, data, t, job) or 0 for t in targets), default=0)
        yield [f"{words}, {unit}"] + [show(s and s / scale, 0 if unit == "MiB/s" else 1) for s in speeds.values()] + [
            show(ratio(speeds.get(OURS), speeds.get(BARE)), 2), show(ratio(speeds.get(OURS), speeds.get(PEER)), 2),
            show(worst, 0) + " %"]


def work_rows(out, data, targets):
    """One row a job: processor time per block."""
    for job, (words, _unit) in JOBS.items():
        work = [median(out, data, t, job, "work_us_per_block") for t in targets]
        if any(w is not None for w in work):
            yield [words] + [show(w, 1) for w in work]


def cost_rows(out, data, targets):
    """Memory and space."""
    def of(name, scale):
        return [show(v and v / scale, 2 if scale == 1 else 0) for v in (median(out, data, t, name) for t in targets)]
    yield ["memory taken at the start, MiB"] + of("memory_start", MIB)
    yield ["memory by its own count at the end, MiB"] + of("memory_end", MIB)
    yield ["stored / logical, after the first fill"] + of("stored_per_logical", 1)


def markdown(out, machine, failed):
    """The report for people."""
    targets = [t for t in SHOWN if any(t in kinds for kinds in out.values())]
    names = [SHOWN[t] for t in targets]
    lines = [f"Linux {machine['kernel']} as User Mode Linux, {machine['processors']} processors, medians."]
    others = float(machine.get("others_percent", 0))
    if others > OTHERS_MAX:
        lines += ["", f"**Provisional**: other programs took {others:.0f} % of the machine meanwhile."]
    for data in KINDS:
        if data not in out:
            continue
        lines += ["", f"Speed, {KINDS[data]} (spread: largest distance of two rounds in the row)", ""]
        lines += table(["job", *names, "lz4 / bare", "lz4 / dm-vdo", "spread"], speed_rows(out, data, targets))
        lines += ["", f"Processor time in all, microseconds per 4 KiB, {KINDS[data]}", ""]
        lines += table(["job", *names], work_rows(out, data, targets))
        lines += ["", f"Memory and space, {KINDS[data]}", ""]
        lines += table(["", *names], cost_rows(out, data, targets))
    lines += [""] + [f"FAILED: {SHOWN.get(t, t)}, {KINDS[data]}: {what}" for t, data, what in failed]
    return "\n".join(lines).rstrip() + "\n"


def bars(out):
    """(name, value, target): how many times as good as dm-vdo. Costs are turned over, so more is always better."""
    for data in KINDS:
        if data not in out:
            continue
        jobs = [job for job in JOBS if any(job in cell for cell in out[data].values())]
        for job in jobs:
            ours, peer = (median(out, data, t, job, "bytes_per_second") for t in (OURS, PEER))
            yield f"{job}-{data}", ratio(ours, peer), 1.0
        costs = [(f"cpu-{job}", (job, "work_us_per_block")) for job in jobs]
        costs += [("memory", ("memory_start",)), ("space", ("stored_per_logical",))]
        for name, path in costs:
            ours, peer = (median(out, data, t, *path) for t in (OURS, PEER))
            yield f"{name}-{data}", ratio(peer, ours), 1.0


def main():
    """See above."""
    raw, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    machine = dict(line.split(" ", 1) for line in (raw / "machine").read_text().splitlines())
    facts, failed = read_facts(raw)
    out = summary(read_jobs(raw, machine), facts, float(machine["region_bytes"]))
    add_ratios(out)
    text = markdown(out, machine, failed)
    lines = [(name, value, least, "ok" if value is not None and round(value, 2) >= least else "short")
             for name, value, least in bars(out)] if all(any(t in kinds for kinds in out.values()) for t in (OURS, PEER)) else []
    (target / "report.md").write_text(text)
    (target / "report.json").write_text(json.dumps({
        "machine": machine, "failed": failed, "results": out,
        "bars": [dict(zip(("name", "value", "target", "result"), line)) for line in lines]}, indent=1) + "\n")
    print(text)
    for name, value, least, result in lines:
        print(f"bar: {name} {show(value, 2) if value is not None else '0.00'} {least:.2f} {result}")
    sys.exit(1 if failed else 0)


main()
