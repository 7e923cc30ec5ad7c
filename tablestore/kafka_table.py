"""`KafkaTable`: a table that is a Kafka topic, without Spark (log/connector/CONNECTORS.md)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.arguments import checks_arguments
from filestore.errors import Unsupported
from filestore.lazily import pl
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Column, Schema
from filestore.reading.predicate import Condition, Predicate
from filestore.rows.casting import cast_rows
from filestore.secrets import shown
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import asked_schema
from log.connector.metadata.plans import plan_write
from log.connector.ranges import PartitionRange
from log.connector.startup import Startup, StartupMode
from tablestore.following.result_mode import Mode, ResultMode, result_mode
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


@dataclass(frozen=True, slots=True, repr=False)
class KafkaScan(Results):
    """A read of the messages that a topic had when the scan was planned; it runs when its result is requested.

    Attributes:
        declaration: The table, with the reader's own ``scan.*`` options.
        ranges: The offsets that are read.
        columns: The columns that are read; all if None.
        where: The condition of the rows; all rows if None.
        ambient: The clock.
        mode: Whether it returns messages or complete changes.
    """

    declaration: KafkaDeclaration
    ranges: tuple[PartitionRange, ...]
    columns: tuple[str, ...] | None
    where: Condition | None
    ambient: Ambient
    mode: ResultMode = ResultMode.UPSERT

    def __repr__(self) -> str:
        asked = "" if self.columns is None else f", columns={list(self.columns)}"
        return f"KafkaScan({self.declaration.topic!r}, messages={sum(r.end - r.start for r in self.ranges)}{asked})"

    @property
    def schema(self) -> pa.Schema:
        """The requested columns, in their order, and ``_kind``."""
        return asked_schema(self.declaration, self.columns)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields batches of bounded size. The changes of one key are in order, since they are in one partition."""
        for rows in self._changes():
            wanted = rows if self.where is None else rows.filter(_mask(rows, self.where))
            yield from cast_rows(wanted, self.schema).to_batches()

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
    """A table with a connector. Get it from `Store.table`. It can be kept.

    Methods that only managed tables have, such as `compact`, raise `Unsupported` (``connector-table``).
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
        """Raises the error for an attribute that does not exist: `Unsupported` if managed tables have it."""
        if name.startswith("_") or not hasattr(Table, name):
            raise AttributeError(f"KafkaTable has no attribute {name!r}")
        raise Unsupported(
            f"table {self.identifier} has connector = {self.declaration.connector}: it is the topic "
            f"{self.declaration.topic!r}, without files and versions, so it has no {name!r}, which managed tables have",
            code="connector-table",
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow; the fields' metadata says which of them are metadata columns."""
        return self.declaration.columns.to_arrow()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        *,
        options: Mapping[str, str] | None = None,
        mode: Mode = "upsert",
    ) -> KafkaScan:
        """Reads the changes that the topic has now, from the place that ``scan.startup.mode`` chooses.

        Each change has its kind in the column ``_kind``. With ``upsert-kafka`` a message with a value is ``+U``, and
        one without a value is ``-D`` and has only the key's columns. With ``kafka`` the format decides; a format that
        has only rows makes each message ``+I``.

        Args:
            columns: The columns to read; all if None. ``_kind`` is always added as the last one.
            where: A SQL condition or a polars expression; of a ``-D`` only the key's columns are known.
            options: Options ``scan.*`` for this reader, such as ``{"scan.malformed-records": "skip"}``.
            mode: ``"upsert"``: each message. ``"changelog"``: complete changes: an update is the row before it (``-U``)
                and after it (``+U``), a delete has the deleted row, and a new key is ``+I``; messages that change
                nothing are left out. Several messages of a key that are read at once make one change. The state of the
                keys is in a temporary folder during the read.

        Raises:
            NotFound: ``topic-not-found``, ``offset-gone``, or ``unknown-column``.
            InvalidRequest: an invalid option, mode or condition; with ``"changelog"`` ``no-primary-key``.
            Unavailable: the brokers do not answer.
            Corrupt: ``malformed-record``, while the result is read.
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
        mode: Mode = "upsert",
        state: str | PathLike[str] | None = None,
        consumer: str | None = None,
        stop: Stop = None,
        max_rows_per_batch: int | None = None,
    ) -> Generator[pa.RecordBatch]:
        """Yields the changes as `scan` returns them, and then new changes as they arrive, endlessly.

        The call itself decides where the reader begins, not the first batch; `state` and `consumer` keep that place.

        Args:
            columns: The columns to read; all if None. ``_kind`` is always added as the last one.
            options: Options ``scan.*`` for this reader; above all those that choose where it begins.
            mode: As in `scan`.
            state: With ``"changelog"``, a folder for this reader alone. It keeps the state of the keys and the
                reader's position in the topic, so that a restarted reader continues there. The last batch is repeated
                if the reader ended before it requested the next one. Without a folder each reader begins from the
                start.
            consumer: An id of a consumer group, in which the brokers keep the reader's offsets. A restarted reader
                continues there, whatever the options say. The rows of a batch count as read once the next batch is
                requested, so the last batch may be repeated. If the rows of a message fill several batches, the
                message counts as read with the last of them.
            stop: A `threading.Event`, or a function that returns whether to end. The reader still yields what the topic
                has at that time.
            max_rows_per_batch: The largest number of rows in a batch; no limit if None.

        Raises:
            NotFound, InvalidRequest, Unavailable, Corrupt: as `scan`.
            InvalidRequest: ``bad-option-value``; ``state-unused``, ``consumer-unused``: in this mode the other argument
                keeps the position; ``other-state``: the folder belongs to another reader; ``group-in-use``;
                ``bad-consumer-id``.
            NotFound: ``topic-replaced``: the topic was deleted and created again; ``offset-gone``: also if the topic no
                longer has the offset that `consumer` keeps.
            Conflict: ``consumer-taken``, ``other-batch``: another reader uses the same folder.
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
        """Writes rows as messages, in their order; returns the number of messages.

        The hash of its key decides a message's partition, as with Kafka's Java clients. The metadata columns
        ``timestamp`` and ``headers`` are written unless they are VIRTUAL; a nullable column may be left out.

        Args:
            rows: As in `Table.write`. A stream of Arrow is read batch by batch. A column ``_kind`` has the kind of
                each row. With upsert-kafka ``+I`` and ``+U`` are values, ``-D`` is a tombstone, and ``-U`` is left out;
                with kafka the format writes the kind, if it can express it.

        Raises:
            InvalidRequest: rows that do not fit, or a table that can only be read (``read-only-metadata``).
            NotFound: ``topic-not-found``.
            Unavailable: messages were not delivered; with ``sink.semantic = exactly-once`` none of them was, except for
                its subclass `CommitUnknown`.
        """
        target = plan_write(self.declaration.columns, self.declaration.keys).declared
        parts = arrow_parts(rows, target)
        first = _fitted(next(parts), target)  # rows that are not a stream are checked before anything is sent
        pieces = itertools.chain([first], (_fitted(part, target) for part in parts))
        self._topic(self.declaration).partitions()  # a producer would create a missing topic
        return self._writer.write(pieces)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Returns the first offset and the end of each partition, as readers see them; for errors see `scan`."""
        topic = self._topic(self.declaration)
        return {r.partition: (r.start, r.end) for r in topic.ranges(topic.partitions(), _ALL)}

    def detail(self) -> dict[str, Any]:
        """Returns the table's metadata as plain values, without passwords and other secrets."""
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
        yield from cast_rows(pa.Table.from_batches([batch]), schema).to_batches(size)


def _logical(declaration: KafkaDeclaration) -> Schema:
    return Schema(tuple(Column(c.name, c.type) for c in declaration.columns.columns))


def _mask(rows: pa.Table, where: Condition) -> pa.Array:
    frame = pl.from_arrow(rows.select(where.columns))
    assert isinstance(frame, pl.DataFrame)
    return where.wanted(frame).to_arrow()


def _fitted(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """Casts the columns that the table has to its types; the plan refuses other columns."""
    names = rows.column_names
    counts, fields = Counter(names), {field.name: field.with_nullable(True) for field in target}
    fields[KIND_COLUMN] = pa.field(KIND_COLUMN, pa.string())
    columns = [
        fit(column, fields[name]) if name in fields and counts[name] == 1 else column
        for name, column in zip(names, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, names=names)
