"""Reads the rows of a version for ``read.format("tablestore")``, and hands rows to Spark in batches and streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from filestore.ambient import Ambient
from filestore.errors import Unsupported
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.scan import plan_scan
from filestore.rows.casting import cast_rows
from filestore.rows.reshape import schema_changed
from filestore.table import FileStore
from tablestore.following.follow import change_schema
from tablestore.following.pieces import ScanPiece, scan_pieces
from tablestore.following.records import RecordReader
from tablestore.spark.opened import opened

__all__ = ["BatchReader", "known_columns", "on_the_wire", "refuse_changes", "wants_changes", "wire_schema"]

_LOOK_BACK = 100  # versions: what may be committed between a query's planning and its start


def wants_changes(options: Mapping[str, str]) -> bool:
    """Returns whether rows have ``_kind``."""
    return options.get("changes", "false").lower() == "true"


@dataclass
class _ScanPartition(InputPartition):
    """Rows of one part of a scan."""

    piece: ScanPiece
    ambient: Ambient
    wanted: Schema

    def rows(self) -> Iterator[pa.Table]:
        return self.piece.rows(RecordReader(None, self.wanted, self.ambient))


class BatchReader(DataSourceReader):
    """All rows of the newest version; prefer `SparkStore.read`, which is a native scan."""

    def __init__(self, options: Mapping[str, str], fields: StructType) -> None:
        self._options = options
        self._fields = fields

    def partitions(self) -> Sequence[InputPartition]:
        """One for each file, or slot with pending runs."""
        store = opened(self._options).filestore
        state, wanted = store.state(), known_columns(store, self._fields)
        table = store.table_files(state)
        pieces = scan_pieces(table, plan_scan(state).parts(), RowKind.INSERT)
        return [_ScanPartition(piece, store.ambient, wanted) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a file, or a slot with pending runs; runs in a task."""
        # Spark replaces an empty list of partitions by one that is no partition
        if isinstance(partition, _ScanPartition):
            schema = wire_schema(partition.wanted, wants_changes(self._options))
            for rows in partition.rows():
                yield from on_the_wire(rows, schema)


def known_columns(store: FileStore, fields: StructType) -> Schema:
    """The columns that a query was planned with.

    The table may have been changed since. So they are looked for in the newest version and in those before it; if no
    version has them, as they were given by hand, the newest version's are meant.
    """
    state = store.state()
    definition, oldest = state.definition, store.delta_log.versions()[0]
    for version in range(state.version, max(oldest, state.version - _LOOK_BACK), -1):
        if _same_columns(definition.schema, fields):
            return definition.schema
        if any("metaData" in action for action in store.required(version).actions):
            if version <= (oldest := store.delta_log.oldest().version):
                break
            definition = store.definition(version - 1)
    return definition.schema if _same_columns(definition.schema, fields) else state.definition.schema


def _same_columns(schema: Schema, fields: StructType) -> bool:
    own = StructType.fromJson(schema.plain().to_delta())
    known = [(f.name, f.dataType.simpleString()) for f in fields if f.name != KIND_COLUMN]
    return known == [(f.name, f.dataType.simpleString()) for f in own]


def wire_schema(wanted: Schema, with_kind: bool) -> pa.Schema:
    """The Arrow schema that Spark expects of a batch, nullability included."""
    schema = wanted.to_arrow()
    return change_schema(schema) if with_kind else schema


def on_the_wire(rows: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Converts rows to batches as Spark takes them. `Unsupported` (``schema-changed``)."""
    try:
        batches: list[pa.RecordBatch] = cast_rows(rows, schema).to_batches()
    except ValueError as error:  # a null in a column that was NOT NULL when the query was planned
        raise schema_changed(str(error)) from error
    return batches


def refuse_changes(rows: pa.Table) -> None:
    """Raises `Unsupported` (``changes-needed``) if the rows are more than inserts."""
    kinds = set(rows.column(KIND_COLUMN).unique().to_pylist())
    if kinds - {str(RowKind.INSERT)}:
        raise Unsupported(
            f"the stream has rows of kind {', '.join(sorted(kinds))} and no column _kind to say so: select '*' and "
            "'_kind' of readStream.table, or set .option('changes', 'true') of format('tablestore')",
            code="changes-needed",
        )
