"""Checks each live file against the Delta log: bytes, rows, order, place, bounds, vector (FORMAT.md section 12.2).

It reads row group by row group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.checks.damage import damage_of, is_checksum
from filestore.checks.filters import check_filters
from filestore.checks.hidden import HiddenValues
from filestore.checks.report import Findings, Invariant, cause_of
from filestore.delta.vectors import positions
from filestore.errors import Corrupt, NotFound, Unsupported
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.model.schema import Schema
from filestore.rows.bucketing import bucket_of
from filestore.rows.keys import Key, ascending, decode_key, encode_key, key_at
from filestore.rows.partitions import with_partition

__all__ = ["check_file"]

_REMEDY = "restore it from a copy, or roll the table back to a version that does not need it"


def check_file(table: TableFiles, file: DataFile, findings: Findings, written: Schema | None = None) -> bool:
    """Checks one file; returns whether its live keys can be read, for the check that they are unique.

    Args:
        table: The table.
        file: One of its files.
        findings: It collects the problems.
        written: The table's columns when the file was added; None if they are not known any more.
    """
    sound = _check_vector(table, file, findings)
    try:
        with ParquetReader(table.storage, table.path(file.path)) as parquet:
            if parquet.size != file.size:
                message = f"{file.path} has {parquet.size} bytes, the log says {file.size}"
                findings.add(Invariant.FILE_SIZE, message, file.path)
            if (damage := damage_of(parquet)) is not None:
                findings.add(Invariant.CHECKSUM, f"{file.path} {damage}: {_REMEDY}", file.path)
                return False
            readable = _FileCheck(table, file, findings, written).run(parquet)
        if readable:
            check_filters(table, file, findings)
        return readable and sound
    except NotFound:
        findings.add(Invariant.FILE_MISSING, f"{file.path} is in the table, but not on storage", file.path)
    except Corrupt as error:
        code = Invariant.CHECKSUM if is_checksum(error) else Invariant.FILE_UNREADABLE
        findings.add(code, f"{file.path} is not readable Parquet ({cause_of(error)}): {_REMEDY}", file.path)
    return False


def _check_vector(table: TableFiles, file: DataFile, findings: Findings) -> bool:
    try:
        dead = positions(table.storage, table.location, file.vector, version=True)
    except (Corrupt, NotFound, Unsupported, ValueError) as error:
        findings.add(Invariant.VECTOR, f"the deletion vector of {file.path}: {error}", file.path)
        return False
    if file.vector is not None and not len(dead):
        findings.add(Invariant.VECTOR, f"{file.path} has a deletion vector without rows", file.path)
    if len(dead) and dead[-1] >= file.rows:
        message = f"{file.path} has {file.rows} rows and its deletion vector names row {dead[-1]}"
        findings.add(Invariant.VECTOR, message, file.path)
        return False
    if len(dead) == file.rows:
        findings.add(Invariant.DEAD_FILE, f"{file.path} has no live row and could be removed", file.path)
    return True


class _FileCheck:
    """Checks the rows of one file."""

    def __init__(self, table: TableFiles, file: DataFile, findings: Findings, written: Schema | None) -> None:
        self._table = table
        self._file = file
        self._findings = findings
        self._keys = table.definition.sort_key
        self._last: Key | None = None
        self._first: Key | None = None
        self._rows = 0
        self._nulls: dict[str, int] = {}
        self._written = written
        self._claims = _Claims({}, "{}")

    def run(self, parquet: ParquetReader) -> bool:
        """Checks the file; returns whether the key columns are correct."""
        stored = {f.name: f.type for f in parquet.arrow_schema}
        wanted = self._wanted(stored)
        try:
            self._claims = _Claims(wanted, self._file.stats)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            self._wrong(Invariant.STATISTICS, f"has statistics that cannot be read ({error!r}): {self._file.stats}")
        self._check_schema(stored, wanted)
        good = [name for name in stored if stored[name] == wanted.get(name)]
        hidden = HiddenValues(parquet)
        for group, rows in _groups(parquet, good):
            self._rows += rows.num_rows
            for what in hidden.found(group, rows):
                self._wrong(Invariant.HIDDEN_VALUE, f"has {what}: a full compaction writes the file anew")
            self._check_place(rows)
            self._check_order(rows)
            self._check_values(rows)
        self._check_counts()
        return set(self._keys) <= set(good)

    def _wanted(self, stored: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The columns that the file must have: those of its own version, or those that the table's past allows."""
        if self._written is not None:
            return {column.in_files: column.type for column in self._written}
        schema = self._table.definition.schema
        wanted = dict(stored) if schema.mapped else {}  # it may have columns that were dropped later
        for column in schema:
            found = stored.get(column.in_files)
            if found in column.former_types:
                wanted[column.in_files] = found
            elif found is not None or not column.nullable:
                wanted[column.in_files] = column.type
        return wanted

    def _wrong(self, code: Invariant, what: str) -> None:
        self._findings.add(code, f"{self._file.path} {what}", self._file.path)

    def _check_schema(self, found: Mapping[str, pa.DataType], wanted: Mapping[str, pa.DataType]) -> None:
        if found != wanted:
            differing = sorted(n for n in {*wanted, *found} if wanted.get(n) != found.get(n))
            self._wrong(
                Invariant.FILE_SCHEMA,
                f"has column {differing[0]!r} as {found.get(differing[0])}, the table as {wanted.get(differing[0])}",
            )

    def _check_place(self, rows: pa.Table) -> None:
        definition, slot = self._table.definition, self._file.slot
        # only these columns have the same names in all files
        placing = {*definition.partition_by, *(definition.bucket_key if definition.buckets > 1 else ())}
        schema = pa.schema([field for field in definition.schema.to_arrow() if field.name in placing])
        rows = rows.select([name for name in schema.names if name in rows.column_names])
        try:
            whole = with_partition(rows, slot.partition, schema)
        except (ValueError, TypeError, ArithmeticError) as error:
            self._wrong(Invariant.PARTITION, f"has partition values {dict(slot.partition)}: {error}")
            return
        for name in definition.partition_by:
            if name in rows.column_names and not rows.column(name).equals(whole.column(name)):
                self._wrong(Invariant.PARTITION, f"is of partition {dict(slot.partition)} and contains other {name!r}")
        if definition.buckets == 1 or not set(definition.bucket_key) <= set(whole.column_names):
            return  # all rows are in bucket 0, or the check of the schema reports what is wrong
        buckets = bucket_of(whole, definition.bucket_key, definition.buckets)
        wrong = np.flatnonzero(buckets != slot.bucket)
        if len(wrong):
            key = encode_key(key_at(whole, definition.bucket_key, int(wrong[0])))
            self._wrong(
                Invariant.BUCKET, f"is of bucket {slot.bucket} and contains {key} of bucket {buckets[wrong[0]]}"
            )

    def _check_order(self, rows: pa.Table) -> None:
        if not self._keys or not set(self._keys) <= set(rows.column_names):
            return
        keys = rows.select(self._keys)
        wrong = np.flatnonzero(~ascending(keys, self._keys))
        if len(wrong):
            at, after = (encode_key(key_at(keys, self._keys, int(wrong[0]) + n)) for n in (0, 1))
            self._wrong(Invariant.ROW_ORDER, f"has key {after} after key {at}")
        first = key_at(keys, self._keys, 0)
        if self._last is not None and not self._last < first:
            self._wrong(Invariant.ROW_ORDER, f"has key {encode_key(first)} after key {encode_key(self._last)}")
        self._first = self._first or first
        self._last = key_at(keys, self._keys, rows.num_rows - 1)

    def _check_values(self, rows: pa.Table) -> None:
        for name in rows.column_names:
            column = rows.column(name)
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if not _is_text(column):
                self._wrong(Invariant.TEXT, f"has a text in column {name!r} that is not UTF-8")
                continue
            if (broken := self._claims.broken_by(name, column)) is not None:
                self._wrong(Invariant.STATISTICS, f"has {broken}")

    def _check_counts(self) -> None:
        if self._rows != self._file.rows:
            self._wrong(Invariant.ROW_COUNT, f"has {self._rows} rows, the log says {self._file.rows}")
        for column in self._table.definition.schema:
            if not column.nullable and (nulls := self._nulls.get(column.in_files, 0)):
                self._wrong(Invariant.NOT_NULL, f"has {nulls} nulls in column {column.name!r}")
        for name, claimed in self._claims.nulls.items():
            if self._file.vector is None and claimed != self._nulls.get(name):
                self._wrong(
                    Invariant.STATISTICS,
                    f"has {self._nulls.get(name)} nulls in column {name!r}, its statistics say {claimed}",
                )
        if self._keys:
            self._check_bounds()

    def _check_bounds(self) -> None:
        types = [self._table.definition.schema.column(name).type for name in self._keys]
        for name, text, key in (
            ("minKey", self._file.min_key, self._first),
            ("maxKey", self._file.max_key, self._last),
        ):
            try:
                tagged = None if text is None else decode_key(text, types)
            except Corrupt:
                tagged = None
            if tagged != key:
                found = None if key is None else encode_key(key)
                self._wrong(Invariant.KEY_BOUNDS, f"is tagged with {name} {text} and has {found}")


