"""A table's lease, which a heartbeat renews while the work under it takes place."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from catalog_service.client import Catalog, LeaseRequest
from filestore.ambient import Ambient
from filestore.errors import Conflict, NotFound, TableStoreError, Unavailable

__all__ = ["Lease", "leased"]

logger = logging.getLogger(__name__)

_RENEWALS = 3
"""The number of renewals within the time after which a lease expires."""


@contextmanager
def leased(catalog: Catalog, database: str, name: str, ask: LeaseRequest, ambient: Ambient) -> Iterator[Lease]:
    """Holds a table's lease while the block runs, and releases it.

    Args:
        catalog: The catalog that grants it.
        database: The table's database.
        name: The table.
        ask: A unique owner, and the seconds after which the lease expires when this process dies.
        ambient: The clock.

    Raises:
        Conflict: ``lease-held``.
        NotFound: the table does not exist.
    """
    asked_ms = ambient.now_ms()
    catalog.acquire_lease(database, name, ask)
    lease = Lease(catalog, (database, name), ask, ambient, asked_ms)
    lease.start()
    try:
        yield lease
    finally:
        lease.end()


class Lease:
    """A lease that a thread renews. See `leased`."""

    def __init__(
        self, catalog: Catalog, table: tuple[str, str], ask: LeaseRequest, ambient: Ambient, asked_ms: int
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._ask = ask
        self._ambient = ambient
        self._asked_ms = asked_ms
        self._lost = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease of {'.'.join(table)}", daemon=True)

    def check(self) -> None:
        """Raises `Conflict` (``lease-lost``) unless the lease is held at this moment.

        A process that was suspended for longer than the lease lasts notices it here, before its heartbeat may do so.
        """
        if self._lost or self._ambient.now_ms() - self._asked_ms >= 1000 * self._ask.seconds:
            raise Conflict(
                f"the lease of {'.'.join(self._table)} expired during this work: nothing was committed, and another "
                "process continues",
                code="lease-lost",
            )

    def start(self) -> None:
        """Starts the thread that renews it."""
        self._thread.start()

    def end(self) -> None:
        """Releases it. If the catalog does not answer, it expires by itself."""
        self._ended.set()
        self._thread.join()
        try:
            self._catalog.release_lease(*self._table, self._ask.owner)
        except NotFound:
            pass  # the table was dropped, and its lease with it
        except TableStoreError as error:
            logger.warning("the lease of %s will expire by itself: %s", ".".join(self._table), error)

    def _beat(self) -> None:
        while not self._ended.wait(self._ask.seconds / _RENEWALS) and not self._lost:
            asked_ms = self._ambient.now_ms()
            try:
                self._catalog.renew_lease(*self._table, self._ask)
            except (Conflict, NotFound):
                self._lost = True
            except Unavailable as error:
                logger.warning("the lease of %s is not renewed yet: %s", ".".join(self._table), error)
            else:
                self._asked_ms = asked_ms
