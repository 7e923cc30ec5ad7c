"""Consumers: running readers that keep the versions they still need from expiring (FORMAT.md section 14).

A reader registers first and then checks whether its version still exists. An expiry first records in the Delta log what
has expired, then looks for consumers, and only then removes files. So whichever of them is first, a reader either keeps
what it needs or gets an error at once, because it is too late.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Self

from filestore import layout
from filestore.arguments import checks_arguments
from filestore.errors import Conflict, InvalidRequest, NotFound, TableStoreError
from filestore.retention.holds import ConsumerInfo, holds, is_lapsed, read_hold, write_hold
from filestore.retention.rules import expired, is_retained
from filestore.table import FileStore

__all__ = ["Consumer", "consumers_of", "remove_consumer"]

logger = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_KEEP_SHARE = 4
"""A waiting reader writes its file again when this share (a quarter) of ``consumer.expiration-time`` has passed."""


def consumers_of(store: FileStore) -> list[ConsumerInfo]:
    """Lists the consumers whose files were written within ``consumer.expiration-time``, by id."""
    return holds(store.storage, store.location, store.state(), store.ambient.now_ms())


def remove_consumer(store: FileStore, consumer_id: str) -> None:
    """Removes a consumer whose reader will not continue. `NotFound` (``no-such-consumer``)."""
    _check_id(consumer_id)
    if read_hold(store.storage, store.location, consumer_id) is None:
        have = ", ".join(hold.id for hold in consumers_of(store)) or "none"
        raise NotFound(f"there is no consumer {consumer_id!r}; there are: {have}", code="no-such-consumer")
    store.storage.delete(layout.join(store.location, layout.consumer_path(consumer_id)))


@checks_arguments()
class Consumer:
    """A named reader's hold on versions. Use it in a ``with``, which releases it, or keep it over the reader's life.

    Args:
        store: The table.
        consumer_id: Letters, digits, ``_``, ``.`` and ``-``.

    Raises:
        InvalidRequest: ``bad-consumer-id``.
    """

    def __init__(self, store: FileStore, consumer_id: str) -> None:
        _check_id(consumer_id)
        self._store = store
        self._hold: ConsumerInfo | None = None
        self.id = consumer_id

    @property
    def version(self) -> int:
        """The oldest version that it holds. `InvalidRequest` if it holds none."""
        return self._registered().version

    def position(self) -> ConsumerInfo | None:
        """Reads the position of the reader that had this id before; None if there was none."""
        found = read_hold(self._store.storage, self._store.location, self.id)
        return None if found is None or found.table_id != self._store.state().table_id else found

    def register(self, version: int, *, rows: bool = False) -> Self:
        """Holds a version and all later ones; a reader that held them under this id before loses its hold.

        Args:
            version: The oldest version that is needed.
            rows: Its rows are read, too, not only the changes after it.

        Raises:
            NotFound: ``snapshot-expired``, or ``no-such-version``. Then nothing is held.
        """
        now, before = self._store.ambient.now_ms(), self.position()
        table_id, holder = self._store.state().table_id, self._store.ambient.new_id()
        self._write(before, ConsumerInfo(self.id, table_id, version, holder, now, rows))
        return self

    def advance(self, version: int) -> None:
        """Holds only a later version from now on, for the changes after it.

        Raises:
            Conflict: ``consumer-taken``: another reader has registered the same id.
            NotFound: ``snapshot-expired``: the consumer did not write its file for ``consumer.expiration-time``.
        """
        hold = self._own()
        self._write(hold, replace(hold, version=version, rows=False, touched_ms=self._store.ambient.now_ms()))

    def keep(self) -> None:
        """Writes the consumer's file again if it is time to show that the reader lives. Errors are as in `advance`."""
        now = self._store.ambient.now_ms()
        limit = self._store.state().definition.options.milliseconds("consumer.expiration-time")
        if now - self._registered().touched_ms > limit // _KEEP_SHARE:
            hold = self._own()
            self._write(hold, replace(hold, touched_ms=now))

    def release(self) -> None:
        """Ends the hold. Another reader's hold under the same id stays."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        found = read_hold(self._store.storage, self._store.location, self.id)
        if found is not None and found.holder == hold.holder:
            self._store.storage.delete(layout.join(self._store.location, layout.consumer_path(self.id)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.release()
        except TableStoreError as failure:  # the work of the block is done: it must not fail because of this
            logger.warning("consumer %s holds its version until it counts as gone: %s", self.id, failure)

    def _registered(self) -> ConsumerInfo:
        if self._hold is None:
            raise InvalidRequest(f"consumer {self.id!r} holds nothing: register it first", code="not-registered")
        return self._hold

    def _own(self) -> ConsumerInfo:
        hold, found = self._registered(), read_hold(self._store.storage, self._store.location, self.id)
        if found is not None and found.holder != hold.holder:
            raise Conflict(
                f"another reader took over consumer {self.id!r} at version {found.version}: give each reader an id of "
                "its own",
                code="consumer-taken",
            )
        return hold

    def _write(self, before: ConsumerInfo | None, hold: ConsumerInfo) -> None:
        """Writes the consumer's file.

        IMPORTANT: it writes the file first, and reads the Delta log second (see the head of this module).
        """
        self._hold = hold
        write_hold(self._store.storage, self._store.location, hold)
        state = self._store.state()
        if hold.version > state.version:
            self._undo(before)
            raise NotFound(
                f"{self._store.name} has no version {hold.version} yet; the newest is {state.version}",
                code="no-such-version",
            )
        # a version that was held without a break still exists, even if it has expired in the Delta log meanwhile
        held = before is not None and before.version <= hold.version and not is_lapsed(before, state, hold.touched_ms)
        if not held and not is_retained(state, hold.version):
            self._undo(before)
            raise expired(self._store.name, hold.version, state)

    def _undo(self, before: ConsumerInfo | None) -> None:
        """Restores the hold that another reader had under this id; without one it ends its own."""
        if before is None or (self._hold is not None and before.holder == self._hold.holder):
            self.release()
        else:
            self._hold = None
            write_hold(self._store.storage, self._store.location, before)


def _check_id(consumer_id: str) -> None:
    if _ID.fullmatch(consumer_id) is None:
        raise InvalidRequest(
            f"{consumer_id!r} is no id for a consumer: take 1 to 100 letters, digits, '_', '.' and '-', and a "
            "letter or digit first",
            code="bad-consumer-id",
        )
