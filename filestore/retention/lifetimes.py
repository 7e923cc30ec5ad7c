"""Computes from the log's entries in which versions each stored file was needed (FORMAT.md section 14). Pure."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from filestore import layout
from filestore.decoding import well_formed
from filestore.delta.actions import Action, file_key
from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.model.files import DeletionVector
from filestore.retention.paths import Paths, live_vectors

__all__ = ["Lifetimes", "Retained", "runs_of"]

Span = tuple[int, int]
"""The first and the last of some consecutive versions."""


@dataclass(frozen=True, slots=True)
class Retained:
    """The versions that can still be read: all from `first` on, and single ones below it, ascending."""

    first: int
    tagged: tuple[int, ...] = ()

    @property
    def oldest(self) -> int:
        """The oldest of them."""
        return min(self.first, *self.tagged) if self.tagged else self.first

    def needs(self, span: Span) -> bool:
        """Returns whether any of the versions of a span is one of them."""
        start, end = span
        if end >= self.first:
            return True
        at = bisect.bisect_left(self.tagged, start)
        return at < len(self.tagged) and self.tagged[at] <= end


@dataclass(slots=True)
class Lifetimes:
    """The lifetimes that files had up to a version. Entries are added oldest first.

    A file that is live is needed, whatever is retained: it is counted among `named`, and no more. So this takes memory
    for what the entries say, and hardly for the table.

    Attributes:
        oldest: The oldest version that is left.
        version: The version up to which entries were added.
        named: The paths that any of these versions names.
    """

    oldest: int
    version: int
    named: Paths
    _ended: dict[str, list[Span]] = field(default_factory=dict)
    _added: dict[str, int] = field(default_factory=dict)  # live data files that an entry has added
    _runs: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def begin(cls, state: TableState, actions: Iterable[Action]) -> Lifetimes:
        """Begins with the oldest version that is left; the lifetimes of its live files begin there.

        Args:
            state: That version.
            actions: The actions of its own entry, since the state does not contain its change data.
        """
        lives = cls(state.version, state.version, Paths(state.files))
        lives._note_changes(state.version, actions)
        for domain, configuration in state.domains.items():
            lives._begin_runs(domain, configuration, state.version)
        return lives

    def follow(self, version: int, actions: Iterable[Action]) -> None:
        """Adds the next version's actions."""
        listed = list(actions)
        for action in listed:
            if (remove := action.get("remove")) is not None:
                self._end_file(remove, version)
        for action in listed:
            if (add := action.get("add")) is not None:
                self._begin_file(add, version)
            elif (domain := action.get("domainMetadata")) is not None:
                self._change_runs(domain, version)
        self._note_changes(version, listed)
        self.version = version

    def _note_changes(self, version: int, actions: Iterable[Action]) -> None:
        """Adds change files. Each of them is needed only by the version whose entry names it."""
        for change in (action["cdc"] for action in actions if "cdc" in action):
            self._end(file_key(change), version, version)

    def _begin_file(self, add: Mapping[str, Any], version: int) -> None:
        path, vector = file_key(add), DeletionVector.from_action(add.get("deletionVector"))
        if path not in self._added and (path in self._ended or path not in self.named):
            self._added[path] = version  # else it lives on, as a file does that is added again without a removal
        self.named.update([path] if vector is None else [path, vector_file(vector)])

    def _end_file(self, remove: Mapping[str, Any], version: int) -> None:
        path, vector = file_key(remove), DeletionVector.from_action(remove.get("deletionVector"))
        since = self._added.pop(path, self.oldest)
        self._end(path, since, version - 1)
        if vector is not None:
            self._end(vector_file(vector), since, version - 1)

    def _begin_runs(self, domain: str, configuration: str, version: int) -> None:
        self._runs[domain] = version, runs_of(configuration)
        self.named.update(self._runs[domain][1])

    def _change_runs(self, domain: Mapping[str, Any], version: int) -> None:
        since, before = self._runs.pop(domain["domain"], (version, frozenset()))
        for path in before:
            self._end(path, since, version - 1)
        if not domain["removed"]:
            self._begin_runs(domain["domain"], domain["configuration"], version)

    def _end(self, path: str, start: int, end: int) -> None:
        self._ended.setdefault(path, []).append((start, end))
        self.named.update([path])

    def unneeded(self, retained: Retained, newest: TableState) -> tuple[str, ...]:
        """Returns the files that none of those versions needs, sorted.

        Args:
            retained: The versions that can be read.
            newest: The version up to which entries were added, whose files are needed in any case.
        """
        return tuple(sorted(path for path, needed in self._lost(retained, newest) if not needed))

    def needed(self, retained: Retained, newest: TableState) -> frozenset[str]:
        """Returns the files that any of those versions needs, and not the newest one; see `unneeded`."""
        return frozenset(path for path, needed in self._lost(retained, newest) if needed)

    def _lost(self, retained: Retained, newest: TableState) -> Iterator[tuple[str, bool]]:
        """Yields the files that the newest version does not name, and whether another one needs each."""
        live = live_vectors(newest.files).union(*(paths for _, paths in self._runs.values()))
        for path, spans in self._ended.items():
            if path not in self._added and path not in live:
                yield path, any(map(retained.needs, spans))


def runs_of(configuration: str) -> frozenset[str]:
    """Returns the runs that a metadata domain names: every string in it that is a run's path, at any depth."""
    with well_formed(f"the configuration {configuration[:80]!r} in the Delta log", code="bad-log-entry"):
        found, waiting = set[str](), [json.loads(configuration)]
    while waiting:
        match waiting.pop():
            case str() as text if layout.is_run(text):
                found.add(text)
            case dict() as members:
                waiting += [*members.keys(), *members.values()]
            case list() as items:
                waiting += items
            case _:
                pass
    return frozenset(found)
