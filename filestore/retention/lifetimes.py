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

__all__ = ["Lifetimes", "Retained", "runs_of"]

Span = tuple[int, int | None]
"""The first and the last of some consecutive versions; the last is None if the span has not ended."""


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
        if end is None or end >= self.first:
            return True
        at = bisect.bisect_left(self.tagged, start)
        return at < len(self.tagged) and self.tagged[at] <= end


@dataclass(slots=True)
class Lifetimes:
    """The lifetimes of data files, vectors, runs and change files up to a version. Entries are added oldest first."""

    version: int
    _ended: dict[str, list[Span]] = field(default_factory=dict)
    _data: set[str] = field(default_factory=set)
    _files: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    _runs: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def begin(cls, state: TableState, actions: Iterable[Action]) -> Lifetimes:
        """Begins with the oldest version that is left; the lifetimes of its live files begin there.

        Args:
            state: That version.
            actions: The actions of its own entry, since the state does not contain its change data.
        """
        lives = cls(state.version)
        lives._note_changes(state.version, actions)
        for file in state.files:
            lives._begin_file(file.path, state.version, file.vector)
        for domain, configuration in state.domains.items():
            lives._runs[domain] = state.version, runs_of(configuration)
        return lives

    def follow(self, version: int, actions: Iterable[Action]) -> None:
        """Adds the next version's actions."""
        listed = list(actions)
        for action in listed:
            if (remove := action.get("remove")) is not None:
                self._end_file(file_key(remove), version)
        for action in listed:
            if (add := action.get("add")) is not None:
                self._end_file(file_key(add), version)
                self._begin_file(file_key(add), version, DeletionVector.from_action(add.get("deletionVector")))
            elif (domain := action.get("domainMetadata")) is not None:
                self._change_runs(domain, version)
        self._note_changes(version, listed)
        self.version = version

    def _note_changes(self, version: int, actions: Iterable[Action]) -> None:
        """Adds change files. Each of them is needed only by the version whose entry names it."""
        for change in (action["cdc"] for action in actions if "cdc" in action):
            self._end(file_key(change), version, version)

    def _begin_file(self, path: str, version: int, vector: DeletionVector | None) -> None:
        self._data.add(path)
        self._files[path] = version, vector_file(vector) if vector else None

    def _end_file(self, path: str, version: int) -> None:
        if (life := self._files.pop(path, None)) is not None:
            since, vector = life
            self._end(path, since, version - 1)
            if vector is not None:
                self._end(vector, since, version - 1)

    def _change_runs(self, domain: Mapping[str, Any], version: int) -> None:
        since, before = self._runs.pop(domain["domain"], (version, frozenset()))
        for path in before:
            self._end(path, since, version - 1)
        if not domain["removed"]:
            self._runs[domain["domain"]] = version, runs_of(domain["configuration"])

    def _end(self, path: str, start: int, end: int) -> None:
        self._ended.setdefault(path, []).append((start, end))

    def data_files_at(self, version: int) -> frozenset[str]:
        """Returns the data files of a version."""
        return frozenset(
            path
            for path, (start, end) in self.spans()
            if path in self._data and start <= version and (end is None or version <= end)
        )

    def spans(self) -> Iterator[tuple[str, Span]]:
        """Yields each span of each file; a file has several if it was removed and added again."""
        for path, spans in self._ended.items():
            yield from ((path, span) for span in spans)
        for path, (since, vector) in self._files.items():
            yield path, (since, None)
            if vector is not None:
                yield vector, (since, None)
        for since, paths in self._runs.values():
            yield from ((path, (since, None)) for path in paths)

    def unneeded(self, retained: Retained) -> tuple[str, ...]:
        """Returns the files that none of those versions needs, sorted."""
        needed, named = set[str](), set[str]()
        for path, span in self.spans():
            named.add(path)
            if retained.needs(span):
                needed.add(path)
        return tuple(sorted(named - needed))

    def needed(self, retained: Retained) -> frozenset[str]:
        """Returns the files that any of those versions needs."""
        return frozenset(path for path, span in self.spans() if retained.needs(span))


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
