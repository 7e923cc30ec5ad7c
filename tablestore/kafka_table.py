"""`KafkaTable`: a table that is a Kafka topic, without Spark (log/connector/CONNECTORS.md)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl
import pyarrow as pa

from filestore.ambient import Ambient
from filestore.arguments import checks_arguments
from filestore.errors import Unsupported
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Column, Schema
from filestore.reading.predicate import Condition, Predicate
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import asked_schema
from log.connector.metadata.plans import plan_write
from log.connector.properties import shown
from log.connector.ranges import PartitionRange
from log.connector.startup import Startup, StartupMode
from tablestore.following.result_mode import ResultMode, result_mode
from tablestore.incoming.fitting import fit
from tablestore.incoming.given import Rows, arrow_parts
from tablestore.normalizing.spec import NormalizerSpec
from tablestore.reading.batch_size import batch_size
from tablestore.reading.results import Results
from tablestore.table import Table
from tablestore.topics.changes import scanned_changes
from tablestore.topics.reader import Stop, TopicReader, ending_of
from tablestore.topics.spec import consumer_unused, is_complete, spec_of, state_unused

if TYPE_CHECKING:
    from log.connector.topic import ConnectorTopic
    from log.connector.writer import ConnectorWriter

__all__ = ["KafkaScan", "KafkaTable"]

_ALL = Startup(StartupMode.EARLIEST)


@dataclass(frozen=True, slots=True)
class KafkaScan(Results):
    """A read of the messages that a topic held when it was planned; it runs when its rows are asked for.

    Attributes:
        declaration: The table, with the reader's own ``scan.*`` options.
        ranges: The offsets that are read.
        columns: Which columns; all if None.
        where: Which rows.
        ambient: The clock.
        mode: What it gives of an update.
    """

    declaration: KafkaDeclaration
    ranges: tuple[PartitionRange, ...]
    columns: tuple[str, ...] | None
    where: Condition | None
    ambient: Ambient
    mode: ResultMode = ResultMode.UPSERT

    @property
    def schema(self) -> pa.Schema:
        """The columns that are asked for, in their order, and ``_kind``."""
        return asked_schema(self.declaration, self.columns)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Bounded batches. The changes of one key come in order, since they are in one partition."""
        for rows in self._changes():
            wanted = rows if self.where is None else rows.filter(_mask(rows, self.where))
            yield from wanted.select(self.schema.names).cast(self.schema).to_batches()

    def _changes(self) -> Iterator[pa.Table]:
        from log.connector.reader import read_ranges  # librdkafka takes 80 ms to load

        read = None if self.columns is None else {*self.columns, *(self.where.columns if self.where else ())}
        if self.mode is ResultMode.UPSERT or is_complete(self.declaration):
            yield from read_ranges(self.declaration, self.ranges, self.ambient, read)
            return

        def spec(folder: str) -> NormalizerSpec:
            return spec_of(self.declaration, folder, None if read is None else sorted(read))

        rows = read_ranges(self.declaration, self.ranges, self.ambient, spec("").definition.schema.names)
        for batch in scanned_changes(spec, rows, self.ambient):
            yield pa.Table.from_batches([batch])


