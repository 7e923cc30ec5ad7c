"""Computes from the log's entries in which versions each stored file was needed (FORMAT.md section 14). Pure."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from filestore.delta.actions import Action, file_key
from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.model.files import DeletionVector
from filestore.retention.paths import Paths, runs_of

__all__ = ["Lifetimes", "Retained"]

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


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The lifetimes of the files that some versions have lost.

    A file that no entry removes is live, and needed whatever is retained: nothing is noted of it. So this takes memory
    for what can be removed, not for the table.

    Attributes:
        version: The newest of the versions.
        spans: By the path of a data file, vector, run or change file the versions of each life that has ended. A file
            has several lives if it was removed and added again; it may be live now.
    """

    version: int
    spans: Mapping[str, Sequence[Span]]

    @classmethod
    def of(
        cls, oldest: TableState, first: Iterable[Action], later: Iterable[tuple[int, Iterable[Action]]]
    ) -> Lifetimes:
        """Computes lifetimes from entries.

        Args:
            oldest: The oldest version that is left; the lifetimes of its live files begin there.
            first: The actions of its own entry, since the state does not contain its change data.
            later: The versions after it with their actions, newest first.
        """
        ends, version = _Ends(), oldest.version
        for number, actions in later:
            version = max(version, number)
            ends.read(number, list(actions))
        ends.begin(oldest, first)
        return cls(version, ends.spans)

    def unneeded(self, retained: Retained, newest: TableState) -> tuple[str, ...]:
        """Returns the files that none of those versions needs, sorted.

        Args:
            retained: The versions that can be read.
            newest: The newest version, whose files are needed in any case.
        """
        return tuple(sorted(path for path, spans in self._lost(newest) if not any(map(retained.needs, spans))))

    def needed(self, retained: Retained, newest: TableState) -> frozenset[str]:
        """Returns the files that any of those versions needs, and not the newest one; see `unneeded`."""
        older = ((path, [span for span in spans if span[1] < newest.version]) for path, spans in self._lost(newest))
        return frozenset(path for path, spans in older if any(map(retained.needs, spans)))

    def _lost(self, newest: TableState) -> Iterator[tuple[str, Sequence[Span]]]:
        """Yields the files that the newest version has not, with their lifetimes; its change data among them."""
        live = Paths.of_version(newest)
        yield from ((path, spans) for path, spans in self.spans.items() if path not in live)


class _Ends:
    """The lives that end in entries, which are read from the newest to the oldest."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Span]] = {}
        self._files: dict[str, tuple[int, str | None]] = {}  # by path the last version of a life, and its vector
        self._changed: dict[str, int] = {}  # by domain the version of the next change

    def read(self, version: int, actions: Sequence[Action]) -> None:
        """Reads the entry before those that were read: what it adds begins, and what it removes has ended."""
        for action in actions:
            if (add := action.get("add")) is not None:
                self._begin_file(file_key(add), version)
        for action in actions:
            if (remove := action.get("remove")) is not None:
                vector = DeletionVector.from_action(remove.get("deletionVector"))
                self._files[file_key(remove)] = version - 1, None if vector is None else vector_file(vector)
            elif (domain := action.get("domainMetadata")) is not None:
                if not domain["removed"]:
                    self._begin_runs(domain["domain"], domain["configuration"], version)
                self._changed[domain["domain"]] = version
        self._note_changes(version, actions)

    def begin(self, oldest: TableState, first: Iterable[Action]) -> None:
        """Ends with the oldest version: what has not begun until here began there or before."""
        live, begun = Paths.of_version(oldest), dict(self._files)
        for path in begun:
            self._begin_file(path, oldest.version)
        for path, spans in self.spans.items():
            if path not in begun and path in live:  # an entry has added again what was there
                spans.append((oldest.version, spans[-1][1]))
        for domain, configuration in oldest.domains.items():
            self._begin_runs(domain, configuration, oldest.version)
        self._note_changes(oldest.version, first)

    def _note_changes(self, version: int, actions: Iterable[Action]) -> None:
        """Notes change files. Each of them is needed only by the version whose entry names it."""
        for change in (action["cdc"] for action in actions if "cdc" in action):
            self._note(file_key(change), version, version)

    def _begin_file(self, path: str, version: int) -> None:
        if (life := self._files.pop(path, None)) is not None:
            end, vector = life
            self._note(path, version, end)
            if vector is not None:
                self._note(vector, version, end)
        elif (spans := self.spans.get(path)) is not None:
            spans.append((version, spans[-1][1]))  # it was added again without a removal, as no writer of ours does

    def _begin_runs(self, domain: str, configuration: str, version: int) -> None:
        if (changed := self._changed.get(domain)) is not None:
            for run in runs_of(configuration):
                self._note(run, version, changed - 1)

    def _note(self, path: str, start: int, end: int) -> None:
        self.spans.setdefault(path, []).append((start, end))
