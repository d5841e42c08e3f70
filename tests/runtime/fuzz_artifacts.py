"""Damages a small artifact at random, many times, and opens it; run as a program by test_artifact.py.

Prints JSON: how many damaged files were refused with an ArtifactError, and by how many bytes the process's memory
grew at its peak. Anything but an ArtifactError ends the process with a traceback.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from pathlib import Path

from tpuc.runtime.artifact import Artifact
from tpuc.runtime.errors import ArtifactError


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 16))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def splice(data: bytearray, rng: random.Random) -> None:
    length = rng.randrange(1, 200)
    source, target = rng.randrange(len(data)), rng.randrange(len(data))
    data[target : target + length] = data[source : source + length]


def delete(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randrange(1, 200)]


def insert(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.randbytes(rng.randrange(1, 200))


def overwrite(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start : start + 8] = rng.choice((bytes(8), b"\xff" * 8, b"99999999", b'}}]]""{{'))


def damage(original: bytes, rng: random.Random) -> bytes:
    while True:
        data = bytearray(original)
        rng.choice((flip, truncate, splice, delete, insert, overwrite))(data, rng)
        if bytes(data) != original:
            return bytes(data)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(source: Path, scratch: Path, count: int) -> None:
    original = source.read_bytes()
    Artifact.open(source).verify()
    before = peak_bytes()
    refused = 0
    for seed in range(count):
        scratch.write_bytes(damage(original, random.Random(seed)))
        try:
            Artifact.open(scratch).verify()
        except ArtifactError as error:
            refused += bool(str(error))
        else:
            sys.exit(f"the damage of seed {seed} was not found")
    print(json.dumps({"refused": refused, "growth": peak_bytes() - before}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