@checks_arguments("rows")
class KafkaTable:
    """A table with a connector. Get it from `Store.table`; it may be kept.

    What only managed tables have, such as versions, is refused with `Unsupported` (``connector-table``).
    """

    def __init__(
        self, database: str, name: str, table_id: str, declaration: KafkaDeclaration, ambient: Ambient
    ) -> None:
        self.identifier = f"{database}.{name}"
        self.table_id = table_id
        self.declaration = declaration
        self._ambient = ambient

    def __repr__(self) -> str:
        return f"KafkaTable({self.identifier!r}, {str(self.declaration.connector)!r}, {self.declaration.topic!r})"

    def __getattr__(self, name: str) -> NoReturn:
        """Only asked for what is not there."""
        if name.startswith("_") or not hasattr(Table, name):
            raise AttributeError(f"KafkaTable has no attribute {name!r}")
        raise Unsupported(
            f"table {self.identifier} has connector = {self.declaration.connector}: it is the topic "
            f"{self.declaration.topic!r}, without files and versions, so there is no {name!r}. Managed tables have it",
            code="connector-table",
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow, whose fields say which of them are metadata columns."""
        return self.declaration.columns.to_arrow()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        options: Mapping[str, str] | None = None,
        mode: str = "upsert",
    ) -> KafkaScan:
        """Reads the changes that the topic holds now, from where ``scan.startup.mode`` says: each with its ``_kind``.

        With upsert-kafka a message is ``+U``, or without a value ``-D`` with the key's columns alone. With kafka it is
        what its format says: ``+I`` if that has rows only.

        Args:
            columns: Which columns; all if None. ``_kind`` comes always, last.
            where: A SQL condition or a polars expression; of a ``-D`` only the key's columns are known.
            options: Options ``scan.*`` for this reader, such as ``{"scan.malformed-records": "skip"}``.
            mode: ``"upsert"``: each message; or ``"changelog"``: complete changes, an update as the row before (``-U``)
                and after it (``+U``), a delete with the row as it was; a new key is ``+I``, and what changes nothing is
                left out. Of a key that has several messages in one look at the topic there is one change.
                What is known of the keys lies in a temporary folder meanwhile.

        Raises:
            NotFound: ``topic-not-found``, ``offset-gone``, or ``unknown-column``.
            InvalidRequest: an option, mode or condition that is none; with ``"changelog"`` ``no-primary-key``.
            Unavailable: the brokers do not answer.
            Corrupt: ``malformed-record``, while it is read.
        """
        declaration = self.declaration.with_scan(options or {})
        asked_schema(declaration, columns)
        condition, asked = None if where is None else Condition.of(where, _logical(declaration)), result_mode(mode)
        if asked is ResultMode.CHANGELOG and not is_complete(declaration):
            spec_of(declaration, "", columns)
        topic = self._topic(declaration)
        ranges = topic.ranges(topic.partitions(), declaration.startup)
        read = None if columns is None else tuple(columns)
        return KafkaScan(declaration, ranges, read, condition, self._ambient, asked)

    def follow(
        self,
        columns: Sequence[str] | None = None,
        *,
        options: Mapping[str, str] | None = None,
        mode: str = "upsert",
        state: str | PathLike[str] | None = None,
        consumer: str | None = None,
        stop: Stop = None,
        max_rows_per_batch: int | None = None,
    ) -> Generator[pa.RecordBatch]:
        """The changes as `scan` gives them, and then those that come, endlessly.

        Where it begins is decided by this call, and kept by `state` or `consumer`, not by the first batch.

        Args:
            columns: Which columns; all if None. ``_kind`` comes always, last.
            options: Options ``scan.*`` for this reader: where it begins, above all.
            mode: As in `scan`.
            state: With ``"changelog"``, a folder that is this reader's own: there lies what is known of the keys, and
                with it how far the topic was taken, so a reader that is begun again goes on there. What came last
                comes again if the reader ended before it asked for more. Without a folder all begins anew each time.
            consumer: An id under which the brokers keep how far the reader is, as the offsets of a group of that name:
                one that is begun again goes on there, whatever the options say. The rows of a batch count as taken once
                the next batch is asked for, so the last batch may come again. A message whose rows are more than one
                batch counts with the last of them.
            stop: A `threading.Event` or function that says when to end. What the topic holds then is still given.
            max_rows_per_batch: The most rows of a batch; None: as they come.

        Raises:
            NotFound, InvalidRequest, Unavailable, Corrupt: as `scan`.
            InvalidRequest: ``bad-option-value``; ``state-unused``, ``consumer-unused``: it is the other that remembers
                the place; ``other-state``: the folder is another reader's; ``group-in-use``; ``bad-consumer-id``.
            NotFound: ``topic-replaced``: the topic was made anew since; ``offset-gone``: also if the place that
                `consumer` remembers is no longer there.
            Conflict: ``consumer-taken``, ``other-batch``: another reader goes on with the same folder.
        """
        declaration, asked = self.declaration.with_scan(options or {}), result_mode(mode)
        schema, folder = asked_schema(declaration, columns), None if state is None else fspath(state)
        size, complete = batch_size(max_rows_per_batch), asked is ResultMode.UPSERT or is_complete(declaration)
        if complete and folder is not None:
            raise state_unused(folder)
        if not complete and consumer is not None:
            raise consumer_unused(consumer)
        reader = TopicReader(declaration, self._topic(declaration), ending_of(stop), self._ambient, columns)
        if not complete:
            return _sized(reader.complete_changes(folder), schema, size)
        return _sized(reader.rows() if consumer is None else reader.remembered_rows(consumer, size), schema, size)

    def write(self, rows: Rows) -> int:
        """Writes rows as messages, in their order; gives the number of messages.

        Messages go to the partition that the hash of their key says, as with Kafka's Java clients. The metadata columns
        ``timestamp`` and ``headers`` are written unless they are VIRTUAL; a nullable column may be left out.

        Args:
            rows: As in `Table.write`. A stream of Arrow is read batch by batch. A column ``_kind`` says what each row
                does. With upsert-kafka ``+I`` and ``+U`` are values, ``-D`` a tombstone, and ``-U`` is left out; with
                kafka the format spells it, if it has a word for it.

        Raises:
            InvalidRequest: rows that do not fit, or a table that can only be read (``read-only-metadata``).
            NotFound: ``topic-not-found``.
            Unavailable: messages were not delivered; with ``sink.semantic = exactly-once`` none is there then, but for
                its subclass `CommitUnknown`.
        """
        target = plan_write(self.declaration.columns, self.declaration.keys).declared
        parts = arrow_parts(rows, target)
        first = _fitted(next(parts), target)  # what is no stream is refused before anything begins
        pieces = itertools.chain([first], (_fitted(part, target) for part in parts))
        self._topic(self.declaration).partitions()  # a producer would make a topic that is not there
        return self._writer.write(pieces)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """The first offset and the end of each partition, as readers see them; errors as of `scan`."""
        topic = self._topic(self.declaration)
        return {r.partition: (r.start, r.end) for r in topic.ranges(topic.partitions(), _ALL)}

    def detail(self) -> dict[str, Any]:
        """What the table is, as plain values; passwords and the like are not told."""
        declaration = self.declaration
        return {
            "name": self.identifier,
            "table_id": self.table_id,
            "connector": str(declaration.connector),
            "topic": declaration.topic,
            "schema": declaration.columns.to_sql(),
            "primary_key": list(declaration.primary_key),
            "options": shown(declaration.options),
            "comment": declaration.comment,
        }

    @cached_property
    def _writer(self) -> ConnectorWriter:
        from log.connector.writer import ConnectorWriter  # librdkafka takes 80 ms to load

        return ConnectorWriter(self.declaration, self._ambient)

    def _topic(self, declaration: KafkaDeclaration) -> ConnectorTopic:
        from log.connector.topic import ConnectorTopic  # librdkafka takes 80 ms to load

        return ConnectorTopic(declaration, self._ambient)


def _sized(batches: Iterator[pa.RecordBatch], schema: pa.Schema, size: int | None) -> Generator[pa.RecordBatch]:
    for batch in batches:
        wanted = batch.select(schema.names).cast(schema)
        yield from pa.Table.from_batches([wanted]).to_batches(size)


def _logical(declaration: KafkaDeclaration) -> Schema:
    return Schema(tuple(Column(c.name, c.type) for c in declaration.columns.columns))


def _mask(rows: pa.Table, where: Condition) -> pa.Array:
    frame = pl.from_arrow(rows.select(where.columns))
    assert isinstance(frame, pl.DataFrame)
    return where.wanted(frame).to_arrow()


def _fitted(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """The columns that the table has in its types; the plan says what is wrong with others."""
    names = rows.column_names
    counts, fields = Counter(names), {field.name: field.with_nullable(True) for field in target}
    fields[KIND_COLUMN] = pa.field(KIND_COLUMN, pa.string())
    columns = [
        fit(column, fields[name]) if name in fields and counts[name] == 1 else column
        for name, column in zip(names, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, names=names)
