"""A compactor: goes through a catalog's tables and does what is due, table by table, each under its lease.

Several may run at once, on one machine or many: who holds a table's lease works on it, the others pass it by. One that
dies loses its leases when they run out; what it had not committed is not there, so whoever comes next begins anew.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalog_service.client import Catalog, LeaseRequest, TableInfo
from compaction.duties import Duty, StillMine
from compaction.duty_metrics import DUTIES_DONE, DUTY_SECONDS
from compaction.lease import leased
from filestore.ambient import Ambient
from filestore.errors import Conflict, NotFound, TableStoreError
from filestore.metrics.meter import NO_METER, Meter
from filestore.storage import Storage
from filestore.table import FileStore

__all__ = ["Compactor", "Outcome"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a duty that was due.

    Attributes:
        table: ``database.table``.
        duty: Its name.
        done: What was done, in a line.
        error: Why it was not.
    """

    table: str
    duty: str
    done: str | None = None
    error: TableStoreError | None = None

    @property
    def failed(self) -> bool:
        """Whether somebody has to look at it: a lost race is no failure, since the next round tries again."""
        return self.error is not None and not isinstance(self.error, Conflict)


class Compactor:
    """Keeps the tables of a catalog.

    Args:
        catalog: Which tables there are, and their leases.
        storage: Where they lie.
        ambient: Clock and ids.
        databases: Only these; all if empty.
        lease_s: How long a table stays taken after its compactor died.
        meter: Takes what is measured.
    """

    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        ambient: Ambient,
        databases: Sequence[str] = (),
        lease_s: float = 60.0,
        meter: Meter = NO_METER,
    ) -> None:
        self._meter = meter
        self._catalog = catalog
        self._storage = storage
        self._ambient = ambient
        self._databases = tuple(databases)
        self._lease_s = lease_s
        self._stores: dict[str, FileStore] = {}
        self._names: dict[str, str] = {}
        self.stopping = threading.Event()
        """Once set, no further table is begun."""

    def run(self, duty: Duty) -> Iterator[Outcome]:
        """Does a duty for all tables that need it; what fails for one does not keep it from the next.

        Raises:
            NotFound: ``database-not-found``: one that was named.
            Unavailable: the catalog does not answer.
        """
        seen: set[str] = set()
        for database, name in self._tables():
            if self.stopping.is_set():
                return
            try:
                info = self._info(database, name)
                if info is None or info.location is None:
                    continue  # dropped meanwhile, or a topic, which has no files to keep
                seen.add(info.table_id)
                done = self._keep(duty, info)
            except TableStoreError as error:
                if self._dropped(database, name, error):
                    self._meter.forget(f"{database}.{name}")
                else:
                    yield self._counted(Outcome(f"{database}.{name}", duty.name, error=error))
            else:
                if done is not None:
                    yield self._counted(Outcome(f"{database}.{name}", duty.name, done))
        for table_id in [table_id for table_id in self._stores if table_id not in seen]:
            del self._stores[table_id]
            self._meter.forget(self._names.pop(table_id))

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
        """Whether what was not found went with its table; a data file that is missing is no such thing."""
        return isinstance(error, NotFound) and self._info(database, name) is None

    def _tables(self) -> Iterator[tuple[str, str]]:
        for database in self._databases or self._catalog.list_databases():
            try:
                names = self._catalog.list_tables(database)
            except NotFound:
                if self._databases:
                    raise
                continue  # dropped meanwhile
            yield from ((database, name) for name in names)

    def _keep(self, duty: Duty, info: TableInfo) -> str | None:
        store = self._store(info)
        if not self._due(duty, store):
            return None
        owner = f"{socket.gethostname()}/{os.getpid()}/{self._ambient.new_id()}"
        ask = LeaseRequest(owner=owner, seconds=self._lease_s)
        try:
            with leased(self._catalog, info.database, info.name, ask, self._ambient) as lease:
                # looked at again: whoever had the lease until now may have done it
                return self._timed(duty, store, lease.check, info) if self._due(duty, store) else None
        except Conflict as error:
            if error.code != "lease-held":
                raise
            logger.debug("%s.%s is passed by: %s", info.database, info.name, error)
            return None

    def _timed(self, duty: Duty, store: FileStore, still_mine: StillMine, info: TableInfo) -> str | None:
        began_ms = self._ambient.now_ms()
        try:
            return duty.perform(store, still_mine, info)
        finally:
            self._meter.observe(DUTY_SECONDS, (duty.name,), (self._ambient.now_ms() - began_ms) / 1000)

    def _due(self, duty: Duty, store: FileStore) -> bool:
        return duty.due(store.state(), self._ambient.now_ms())

    def _store(self, info: TableInfo) -> FileStore:
        """A table's files; kept, since they remember the newest version and read only what is newer."""
        known = self._stores.get(info.table_id)
        if known is None:
            assert info.location is not None, "a topic was not passed by"
            known = FileStore.open(self._storage, info.location, self._ambient)
            if known.state().table_id != info.table_id:
                raise NotFound(f"another table than the catalog's lies at {info.location}", code="table-replaced")
            self._stores[info.table_id] = known
            self._names[info.table_id] = f"{info.database}.{info.name}"
        return known
