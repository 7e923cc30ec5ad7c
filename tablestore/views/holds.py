"""`Holds`: keeps the versions that a view has read of its inputs from expiring before the next refresh."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from filestore.errors import Conflict, NotFound, TableStoreError
from filestore.life.consumers import Consumer, remove_consumer
from filestore.retention.holds import read_hold
from filestore.table import FileStore

__all__ = ["Holds"]

logger = logging.getLogger(__name__)


class Holds:
    """The consumers of one view: one of each table that it reads, with the same id.

    Args:
        view_id: The id of the view's table.
        inputs: The tables, in the order in which versions of them are given.
    """

    def __init__(self, view_id: str, inputs: Sequence[FileStore]) -> None:
        self._id = f"view.{view_id}"
        self._inputs = tuple(inputs)
        self._own: dict[str, Consumer] = {}

    def hold_all(self, versions: Sequence[int]) -> bool:
        """Holds a version of each input, or of the first ones of them; returns False if one of them has expired."""
        return all(self.hold_unless_expired(*one) for one in zip(self._inputs, versions, strict=False))

    def hold_unless_expired(self, store: FileStore, version: int) -> bool:
        """Holds a version; returns False if it has expired."""
        try:
            self.hold(store, version)
        except NotFound as error:
            if error.code != "snapshot-expired":
                raise
            return False
        return True

    def are_later(self, versions: Sequence[int]) -> bool:
        """Returns whether a later version than one of these is held, so by another process that refreshed the view."""
        return any((self.held(store) or 0) > at for store, at in zip(self._inputs, versions, strict=False))

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

    def keep(self, versions: Sequence[int]) -> None:
        """Holds a version of each input; a failure is logged, since it only makes the next refresh a whole one."""
        for store, version in zip(self._inputs, versions, strict=True):
            try:
                self.hold(store, version)
            except TableStoreError as error:
                self._own.pop(store.location, None)
                logger.warning("version %d of %s is not held for %s: %s", version, store.location, self._id, error)

    def held(self, store: FileStore) -> int | None:
        """Returns the version that is held in the table, perhaps by another process; None without any."""
        found = read_hold(store.storage, store.location, self._id)
        return None if found is None else found.version

    def release(self) -> None:
        """Ends the hold in each input, whoever has it."""
        for store in self._inputs:
            self._own.pop(store.location, None)
            if self.held(store) is not None:
                remove_consumer(store, self._id)
