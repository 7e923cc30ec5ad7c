"""Reads the records of an eventual log that no version covers yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.delta.state import TableState
from filestore.model.definition import TableDefinition
from filestore.table import FileStore
from log.table.config import LogConfig
from log.table.store import LogBatch, LogStore
from log.table.systems import open_log
from log.table.tailing import read_until
from managed_table.opened import OpenedTable
from managed_table.own_log import OwnRecords
from tablestore.recovering.tail_scan import unnamed

__all__ = ["TailPart", "VisibleTail"]


@dataclass(frozen=True, slots=True)
class TailPart:
    """A bucket's records beyond a version, up to the log's end at that time. It is picklable, for other processes.

    Attributes:
        config: The log, with the version's columns.
        bucket: The bucket of the records.
        start: The offset of the first record that may not be covered by a version.
        end: The log's end.
        named: Transactions among them that versions name; their records are skipped.
    """

    config: LogConfig
    bucket: int
    start: int
    end: int
    named: frozenset[str]

    def changes(self, ambient: Ambient) -> Iterator[pa.Table]:
        """Yields the records in the order of the log, with the version's columns and `KIND_COLUMN`.

        Raises:
            NotFound: ``log-gap``: retention has removed records.
            Unavailable: the log does not answer.
        """
        with open_log(self.config, ambient) as log:
            yield from _changes(log, [self])


@dataclass(frozen=True, slots=True)
class VisibleTail:
    """Records of running writers, of dead writers, and of versions that are committed meanwhile.

    Attributes:
        filestore: The table.
        config: Its log.
    """

    filestore: FileStore
    config: LogConfig

    @classmethod
    def of(cls, table: OpenedTable, definition: TableDefinition) -> VisibleTail | None:
        """Returns the tail of a table's log; None if its log shows nothing before the commit, or if it has no log."""
        log = table.log_config(definition)
        return None if log is None or not log.eventual else cls(table.filestore, log)

    def parts(self, state: TableState) -> list[TailPart]:
        """Returns the buckets that have records beyond a version. It requests only offsets.

        Raises:
            Unavailable: the log does not answer.
            Corrupt: ``log-replaced``.
            NotFound: ``log-gap``: the log has lost its end.
        """
        with open_log(self.config, self.filestore.ambient) as log:
            return self._parts(log, state)

    def changes(self, state: TableState) -> Iterator[pa.Table]:
        """Yields visible records that no version up to this one names.

        They have the version's columns and `KIND_COLUMN`; those of one bucket are in the order of the log.

        Raises:
            Unavailable: the log does not answer.
            Corrupt: ``log-replaced``.
            NotFound: ``log-gap``: the log has lost its end.
        """
        with open_log(replace(self.config, schema=state.definition.schema), self.filestore.ambient) as log:
            yield from _changes(log, self._parts(log, state))

    def _parts(self, log: LogStore, state: TableState) -> list[TailPart]:
        OwnRecords(state, self.filestore.location).compare(log)
        named = frozenset(transaction.id for transaction in state.log.open)
        ranges = [part for transaction in state.log.open for part in transaction.ranges]
        starts, ends = log.start_offsets(), log.end_offsets()
        since = {b: max(state.log.repaired.get(b, 0), starts[b]) for b in ends}
        config = replace(self.config, schema=state.definition.schema)
        return [
            TailPart(config, b, since[b], ends[b], named)
            for b in sorted(ends)
            if unnamed(since[b], ends[b], [part for part in ranges if part.bucket == b])
        ]


def _changes(log: LogStore, parts: Sequence[TailPart]) -> Iterator[pa.Table]:
    if not parts:
        return
    config, named = parts[0].config, {part.bucket: part.named for part in parts}
    with log.tail({part.bucket: part.start for part in parts}) as tail:
        for event in read_until(tail, {part.bucket: part.end for part in parts}, f"{config.database}.{config.table}"):
            if isinstance(event, LogBatch) and event.transaction_id not in named[event.bucket]:
                yield pa.Table.from_batches([event.rows])
