"""Reads a table's versions one after the other, each derived from the one before; readers of changes need pairs."""

from __future__ import annotations

from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.model.definition import TableDefinition
from filestore.table import FileStore
from tablestore.following.records import definition_after

__all__ = ["Walk"]

_FARTHEST = 100
"""The largest number of entries that are read one by one instead of from a checkpoint."""


class Walk:
    """Reads versions of a table in their order. Going forward reads the entries in between; going back replays.

    Args:
        filestore: The table.
    """

    def __init__(self, filestore: FileStore) -> None:
        self.filestore = filestore
        self._state: TableState | None = None
        self._definition: tuple[int, TableDefinition] | None = None
        self._entry: Commit | None = None

    def take(self, commit: Commit) -> None:
        """Passes an entry that the caller has read already."""
        self._entry = commit

    def read_entry(self, version: int) -> Commit:
        """Returns a version's entry; raises `NotFound` (``snapshot-expired``, ``no-such-version``)."""
        if self._entry is None or self._entry.version != version:
            self._entry = self.filestore.required(version)
        return self._entry

    def definition(self, version: int) -> TableDefinition:
        """Returns the table's definition in a version, retained or not."""
        known = self._definition
        if known is None or not known[0] <= version <= known[0] + _FARTHEST:
            known = (version, self.filestore.definition(version))
        for later in range(known[0] + 1, version + 1):
            known = (later, definition_after(self.read_entry(later), known[1]))
        self._definition = known
        return known[1]

    def pair(self, version: int) -> tuple[TableState, TableState]:
        """Returns the version before, and this one.

        Raises:
            NotFound: ``snapshot-expired``: the version before is not complete any more.
        """
        before = self._at(version - 1)
        self._state = after = before.next(version, self.read_entry(version).actions)
        return before, after

    def _at(self, version: int) -> TableState:
        known = self._state
        if known is None or not known.version <= version <= known.version + _FARTHEST:
            return self.filestore.state(version)
        for later in range(known.version + 1, version + 1):
            known = known.next(later, self.read_entry(later).actions)
        return known
