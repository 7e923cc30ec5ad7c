"""Reads the lifetimes of a table's files from the entries of its Delta log (FORMAT.md section 14)."""

from __future__ import annotations

from filestore.delta.log import Commit, DeltaLog
from filestore.errors import Corrupt
from filestore.retention.lifetimes import Lifetimes

__all__ = ["followed", "history_of"]


def history_of(log: DeltaLog, until: int) -> Lifetimes:
    """Returns the lifetimes of all files, from the oldest version that can be read to a given one."""
    return log.read_consistently(lambda: followed(log, _begun(log), until))


def _begun(log: DeltaLog) -> Lifetimes:
    oldest = log.oldest()
    return Lifetimes.begin(oldest, _required(log, oldest.version).actions)


def followed(log: DeltaLog, lives: Lifetimes, until: int) -> Lifetimes:
    """Adds the entries up to a version. `Corrupt` if one is missing: files that it restores would be taken for dead."""
    for version in range(lives.version + 1, until + 1):
        lives.follow(version, _required(log, version).actions)
    return lives


def _required(log: DeltaLog, version: int) -> Commit:
    entry = log.commit(version)
    if entry is None:
        raise Corrupt(f"{log.location} lacks the log entry of version {version}", code="version-gap")
    return entry
