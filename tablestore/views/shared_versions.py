"""`SharedVersions`: of each table the one version that the views of a chain read, so that their rows belong together.

A view and a view over it often read one table. If each read the newest version, the later one would join rows that the
earlier one has not seen yet. So the first refresh of a chain that reads a table decides which version of it the others
read.
"""

from __future__ import annotations

from filestore.delta.state import TableState
from filestore.table import FileStore

__all__ = ["SharedVersions"]


class SharedVersions:
    """The versions that the refreshes of one round read. Not for several threads."""

    def __init__(self) -> None:
        self._states: dict[str, TableState] = {}

    def of(self, store: FileStore, output: TableState) -> TableState:
        """Returns the version of a table that a refresh reads: the newest one, if nobody has read the table before.

        A view never goes back: if another process has refreshed it to a later version, the newest one is read, from
        here on by the others, too. So it is if the table was dropped, and created again in its folder.

        Args:
            store: The table.
            output: The view, with the versions that it has read.
        """
        state = self._states.get(store.location)
        is_other = state is None or state.table_id != store.known.table_id
        if state is None or is_other or state.version < output.positions.get(state.table_id, -1):
            state = self._states[store.location] = store.state()
        return state

    def put(self, store: FileStore, state: TableState) -> None:
        """Takes the version of a view that was refreshed, for those that read it."""
        self._states[store.location] = state

    def forget(self, store: FileStore) -> None:
        """Lets the newest version be read again: the one that was known has expired, perhaps."""
        self._states.pop(store.location, None)
