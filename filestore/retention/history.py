"""Reads the lifetimes of a table's files from the entries of its Delta log (FORMAT.md section 14)."""

from __future__ import annotations

from filestore.delta.log import DeltaLog
from filestore.retention.lifetimes import Lifetimes

__all__ = ["followed", "history_of"]


def history_of(log: DeltaLog, until: int) -> Lifetimes:
    """Returns the lifetimes of all files, from the oldest version that can be read to a given one."""
    return log.read_consistently(lambda _: followed(log, _begun(log), until))


def _begun(log: DeltaLog) -> Lifetimes:
    oldest = log.oldest()
    [entry] = log.required([oldest.version])
    return Lifetimes.begin(oldest, entry.actions)


def followed(log: DeltaLog, lives: Lifetimes, until: int) -> Lifetimes:
    """Adds the entries up to a version. `Corrupt` if one is missing: files that it restores would be taken for dead."""
    for entry in log.required(range(lives.version + 1, until + 1)):
        lives.follow(entry.version, entry.actions)
    return lives
