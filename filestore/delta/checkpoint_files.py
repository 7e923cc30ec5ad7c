"""Finds the entries and the complete checkpoints among the names in ``_delta_log`` (FORMAT.md section 2). Pure.

A checkpoint is one file, or a set of parts, of which none may be missing (Delta protocol, "Checkpoints"). The sidecars
of a checkpoint are in a folder of their own, and only the checkpoint names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from filestore import layout

__all__ = ["CheckpointFiles", "LogListing"]


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint.

    Attributes:
        version: Its version.
        names: The names of its files in ``_delta_log``: one, or all parts in their order.
        may_have_sidecars: Whether it may name sidecars: parts of a set do not.
    """

    version: int
    names: tuple[str, ...]
    may_have_sidecars: bool = True


@dataclass(frozen=True, slots=True)
class LogListing:
    """The names of entries and checkpoints that a listing shows.

    Attributes:
        entries: The names of entries by version, ascending.
        complete: The complete checkpoints by version, ascending; of one version in the order in which to read them.
        stored: The names of all files of checkpoints by version, also of incomplete ones.
    """

    entries: Mapping[int, str]
    complete: Mapping[int, tuple[CheckpointFiles, ...]]
    stored: Mapping[int, tuple[str, ...]]

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Returns the listing of some names; those of other files are left out."""
        parsed = [found for name in names if (found := layout.parse_log_entry(name)) is not None]
        ordered = sorted(parsed, key=lambda found: (found.version, found.name))
        by_version: dict[int, list[layout.LogEntryName]] = {}
        for found in ordered:
            if found.checkpoint is not None:
                by_version.setdefault(found.version, []).append(found)
        complete = {version: _complete(version, some) for version, some in by_version.items()}
        return cls(
            entries={found.version: found.name for found in ordered if found.checkpoint is None},
            complete={version: some for version, some in complete.items() if some},
            stored={version: tuple(found.name for found in some) for version, some in by_version.items()},
        )

    @property
    def versions(self) -> list[int]:
        """The versions that have an entry, ascending."""
        return list(self.entries)

    @property
    def checkpoints(self) -> list[int]:
        """The versions that have a complete checkpoint, ascending."""
        return list(self.complete)

    def until(self, version: int) -> list[CheckpointFiles]:
        """Returns the checkpoints of a version and earlier ones in the order in which to try them: newest first."""
        return [some for at in reversed(self.checkpoints) if at <= version for some in self.complete[at]]

    def without_checkpoints(self, version: int) -> LogListing:
        """Returns the same listing without the checkpoints of a version."""
        return replace(self, complete={at: some for at, some in self.complete.items() if at != version})

    def before(self, version: int) -> list[str]:
        """Returns the names of all files of earlier versions, oldest first, and each version's entry last."""
        versions = sorted(at for at in self.entries.keys() | self.stored.keys() if at < version)
        return [
            name
            for at in versions
            for name in (*self.stored.get(at, ()), *([self.entries[at]] if at in self.entries else []))
        ]


def _complete(version: int, found: Iterable[layout.LogEntryName]) -> tuple[CheckpointFiles, ...]:
    """Returns the complete checkpoints of a version: that of the classic name, those with a UUID, and sets of parts."""
    whole, sets = list[tuple[str, str]](), dict[int, dict[int, str]]()
    for file in found:
        if (checkpoint := file.checkpoint) is not None and checkpoint.parts is not None:
            sets.setdefault(checkpoint.parts, {})[checkpoint.part] = file.name
        elif checkpoint is not None:
            whole.append((checkpoint.uuid or "", file.name))
    ones = [CheckpointFiles(version, (name,)) for _, name in sorted(whole)]
    in_parts = [
        CheckpointFiles(version, tuple(named[part] for part in sorted(named)), may_have_sidecars=False)
        for parts, named in sorted(sets.items())
        if len(named) == parts
    ]
    return (*ones, *in_parts)
