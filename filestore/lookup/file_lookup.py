"""Finds keys in data files, and reads rows by position; no other module looks up keys (FORMAT.md section 10).

Probes are chunks of keys in ascending order, and files are sorted. Files and row groups that cannot contain a probe
are not read: files by their first and last key, row groups by the footer's statistics and, for few probes, by Bloom
filters. Then the key columns are read: from Parquet, each row group once, or from the caller's cache, which has
frequently read columns uncompressed with an index. It takes the memory of the key columns of one row group for each
file that the probes have reached and not yet passed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.cache.columns import LookupCache
from filestore.files.bloom import value_hashes
from filestore.files.columns import FileColumns
from filestore.files.dead_rows import DeadRows, dead_rows_of
from filestore.files.parquet import ParquetReader
from filestore.files.row_groups import RowGroups
from filestore.files.rows_at import RowsAt
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.lookup.key_match import (
    HASH,
    ROW,
    bounds_between,
    hash_index,
    index_columns,
    match,
    match_groups,
    one_piece,
)
from filestore.model.files import DataFile
from filestore.rows.frames import arrow_table, frame_of
from filestore.rows.keys import Key, key_at, known_key
from filestore.rows.partitions import with_partition

__all__ = ["FileLookup", "Matches"]

Rows = npt.NDArray[np.int64]

_FEW = 16


@dataclass(frozen=True, slots=True)
class Matches:
    """Live rows of a file whose keys are among the probes.

    Attributes:
        positions: The rows' positions in the file, ascending.
        probes: For each position the row of the probes with the same key.
        values: The extra columns of those rows, if any were requested.
    """

    positions: Rows
    probes: Rows
    values: pa.Table | None


class FileLookup:
    """Looks up keys in one file, with chunks of probes in ascending order.

    Args:
        table: The table.
        file: One of its files.
        extra: Columns of the found rows to return with their positions.
        cache: It keeps columns that are read repeatedly, for faster look-ups.
    """

    def __init__(
        self, table: TableFiles, file: DataFile, extra: Sequence[str] = (), cache: LookupCache | None = None
    ) -> None:
        self._table = table
        self._file = file
        self._keys = table.definition.sort_key
        self._extra = tuple(extra)
        self._cache = cache
        self._name = (table.path(file.path), None if cache is None else cache.generation(table.definition.schema))
        self._parquet: ParquetReader | None = None
        self._groups: RowGroups | None = None
        self._columns: FileColumns | None = None
        self._held: dict[tuple[str, ...], Mapping[str, pa.ChunkedArray]] = {}
        self._starts: Rows = np.empty(0, dtype=np.int64)
        self._group: tuple[int, pa.Table] | None = None
        self._dead: DeadRows | None = None

    # A write has a look-up for each file of a slot, most of which hold none of its keys: they need their bounds alone.

    @cached_property
    def _schema(self) -> pa.Schema:
        return self._table.definition.schema.to_arrow()

    @cached_property
    def _index(self) -> Sequence[str]:
        return index_columns(self._schema, self._keys)

    @cached_property
    def _lowest(self) -> Key | None:
        return self._decoded_key(self._file.min_key)

    @cached_property
    def _highest(self) -> Key | None:
        return self._decoded_key(self._file.max_key)

    def _decoded_key(self, key: str | None) -> Key | None:
        columns = self._table.definition.schema
        return None if key is None else known_key(key, tuple(columns.column(name).type for name in self._keys))

    @property
    def holds_file(self) -> bool:
        """Returns whether the file is open."""
        return self._parquet is not None

    def find(self, probes: pa.Table) -> Iterator[Matches]:
        """Returns the matches of a sorted chunk of unique keys, by row group."""
        low, high = key_at(probes, self._keys, 0), key_at(probes, self._keys, probes.num_rows - 1)
        if self._highest is not None and self._highest < low:
            self.close()  # probes ascend
        if not self._overlaps(low, high):
            return
        index = None if self.holds_file else self._cached(self._index)  # a look-up begun in Parquet continues there
        found = self._in_parquet(probes) if index is None else self._in_cache(index, probes)
        for rows, probe, values in found:
            yield Matches(rows, probe, values)

    def _overlaps(self, low: Key, high: Key) -> bool:
        return (self._lowest is None or self._lowest <= high) and (self._highest is None or low <= self._highest)

    def rows_at(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Reads the rows at ascending positions, live or deleted: columns in that order, with the table's types.

        It takes the memory of the result, and from Parquet of a row group of those columns.
        """
        if (taken := self._taken(rows, columns)) is not None:
            return taken
        schema = self._schema_of(columns)
        frames = [arrow_table(frame, schema) for frame in self._decoded(rows, columns)]
        return pa.concat_tables([schema.empty_table(), *frames])

    def rows_where(self, condition: pl.Expr) -> Rows:
        """Returns the ascending positions of the live rows for which a condition is true.

        It takes the memory of the condition's columns in one row group, and of the result.

        Args:
            condition: It is evaluated for deleted rows, too, so it must not fail for any value of its columns.
        """
        named = set(condition.meta.root_names())
        columns = [name for name in self._schema.names if name in named]
        parts = [np.empty(0, dtype=np.int64)]
        for start, frame in self._frames(columns):
            wanted = frame.select(condition.fill_null(False).alias("wanted")).to_series()
            parts.append(start + np.flatnonzero(wanted.to_numpy()))
        rows = np.concatenate(parts)
        return rows[self._alive(rows)]

    def frame_at(self, rows: Rows, columns: Sequence[str]) -> pl.DataFrame:
        """Returns what `rows_at` does, as a polars frame. It needs a position, and need not copy decoded columns."""
        if (taken := self._taken(rows, columns)) is not None:
            return frame_of(taken)
        return pl.concat(self._decoded(rows, columns))

    def _frames(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yields all rows of some columns, live or deleted, in order, each piece with the position of its first row."""
        start, stored = 0, self._stored(columns)
        if stored and (cached := self._cached(stored)) is not None:
            for chunks in zip(*(cached[name].chunks for name in stored), strict=True):
                rows = self._with_partition(pa.table(list(chunks), names=stored), columns)
                yield start, frame_of(rows)
                start += rows.num_rows
            return
        self._charge(stored, self._file.rows)
        groups = RowGroups(self._table, self._file)
        for group in range(len(groups)):
            yield start, groups.read(group, columns, groups.every_row(group))
            start += groups.rows(group)

    def _taken(self, rows: Rows, columns: Sequence[str]) -> pa.Table | None:
        """Reads the rows from the cache, if it has them."""
        stored = self._stored(columns)
        if not stored or (cached := self._cached(stored)) is None:
            return None
        return self._with_partition(_taken(cached, rows), columns)

    def _with_partition(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        partition = tuple((name, text) for name, text in self._file.slot.partition if name in columns)
        return with_partition(rows, partition, self._schema_of(columns))

    def _decoded(self, rows: Rows, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        if self._groups is None:
            self._groups = RowGroups(self._table, self._file)
        wanted = RowsAt(self._groups, rows, columns)
        for name, read in wanted.rows_read().items():
            self._charge([name], read)
        return wanted.frames()

    def _stored(self, columns: Sequence[str]) -> list[str]:
        """The columns that are not partition columns."""
        return [name for name in columns if name not in dict(self._file.slot.partition)]

    def close(self) -> None:
        """Closes the file; it is opened again when it is needed."""
        if self._parquet is not None:
            self._parquet.close()
        self._parquet = self._group = self._groups = self._dead = None
        self._held.clear()

    # -------------------------------------------------------------------------------------------- from Parquet

    def _in_parquet(self, probes: pa.Table) -> Iterator[tuple[Rows, Rows, pa.Table | None]]:
        near = list(self._near(probes))
        self._fetch(group for group, _, _ in near)
        for group, start, end in near:
            rows = self._read(group)
            found, probe = match(rows, probes.slice(start, end - start), self._keys)
            alive = self._alive(found + self._starts[group])
            found, probe = found[alive], probe[alive]
            if len(found):
                values = rows.select(self._extra).take(pa.array(found)) if self._extra else None
                yield found + self._starts[group], probe + start, values

    def _near(self, probes: pa.Table) -> Iterator[tuple[int, int, int]]:
        """Yields row groups, each with the range of probes that it may contain."""
        footer = self._open().footer
        column = self._open().leaf(self._keys[0])
        for group in range(footer.num_row_groups):
            bounds = footer.row_group(group).column(column).statistics
            known = bounds is not None and bounds.has_min_max
            low, high = ((bounds.min,), (bounds.max,)) if known else (None, None)
            start, end = bounds_between(probes, self._keys, low, high)
            if start < end and self._passes(group, probes.slice(start, end - start)):
                yield group, start, end

    def _fetch(self, groups: Iterable[int]) -> None:
        """Fetches the key columns of row groups side by side; all but the last one of the probes before are new."""
        wanted = [group for group in groups if self._group is None or self._group[0] != group]
        if wanted:
            self._open().fetch(wanted, [self._in_file(name) for name in dict.fromkeys((*self._keys, *self._extra))])

    def _in_file(self, name: str) -> str:
        """The name of a column in files."""
        return self._table.definition.schema.column(name).in_files

    def _passes(self, group: int, probes: pa.Table) -> bool:
        """Returns whether the row group may contain a probe by its Bloom filters; with many probes it surely may."""
        if probes.num_rows > _FEW:
            return True
        parquet, possible = self._open(), np.ones(probes.num_rows, dtype=np.bool_)
        for name in self._keys:
            leaf = parquet.leaf(name)
            if (bloom := parquet.bloom_filter(group, leaf)) is None:
                continue
            hashes = value_hashes(one_piece(probes.column(name)), parquet.schema.column(leaf))
            if hashes is not None:
                possible &= bloom.may_hold(hashes)
        return bool(possible.any())

    def _open(self) -> ParquetReader:
        if self._parquet is None:
            self._parquet = ParquetReader(self._table.storage, self._table.path(self._file.path))
            self._starts = np.concatenate([[0], np.cumsum(self._parquet.group_rows)]).astype(np.int64)
        return self._parquet

    def _read(self, group: int) -> pa.Table:
        if self._group is None or self._group[0] != group:
            columns = list(dict.fromkeys((*self._keys, *self._extra)))
            parquet = self._open()
            if self._columns is None:
                self._columns = FileColumns.of(self._table.definition.schema, parquet)
            self._group = (group, self._columns.read(parquet, group, columns))
            self._charge(dict.fromkeys((*self._index, *self._extra)), self._group[1].num_rows)
        return self._group[1]

    def _alive(self, rows: Rows) -> npt.NDArray[np.bool_]:
        if self._dead is None:
            self._dead = dead_rows_of(self._table, self._file)
        return self._dead.alive(rows)

    # ------------------------------------------------------------------------------------------ from the cache

    def _in_cache(
        self, index: Mapping[str, pa.ChunkedArray], probes: pa.Table
    ) -> Iterator[tuple[Rows, Rows, pa.Table | None]]:
        """Returns all matches together: the cache's columns are memory-mapped, so they take no memory."""
        none = np.empty(0, dtype=np.int64)
        parts = [(none, none), *match_groups(index, probes, self._keys)]
        found, probe = (np.concatenate(part) for part in zip(*parts, strict=True))
        alive = self._alive(found)
        found, probe = found[alive], probe[alive]
        if len(found):
            yield found, probe, self.rows_at(found, self._extra) if self._extra else None

    def _schema_of(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self._schema.field(name) for name in columns])

    def _cached(self, names: Sequence[str]) -> Mapping[str, pa.ChunkedArray] | None:
        """Asks the cache once for each file: many chunks that read a file together count as one use of it."""
        if self._cache is None:
            return None
        if (known := tuple(names)) not in self._held:
            self._held[known] = self._cache.columns(self._name, names, self._file.rows, self._copied)
        return self._held[known] or None

    def _charge(self, names: Iterable[str], rows: int) -> None:
        if self._cache is not None:
            self._cache.charge(self._name, names, rows)

    def _copied(self, names: Sequence[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Reads columns of the file as the cache stores them, with those of the index."""
        derived = [name for name in names if name in (HASH, ROW)]
        stored = [name for name in names if name not in derived]
        read = list(dict.fromkeys([*stored, *(self._keys if derived else ())]))
        schema = self._schema_of(read)
        types = {HASH: pa.uint64(), ROW: pa.int32()}
        fields = [pa.field(n, types[n]) if n in types else schema.field(n) for n in names]
        return pa.schema(fields), self._batches(pa.schema(fields), schema, bool(derived))

    def _batches(self, wanted: pa.Schema, stored: pa.Schema, indexed: bool) -> Iterator[pa.RecordBatch]:
        groups = RowGroups(self._table, self._file)
        for group in range(len(groups)):
            rows = arrow_table(groups.read(group, stored.names, groups.every_row(group)), stored).combine_chunks()
            columns = dict(zip(rows.column_names, rows.columns, strict=True))
            if indexed:
                index = hash_index(rows, self._keys)
                columns |= dict(zip(index.schema.names, index.columns, strict=True))
            arrays = [columns[name] for name in wanted.names]
            yield pa.record_batch([a.chunk(0) if isinstance(a, pa.ChunkedArray) else a for a in arrays], schema=wanted)


def _taken(columns: Mapping[str, pa.ChunkedArray], rows: Rows) -> pa.Table:
    """Takes the rows at ascending positions chunk by chunk, since Arrow's `take` would concatenate the chunks first."""
    sizes = [len(chunk) for chunk in next(iter(columns.values())).chunks]
    cuts = np.searchsorted(rows, np.cumsum([0, *sizes])).tolist()
    starts = np.cumsum([0, *sizes]).tolist()
    inside = [
        (number, pa.array(rows[start:end] - starts[number]))
        for number, (start, end) in enumerate(itertools.pairwise(cuts))
        if start < end
    ]
    return pa.table(
        {
            name: pa.chunked_array([column.chunk(number).take(at) for number, at in inside], column.type)
            for name, column in columns.items()
        }
    )
