# SPDX-License-Identifier: GPL-2.0
"""A workload that can be checked after the machine died: power.py VOLUME ACKS [start|check] [write].

Each round writes stamped blocks in an order that the round's number decides, flushes now and then,
and notes on a second disk how many writes the last completed flush covered.
"""
import mmap
import os
import random
import struct
import sys

BLOCK = 4096
BLOCKS = 3000
WRITES = 10_000_000


def plan(number):
    """The writes of a round: (block, bytes of noise, flush after it)."""
    rng = random.Random(number)
    while True:
        yield rng.randrange(BLOCKS), rng.choice((0, 200, 1500, 4000)), rng.randrange(12) == 0


class Disk:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.page = mmap.mmap(-1, BLOCK)

    def read(self, block):
        assert os.preadv(self.fd, [self.page], block * BLOCK) == BLOCK
        return bytes(self.page)

    def write(self, block, data):
        self.page[:] = data.ljust(BLOCK, b"\0")
        assert os.pwrite(self.fd, self.page, block * BLOCK) == BLOCK

    def flush(self):
        os.fsync(self.fd)


def stamp(block, number, index, noise):
    rng = random.Random((block, number, index).__hash__())
    return struct.pack("<QQQQ", block, number, index, noise) + rng.randbytes(noise)


def version(volume, block):
    """(round, index) of the version that a block holds; (0, 0) for zeros."""
    data = volume.read(block)
    found, number, index, noise = struct.unpack_from("<QQQQ", data)
    if not any(data):
        return 0, 0
    assert found == block, f"block {block} holds block {found}"
    assert data == stamp(block, number, index, noise).ljust(BLOCK, b"\0"), f"block {block} is torn"
    return number, index


def check(volume, acks):
    number, acked = struct.unpack_from("<QQ", acks.read(0))
    before = b"".join(acks.read(1 + at) for at in range(BLOCKS * 16 // BLOCK + 1))
    written = {}
    for index, (block, _, _) in zip(range(1, acked + 100_000), plan(number)):
        written.setdefault(block, []).append(index)
    later = 0
    for block in range(BLOCKS):
        found = version(volume, block)
        durable = [index for index in written.get(block, ()) if index <= acked]
        if found[0] == number:
            assert found[1] in written.get(block, ()), f"block {block}: write {found} was never made"
            assert not durable or found[1] >= durable[-1], f"block {block}: {found}, flushed {durable[-1]}"
            later += found[1] > acked
        else:
            old = struct.unpack_from("<QQ", before, block * 16)
            assert not durable, f"block {block}: write {durable[-1]} of round {number} is lost, {found}"
            assert found == old, f"block {block}: {found} instead of {old}"
    print(f"power: round {number}: {acked} flushed writes are there, {later} later ones survived", flush=True)
    assert acked > 0, "nothing was flushed: the workload did not run"


def write(volume, acks):
    number = struct.unpack_from("<QQ", acks.read(0))[0] + 1
    before = b"".join(struct.pack("<QQ", *version(volume, block)) for block in range(BLOCKS))
    for at in range(len(before) // BLOCK + 1):
        acks.write(1 + at, before[at * BLOCK : (at + 1) * BLOCK])
    acks.write(0, struct.pack("<QQ", number, 0))
    acks.flush()
    for index, (block, noise, flush) in zip(range(1, WRITES), plan(number)):
        volume.write(block, stamp(block, number, index, noise))
        if flush:
            volume.flush()
            acks.write(0, struct.pack("<QQ", number, index))


def main():
    volume, acks = Disk(sys.argv[1]), Disk(sys.argv[2])
    for verb in sys.argv[3:]:
        if verb == "start":
            acks.write(0, struct.pack("<QQ", 0, 0))
        elif verb == "check":
            check(volume, acks)
        elif verb == "write":
            write(volume, acks)
        else:
            sys.exit(f"power.py: {verb}?")


main()
