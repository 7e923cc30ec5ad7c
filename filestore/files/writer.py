"""Writes sorted rows of one slot to data files (FORMAT.md section 7): each chunk becomes a row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from filestore import layout
from filestore.ambient import Ambient
from filestore.cache.columns import LookupCache
from filestore.contexts import Discarding
from filestore.errors import InvalidRequest
from filestore.files.bloom import can_have_filter
from filestore.files.columns import stored_rows
from filestore.files.sink import ParquetSink
from filestore.files.statistics import StatisticsBuilder
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot
from filestore.rows.fitting import fitted
from filestore.rows.frames import frame_of
from filestore.rows.keys import Key, ascending, encode_key, key_at
from filestore.storage.interface import Storage

__all__ = ["DataWriter", "TableFiles", "encoding_of"]

_ZSTD_LEVEL = 1
_SAMPLE_ROWS = 8192
_FEW_ROWS = 16
_PAGE_BYTES = 512 << 10
_VALUES_AT_ONCE = 1024  # Arrow's default


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The place of a table's files, and how they are written; all modules that touch files need it. Picklable.

    Attributes:
        storage: The storage.
        location: The table's root.
        definition: The schema, keys and options.
        ambient: The source of ids and time.
        cache: What look-ups keep of the files for later ones; None keeps nothing. Each process has its own.
        unsynced: Collects files that `synced_together` will make durable; None: each is made durable on its own.
    """

    storage: Storage
    location: str
    definition: TableDefinition
    ambient: Ambient
    cache: LookupCache | None = field(default=None, compare=False, repr=False)
    unsynced: list[str] | None = field(default=None, compare=False, repr=False)

    def path(self, relative: str) -> str:
        """Returns the whole path of a relative one."""
        return layout.join(self.location, relative)

    def sync(self, relative: str) -> None:
        """Makes a closed file durable, now or at the end of `synced_together`."""
        if self.unsynced is None:
            self.storage.sync(self.path(relative))
        else:
            self.unsynced.append(relative)

    @contextmanager
    def synced_together(self) -> Iterator[TableFiles]:
        """Surrounds a task that writes several files: they are made durable at its end, and not one by one.

        So its files are uploaded side by side, and while it works on the next ones; a local disk flushes many at once.

        Yields:
            The same table, for the writers of these files.

        Raises:
            Unavailable: the storage failed; some of the files may exist.
        """
        together = replace(self, unsynced=[])
        yield together
        self.storage.sync_all([self.path(relative) for relative in together.unsynced or ()])

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a data file: all columns, also partition columns.

        Delta allows partition columns in files but does not require them; polars reads a partition's value only there
        (FORMAT.md section 7).
        """
        return self.definition.schema.to_arrow()


class DataWriter(Discarding):
    """Writes the rows of one slot, which arrive sorted by key, each key once (in append tables: in any order)."""

    def __init__(self, table: TableFiles, slot: Slot, level: int = 0) -> None:
        self._table = table
        self._slot = slot
        self._level = level
        self._schema = table.file_schema
        self._target_bytes: int = table.definition.options["target-file-size"]
        self._open: _OpenFile | None = None
        self._last: Key | None = None
        self._done: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Writes rows as one row group, so callers cut chunks of that size. Ignores columns beyond the schema."""
        if rows.num_rows == 0:
            return
        first, last = self._checked_ends(rows)
        rows = stored_rows(fitted(rows, self._schema), self._table.definition.schema)
        if self._open is None:
            self._open = _OpenFile(self._table, self._slot, rows)
        self._open.write(rows, first, last)
        if self._open.bytes_written >= self._target_bytes:
            self._roll()

    def _checked_ends(self, rows: pa.Table) -> tuple[Key, Key]:
        """Returns the first and the last key; they are empty without a sort key.

        It refuses keys in a wrong order, which look-ups would miss: after a sort by another collation, for example.
        """
        keys = self._table.definition.sort_key
        if not keys:
            return (), ()
        first = key_at(rows, keys, 0)
        if (self._last is not None and not self._last < first) or not ascending(rows, keys).all():
            raise InvalidRequest(
                f"rows of bucket {self._slot.bucket} are not sorted by {', '.join(keys)} in the order of FORMAT.md "
                "section 7, each key once",
                code="unsorted-rows",
            )
        self._last = key_at(rows, keys, rows.num_rows - 1)
        return first, self._last

    @property
    def position(self) -> tuple[int, int]:
        """The position of the next row: the number of finished files, and the row in the open one."""
        return len(self._done), self._open.rows if self._open else 0

    def finish(self) -> tuple[DataFile, ...]:
        """Closes the open file, makes all files durable, and returns them in key order."""
        self._roll()
        for file in self._done:
            self._table.sync(file.path)
        return tuple(self._done)

    def _roll(self) -> None:
        if self._open is not None:
            self._done.append(self._open.close(self._level))
            self._open = None

    def discard(self) -> None:
        """Removes the written files: no version names them."""
        if self._open is not None:
            self._open.discard()
        for file in self._done:
            self._table.storage.delete(self._table.path(file.path))


