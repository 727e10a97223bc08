#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""profile.py RAW HZ <SAMPLES: which functions the time of each job of a benchmark went to. SAMPLES is the output of
`perf script -F comm,tid,time,ip` for User Mode Linux with the host's clock; RAW is what guest.sh left."""

import bisect
import json
import pathlib
import re
import sys
from collections import Counter, defaultdict

# Longest table.
ROWS = 30
# A sample counts for the first part whose pattern the function's name or module matches.
PARTS = [
    ("compress", r"LZ4_compress|ZSTD_.*[cC]ompress|ZSTD_(ldm|opt|fast|dfast|greedy|lazy)|HUF_(build|compress|opt|write)|FSE_(build|compress|norm|write)|HIST_|\[(lz4|zstd)_compress\]"),
    ("decompress", r"LZ4_decompress|HUF_(read|decompress)|FSE_(read|decompress)|\[(lz4|zstd)_decompress\]|\[zstd_common\]"),
    ("checksum", r"xxh|crc32"),
    ("zbd: engine", r"zbd.*engine"),
    ("zbd: driver", r"zbd.*driver"),
    ("zbd: linux", r"\[zbd\]"),
    ("dm-vdo", r"\[dm_vdo\]"),
    ("lower device", r"\[null_blk\]|null_|radix_tree|xas_|__alloc_pages|get_page_from|clear_page"),
    ("copy and clear", r"memcpy|memset|memmove|copy_(to|from)_|raw_copy|buffer_copy"),
    ("locks", r"spin_|mutex|rwsem|lock|osq_"),
    ("scheduler and work queues", r"sched|wake|work(er|queue)|queue_work|pick_|enqueue|dequeue|switch|try_to|timer|rcu|update_|kthread"),
    ("block layer", r"blk|bio|bdev|submit|request|dm_|tag|sbitmap|elv|dio|iomap"),
    ("io_uring and system calls", r"io_|sys|fget|fput|import_|iov_"),
    ("User Mode Linux itself", r"um_|signal|sig|unblock|block_|os_|stub|timer_|irq|do_IRQ|ubd|epoll|userspace|seccomp|futex|handle_|arch_"),
]


def demangle(name):
    """The last names of a path in a v0 mangled Rust symbol: enough to find the function."""
    if not name.startswith("_R"):
        return name
    words, at = [], 2
    while at < len(name):
        match = re.match(r"(?:s[0-9a-zA-Z]*_)?([0-9]+)_?", name[at:])
        if match and int(match.group(1)) and at + match.end() + int(match.group(1)) <= len(name):
            begin = at + match.end()
            word = name[begin:begin + int(match.group(1))]
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word):
                words.append(word)
                at = begin + len(word)
                continue
        at += 1
    return "::".join(words[:7]) if words else name


class Symbols:
    """Functions of kernel and modules; addresses in User Mode Linux are those of the host's process."""

    def __init__(self, path):
        pairs = []
        for line in path.read_text().splitlines():
            address, kind, rest = line.split(" ", 2)
            if kind in "tTwW":
                pairs.append((int(address, 16), rest.replace("\t", " ")))
        pairs.sort()
        self.addresses = [a for a, _ in pairs]
        self.names = [n for _, n in pairs]

    def find(self, address):
        """Its name, or None for what is not the kernel's."""
        at = bisect.bisect_right(self.addresses, address) - 1
        if at < 0 or address - self.addresses[at] > 1 << 16:
            return None
        return self.names[at]


def windows(raw):
    """(start, end, name, blocks of 4 KiB) of each job, in time order."""
    begun, out = {}, []
    for line in (raw / "facts").read_text().splitlines():
        round_, data, target, name, value = line.split(" ", 4)
        job, _, what = name.rpartition(".")
        if what == "start":
            begun[round_, data, target, job] = float(value)
        elif what == "end":
            text = (raw / f"{round_}.{data}.{target}.{job}.json").read_text()
            result = json.loads(text[text.index("{"):])["jobs"][0]
            blocks = result["read" if "read" in job else "write"]["io_bytes"] / 4096
            out.append((begun[round_, data, target, job], float(value), f"{target}, {data}, {job}", max(blocks, 1)))
    return sorted(out)


def part_of(name):
    """The part that a function belongs to."""
    for part, pattern in PARTS:
        if re.search(pattern, name):
            return part
    return "other kernel code"


def main():
    """See above."""
    raw, hertz = pathlib.Path(sys.argv[1]), float(sys.argv[2])
    symbols, jobs = Symbols(raw / "kallsyms"), windows(raw)
    starts = [w[0] for w in jobs]
    parts, functions = defaultdict(Counter), defaultdict(Counter)
    for line in sys.stdin:
        match = re.match(r"\s*(.*?)\s+(\d+)\s+(\d+\.\d+):\s+([0-9a-f]+)", line)
        if not match:
            continue
        comm, when, address = match.group(1), float(match.group(3)), int(match.group(4), 16)
        at = bisect.bisect_right(starts, when) - 1
        if at < 0 or when > jobs[at][1]:
            continue
        job = jobs[at][2]
        name = symbols.find(address)
        if address >> 63 or comm.startswith("uml-userspace") or name is None:
            # Programs run in processes of their own; what is in neither is the C library below the kernel.
            part = "programs (fio)" if comm.startswith("uml-userspace") else "C library below User Mode Linux"
            part = "the host's kernel" if address >> 63 else part
            parts[job][part] += 1
            functions[job][part] += 1
            continue
        name = demangle(name.split(" ")[0]) + (" " + name.split(" ")[1] if " " in name else "")
        parts[job][part_of(name)] += 1
        functions[job][name] += 1
    for _start, _end, job, blocks in jobs:
        total = sum(parts[job].values())
        print(f"\n{job}: {total} samples, {1e6 * total / hertz / blocks:.1f} us of work per 4 KiB")
        for words, counts in (("part", parts[job]), ("function", functions[job])):
            print(f"\n| {words} | us per 4 KiB | share |\n|---|---:|---:|")
            for name, count in counts.most_common(ROWS):
                print(f"| {name} | {1e6 * count / hertz / blocks:.2f} | {100 * count / total:.1f} % |")


main()
