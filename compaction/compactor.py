"""The compactor: performs the due duties for the tables of a catalog, one by one, each under the table's lease.

Several compactors may run at once, on one machine or many: the one that holds a table's lease works on it, the others
skip it. The leases of one that died expire; its uncommitted work is invisible, so the next compactor begins again.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalog_service.client import Catalog, LeaseRequest, TableInfo, storage_of_table
from compaction.duties import Duty, LeaseCheck
from compaction.duty_metrics import DUTIES_DONE, DUTY_SECONDS
from compaction.lease import leased
from filestore.ambient import Ambient
from filestore.errors import Conflict, NotFound, TableStoreError
from filestore.metrics.meter import NO_METER, Meter
from filestore.storage.locations import Storages
from managed_table.opened import OpenedTable

__all__ = ["Compactor", "Outcome"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a duty that was due.

    Attributes:
        table: The table's name, ``database.table``.
        duty: The duty's name.
        done: A line that says what was done.
        error: The error, if it failed.
    """

    table: str
    duty: str
    done: str | None = None
    error: TableStoreError | None = None

    @property
    def failed(self) -> bool:
        """Returns whether an operator should act: a lost race is not a failure, since the next round tries again."""
        return self.error is not None and not isinstance(self.error, Conflict)


class Compactor:
    """Performs duties for the tables of a catalog.

    Args:
        catalog: The catalog of the tables, which also grants their leases.
        storages: The storages of the tables.
        ambient: The clock and the source of ids.
        databases: Only tables of these databases; of all if empty.
        lease_s: The seconds after which a table's lease expires when its compactor died.
        meter: It gets the metrics.
    """

    def __init__(
        self,
        catalog: Catalog,
        storages: Storages,
        ambient: Ambient,
        databases: Sequence[str] = (),
        lease_s: float = 60.0,
        meter: Meter = NO_METER,
    ) -> None:
        self._meter = meter
        self._catalog = catalog
        self._storages = storages
        self._ambient = ambient
        self._databases = tuple(databases)
        self._lease_s = lease_s
        self._opened: dict[str, OpenedTable] = {}
        self.stopping = threading.Event()
        """Stops the compactor, once it is set, before the next table."""

    def run(self, duty: Duty) -> Iterator[Outcome]:
        """Performs a duty for all tables that need it; an error in one table does not stop the others.

        Raises:
            NotFound: ``database-not-found``: one of `databases` does not exist.
            Unavailable: the catalog does not answer.
        """
        seen: set[str] = set()
        for database, name in self._tables():
            if self.stopping.is_set():
                return
            try:
                info = self._info(database, name)
                if info is None or info.location is None:
                    continue  # it was dropped by now, or is a topic, which has no files
                seen.add(info.table_id)
                done = self._perform(duty, self._table(info))
            except TableStoreError as error:
                if self._dropped(database, name, error):
                    self._meter.forget(f"{database}.{name}")
                else:
                    yield self._counted(Outcome(f"{database}.{name}", duty.name, error=error))
            else:
                if done is not None:
                    yield self._counted(Outcome(f"{database}.{name}", duty.name, done))
        for table_id in [table_id for table_id in self._opened if table_id not in seen]:
            self._meter.forget(self._opened.pop(table_id).identity.identifier)

    def _counted(self, outcome: Outcome) -> Outcome:
        how = "failed" if outcome.failed else "done" if outcome.error is None else "conflict"
        self._meter.add(DUTIES_DONE, (outcome.table, outcome.duty, how))
        return outcome

    def _info(self, database: str, name: str) -> TableInfo | None:
        try:
            return self._catalog.get_table(database, name)
        except NotFound:
            return None

    def _dropped(self, database: str, name: str, error: TableStoreError) -> bool:
        """Returns whether an error says that the table was dropped, and not that one of its data files is missing."""
        return isinstance(error, NotFound) and self._info(database, name) is None

    def _tables(self) -> Iterator[tuple[str, str]]:
        for database in self._databases or self._catalog.list_databases():
            try:
                names = self._catalog.list_tables(database)
            except NotFound:
                if self._databases:
                    raise
                continue  # it was dropped by now
            yield from ((database, name) for name in names)

    def _perform(self, duty: Duty, table: OpenedTable) -> str | None:
        if not self._due(duty, table):
            return None
        identity = table.identity
        owner = f"{socket.gethostname()}/{os.getpid()}/{self._ambient.new_id()}"
        ask = LeaseRequest(owner=owner, seconds=self._lease_s)
        try:
            with leased(self._catalog, identity.database, identity.name, ask, self._ambient) as lease:
                # checked again: the former holder of the lease may have done it
                return self._timed(duty, table, lease.check) if self._due(duty, table) else None
        except Conflict as error:
            if error.code != "lease-held":
                raise
            logger.debug("%s is skipped: %s", identity.identifier, error)
            return None

    def _timed(self, duty: Duty, table: OpenedTable, check_lease: LeaseCheck) -> str | None:
        began_ms = self._ambient.now_ms()
        try:
            return duty.perform(table, check_lease)
        finally:
            self._meter.observe(DUTY_SECONDS, (duty.name,), (self._ambient.now_ms() - began_ms) / 1000)

    def _due(self, duty: Duty, table: OpenedTable) -> bool:
        return duty.due(table.filestore.state(), self._ambient.now_ms())

    def _table(self, info: TableInfo) -> OpenedTable:
        """Returns a table that is opened once, since it caches the newest version and reads only newer ones."""
        if (known := self._opened.get(info.table_id)) is not None:
            return known
        storage = storage_of_table(self._catalog, info, self._storages, self._ambient)
        opened = OpenedTable(info.identity(), storage, self._ambient, self._meter)
        return self._opened.setdefault(info.table_id, opened)