def _is_text(column: pa.ChunkedArray) -> bool:
    """Returns whether all texts in a column are UTF-8."""
    try:
        for chunk in column.chunks:
            chunk.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


class _Claims:
    """The claims of a file's statistics."""

    def __init__(self, types: Mapping[str, pa.DataType], stats: str) -> None:
        parsed = json.loads(stats, parse_float=Decimal)
        self.nulls: dict[str, int] = parsed.get("nullCount", {})
        self._low = {n: _value(v, types[n]) for n, v in parsed.get("minValues", {}).items()}
        self._high = {n: _value(v, types[n]) for n, v in parsed.get("maxValues", {}).items()}

    def broken_by(self, name: str, column: pa.ChunkedArray) -> str | None:
        """Describes how a column's values contradict the claims; None if they do not."""
        low, high = self._low.get(name), self._high.get(name)
        if low is None and high is None:
            return None
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            return f"a NaN in column {name!r}, and bounds for it"
        bounds = pc.min_max(column).as_py()
        if bounds["min"] is not None and low is not None and bounds["min"] < low:
            return f"{bounds['min']!r} in column {name!r}, below the minimum {low!r} of its statistics"
        if bounds["max"] is not None and high is not None and bounds["max"] > high:
            return f"{bounds['max']!r} in column {name!r}, above the maximum {high!r} of its statistics"
        return None


def _value(claimed: Any, kind: pa.DataType) -> Any:
    """Converts a bound to a value that compares with the column's; raises if it is invalid."""
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(claimed)
        return moment.astimezone(UTC) if kind.tz else moment
    if pa.types.is_date32(kind):
        return date.fromisoformat(claimed)
    if pa.types.is_decimal(kind):
        return Decimal(claimed)
    wanted = str if pa.types.is_string(kind) else (int, Decimal)
    if not isinstance(claimed, wanted):
        raise TypeError(f"{claimed!r} is not a {kind}")
    return float(claimed) if pa.types.is_floating(kind) else claimed


def _groups(parquet: ParquetReader, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    for group in range(len(parquet.group_rows)):
        rows = parquet.read(group).select(columns)
        if rows.num_rows:
            yield group, rows
