"""`Holds`: keeps the versions that a view has read of its inputs from expiring before the next refresh."""

from __future__ import annotations

import logging
from contextlib import suppress

from filestore.errors import Conflict, TableStoreError
from filestore.life.consumers import Consumer, remove_consumer
from filestore.retention.holds import read_hold
from filestore.table import FileStore

__all__ = ["Holds"]

logger = logging.getLogger(__name__)


class Holds:
    """The consumers of one view: one of each table that it reads, with the same id.

    Args:
        view_id: The id of the view's table.
    """

    def __init__(self, view_id: str) -> None:
        self._id = f"view.{view_id}"
        self._own: dict[str, Consumer] = {}

    def hold(self, store: FileStore, version: int) -> None:
        """Holds a version and all later ones.

        Raises:
            NotFound: ``snapshot-expired``: it is too late. A hold of another process stays.
        """
        known = self._own.get(store.location)
        if known is not None and known.version == version:
            with suppress(Conflict):  # another process has it meanwhile, perhaps at another version
                known.keep()
                return
        consumer = Consumer(store, self._id)
        consumer.register(version, rows=True)
        self._own[store.location] = consumer

    def hold_if_possible(self, store: FileStore, version: int) -> None:
        """Holds a version; a failure is logged, since it only makes the next refresh a whole one."""
        try:
            self.hold(store, version)
        except TableStoreError as error:
            self._own.pop(store.location, None)
            logger.warning("version %d of %s is not held for %s: %s", version, store.location, self._id, error)

    def held(self, store: FileStore) -> int | None:
        """Returns the version that is held in the table, perhaps by another process; None without any."""
        found = read_hold(store.storage, store.location, self._id)
        return None if found is None else found.version

    def release(self, store: FileStore) -> None:
        """Ends the hold in a table, whoever has it."""
        self._own.pop(store.location, None)
        if self.held(store) is not None:
            remove_consumer(store, self._id)