class _OpenFile:
    """The file that is being written."""

    def __init__(self, table: TableFiles, slot: Slot, first_rows: pa.Table) -> None:
        self._table = table
        self._slot = slot
        self._path = layout.data_path(slot.partition, slot.bucket, table.ambient.new_id())
        measured = [f for f in first_rows.schema if f.name not in table.definition.partition_by]
        self._statistics = StatisticsBuilder(pa.schema(measured))
        self._first: Key = ()
        self._last: Key = ()
        encoding = encoding_of(table.definition, first_rows)
        self._sink = ParquetSink(table.storage, table.path(self._path), first_rows.schema, **encoding)

    @property
    def rows(self) -> int:
        return self._statistics.rows

    @property
    def bytes_written(self) -> int:
        return self._sink.bytes_written

    def write(self, rows: pa.Table, first: Key, last: Key) -> None:
        self._first, self._last = self._first or first, last
        self._statistics.add(rows)
        self._sink.write(rows)

    def close(self, level: int) -> DataFile:
        size = self._sink.close()
        return DataFile(
            path=self._path,
            slot=self._slot,
            size=size,
            rows=self._statistics.rows,
            modified_ms=self._table.ambient.now_ms(),
            stats=self._statistics.to_json(),
            level=level,
            min_key=encode_key(self._first) if self._first else None,
            max_key=encode_key(self._last) if self._last else None,
        )

    def discard(self) -> None:
        self._sink.discard()


def encoding_of(definition: TableDefinition, rows: pa.Table) -> dict[str, object]:
    """Chooses encodings: dictionaries for repeated values, packed deltas for integers and times, plain for the rest.

    Packed deltas take about a byte for each row where values are sorted, and elsewhere no more bits than the values
    need: measured, files are smaller and both written and read faster than with plain values, by every reader.
    """
    first, packed = definition.sort_key[:1], _packed(rows.schema)
    repeating = _repeating(rows, [name for name in first if name in packed])
    compression = definition.options["file.compression"]
    return {
        "compression": compression,
        "compression_level": _ZSTD_LEVEL if compression == "zstd" else None,
        "use_dictionary": repeating or False,
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in packed if name not in repeating} or None,
        "write_page_index": True,
        "data_page_size": _PAGE_BYTES,
        "write_batch_size": _values_at_once(rows),
        "bloom_filter_options": _bloom_filters(definition, rows),
    }


@lru_cache(maxsize=256)
def _packed(schema: pa.Schema) -> tuple[str, ...]:
    """Parquet could take a name with a dot for a field of a STRUCT, which has another type."""
    return tuple(f.name for f in schema if _is_whole(f.type) and "." not in f.name)


def _values_at_once(rows: pa.Table) -> int:
    """Chooses how many values Arrow writes before it looks whether a page is full: a quarter of a page.

    With fewer bytes at once it is faster, too: measured, a column of texts of 64 kB is written in a third of the time.
    """
    if rows.nbytes <= _PAGE_BYTES:
        return _VALUES_AT_ONCE
    widest = max((_bytes_of_value(chunk) for column in rows.columns for chunk in column.chunks), default=0)
    return max(1, min(_VALUES_AT_ONCE, _PAGE_BYTES // (4 * max(widest, 1))))


def _bytes_of_value(values: pa.Array) -> int:
    """Returns the bytes of a text or binary value, about, or of the widest ones in a nested value; else 0."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return int(values.nbytes) // max(1, len(values))
    if pa.types.is_struct(kind):
        return max((_bytes_of_value(values.field(n)) for n in range(kind.num_fields)), default=0)
    if pa.types.is_map(kind):
        return max(_bytes_of_value(values.keys), _bytes_of_value(values.items))
    return _bytes_of_value(values.flatten()) if pa.types.is_list(kind) else 0


def _bloom_filters(definition: TableDefinition, rows: pa.Table) -> dict[str, dict[str, float]] | None:
    """Chooses the columns with a Bloom filter, and sizes it for as many values as the first row group has rows."""
    if not definition.options["file.bloom-filter"]:
        return None
    size = {"ndv": rows.num_rows, "fpp": definition.options["file.bloom-filter.fpp"]}
    columns = [name for name in definition.sort_key if can_have_filter(rows.schema.field(name).type)]
    return {name: size for name in columns if "." not in name} or None  # a dot would stand for a field of a STRUCT


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _repeating(rows: pa.Table, sorted_ones: Sequence[str]) -> list[str]:
    """Returns the columns that repeat values, by a sample, except sorted ones, whose deltas are tiny anyway.

    By default Parquet begins a dictionary for every column and gives up when it is full: measured, that costs a third
    of the time of writing, and the files are a tenth larger. Of few rows nobody would notice, and the sample would take
    longer than they do.
    """
    if rows.num_rows < _FEW_ROWS:
        return []
    sample = rows.take(np.arange(0, rows.num_rows, 1 + rows.num_rows // _SAMPLE_ROWS))
    frame = frame_of(sample.select([n for n in rows.column_names if n not in sorted_ones]))
    scalars = frame.select(~(pl.selectors.nested() | pl.selectors.boolean() | pl.selectors.float()))
    return [column.name for column in scalars if column.n_unique() * 2 < len(column)]
