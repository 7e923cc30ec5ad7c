"""`Ingestion`: writes a Debezium topic into a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.arguments import checks_arguments
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Schema
from filestore.progress import Counter, Observe
from log.connector.declaration import KafkaDeclaration
from tablestore.ingesting.source import EvolvingDecoder
from tablestore.ingesting.targets import Target
from tablestore.kafka_table import KafkaTable
from tablestore.table import Table
from tablestore.topics.reader import Stop, ending_of, starts_of

if TYPE_CHECKING:
    from log.connector.topic import ConnectorTopic

__all__ = ["Ingestion", "Pace", "Taken"]


@checks_arguments()
@dataclass(frozen=True, slots=True)
class Pace:
    """The limits of a batch: it is committed as soon as one is reached, so that a slow topic makes few versions.

    Attributes:
        rows: The number of waiting changes.
        size: Their size in bytes.
        interval: The time for which the first of them waits.
    """

    rows: int = 100_000
    size: int = 64 << 20
    interval: timedelta = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of a commit.

    Attributes:
        rows: The number of changes.
        offsets: The offsets at which each partition continues.
        version: The version of a managed table with the changes; None for a topic.
    """

    rows: int
    offsets: Mapping[int, int]
    version: int | None


@dataclass(slots=True)
class _Waiting:
    """Changes that are not committed yet."""

    pace: Pace
    ambient: Ambient
    tables: list[pa.Table] = field(default_factory=list)
    since_ms: int = 0

    def add(self, rows: pa.Table) -> None:
        if not self.tables:
            self.since_ms = self.ambient.now_ms()
        self.tables.append(rows)

    def are_due(self) -> bool:
        if not self.tables:
            return False
        waited = timedelta(milliseconds=self.ambient.now_ms() - self.since_ms)
        count, size = (sum(of) for of in zip(*((t.num_rows, t.nbytes) for t in self.tables), strict=True))
        return count >= self.pace.rows or size >= self.pace.size or waited >= self.pace.interval

    def taken(self) -> pa.Table:
        """Returns all of them, and forgets them; columns that are new by now are null in older ones."""
        tables, self.tables = self.tables, []
        return pa.concat_tables(tables, promote_options="default")


@checks_arguments()
class Ingestion:
    """Writes a topic into a table. `tablestore.Store.ingest` makes it.

    Attributes:
        table: The table.
    """

    def __init__(
        self,
        table: Table | KafkaTable,
        source: KafkaDeclaration,
        target: Target,
        topic: ConnectorTopic,
        ambient: Ambient,
        *,
        fixed: bool,
    ) -> None:
        self.table = table
        self._source = source
        self._target = target
        self._topic = topic
        self._ambient = ambient
        self._fixed = fixed

    def copy(self, pace: Pace | None = None, observe: Observe | None = None) -> Taken:
        """Writes everything that the topic has now and the table has not; returns the total.

        Args:
            pace: When changes are committed.
            observe: Takes how many changes were written.

        Raises:
            Corrupt: ``malformed-record``. Changes before it stay written.
            NotFound: ``offset-gone``, ``topic-not-found``.
            InvalidRequest: ``schema-changed``, ``underivable-column``, or rows that do not fit.
            Conflict: ``other-batch``.
            Unavailable: a store or the brokers did not answer. Begin again: it continues where it was.
        """
        rows, last = 0, Taken(0, self._target.offsets(), None)
        writing = Counter(observe, "writing", "changes")
        for last in self.follow(lambda: True, pace):
            rows += last.rows
            writing.add(last.rows)
        return Taken(rows, last.offsets, last.version)

    def follow(self, stop: Stop = None, pace: Pace | None = None) -> Iterator[Taken]:
        """Writes new messages endlessly, commit by commit; yields each commit's result. Raises as `copy`.

        Args:
            stop: Says when to end. Messages that the topic has then are still written.
            pace: When changes are committed.
        """
        from log.connector.reader import follow_from  # librdkafka takes 80 ms to load

        target, waiting = self._target, _Waiting(pace or Pace(), self._ambient)
        known = target.offsets()
        starts = offsets = starts_of(self._source, self._topic, known)
        if not known:
            # "latest" is another offset after a crash, and so is "earliest" once retention has removed messages:
            # messages before the first commit would be lost, or would be missing without an error
            target.take(_nothing(target.columns), starts)
        decoder = EvolvingDecoder(self._source, target.columns, target.key, None if self._fixed else target.add)
        for found in follow_from(self._source, self._topic, starts, ending_of(stop), self._ambient, decoder):
            if found.rows is not None:
                waiting.add(found.rows)
            offsets = dict(found.positions)
            if waiting.are_due():
                yield self._taken(waiting.taken(), offsets)
            elif not waiting.tables:
                target.keep(offsets)
        if waiting.tables:
            yield self._taken(waiting.taken(), offsets)

    def _taken(self, rows: pa.Table, offsets: Mapping[int, int]) -> Taken:
        return Taken(rows.num_rows, offsets, self._target.take(rows, offsets))


def _nothing(columns: Schema) -> pa.Table:
    return columns.to_arrow().append(pa.field(KIND_COLUMN, pa.string())).empty_table()
