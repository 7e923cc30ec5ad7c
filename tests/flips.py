"""Flips bits of files: what a disk, a cable or a memory does to them without a word."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["flipped", "with_flips"]


def flipped(data: bytes, dice: random.Random, bits: int) -> bytes:
    """Returns the bytes with some random bits flipped, each once."""
    changed = bytearray(data)
    for bit in dice.sample(range(8 * len(data)), bits):
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@contextmanager
def with_flips(path: Path, dice: random.Random, bits: int) -> Iterator[None]:
    """Flips bits of a file, and restores it in the end."""
    good = path.read_bytes()
    path.write_bytes(flipped(good, dice, bits))
    try:
        yield
    finally:
        path.write_bytes(good)
