"""Reads from a table's Delta log which files its versions name, and which they have lost (FORMAT.md section 14)."""

from __future__ import annotations

from collections.abc import Sequence

from filestore.delta.log import DeltaLog
from filestore.retention.lifetimes import Lifetimes
from filestore.retention.paths import Paths, named_by

__all__ = ["lifetimes_until", "note_named", "paths_until"]

_FIRST = 8
"""A history may have many large entries; few are in memory until their size is known."""


def lifetimes_until(log: DeltaLog, until: int) -> Lifetimes:
    """Returns the lifetimes of files that versions have lost, from the oldest that can be read to a given one."""

    def read(_: object) -> Lifetimes:
        oldest = log.oldest()
        [entry] = log.required([oldest.version])
        later = log.required(range(until, oldest.version, -1), _FIRST)
        return Lifetimes.of(oldest, entry.actions, ((entry.version, entry.actions) for entry in later))

    return log.read_consistently(read)


def paths_until(log: DeltaLog, until: int) -> Paths:
    """Returns the files that any version names, from the oldest that can be read to a given one."""

    def read(_: object) -> Paths:
        oldest = log.oldest()
        paths = Paths.of_version(oldest)
        note_named(log, paths, range(oldest.version, until + 1))
        return paths

    return log.read_consistently(read)


def note_named(log: DeltaLog, paths: Paths, versions: Sequence[int]) -> None:
    """Adds the files that the entries of some versions name.

    Raises:
        Corrupt: ``version-gap``: one of them is missing. Files that it restores would be taken for dead.
    """
    for entry in log.required(versions, _FIRST):
        paths.update(path for action in entry.actions for path in named_by(action))
