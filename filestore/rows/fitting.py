"""Checks rows before they are written, and their row kinds (FORMAT.md section 9)."""

from __future__ import annotations

from datetime import date
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.files import Slot
from filestore.model.merging import Deletes
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.types import contains_type
from filestore.rows.casting import cast_rows
from filestore.rows.partitions import partition_column
from filestore.rows.slices import slices

__all__ = [
    "accepted",
    "adding",
    "check_utf8",
    "checked",
    "compensation",
    "fitted",
    "kinds_by",
    "named_kinds",
    "place_columns",
    "putting",
]

_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _END_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days + 1
_DAY_US = 86_400_000_000


@cache
def _adding_kinds() -> pa.Array:
    return pa.array([str(kind) for kind in RowKind if kind.adds])


@cache
def _kinds() -> pa.Array:
    """A function and not a constant: pyarrow imports pandas with the first array, which takes a second."""
    return pa.array([str(kind) for kind in RowKind])


def adding(rows: pa.Table) -> pa.ChunkedArray:
    """Marks the rows that add a row (``+I``, ``+U``), and not those that remove one (``-U``, ``-D``)."""
    return pc.is_in(rows.column(KIND_COLUMN), value_set=_adding_kinds())


def putting(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Marks the rows that add a row; rows without a kind do."""
    if KIND_COLUMN not in rows.column_names:
        return np.ones(rows.num_rows, dtype=np.bool_)
    return np.asarray(adding(rows))


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows with exactly the columns and types of a schema.

    Raises:
        InvalidRequest: a value does not fit, or a column or a field of one is NOT NULL and has a null.
    """
    try:
        return cast_rows(rows, schema)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"the rows do not fit the table's types: {error}", code="bad-value") from error


def named_kinds(rows: pa.Table, known: npt.NDArray[np.bool_]) -> pa.Table:
    """Returns the rows with a `KIND_COLUMN`: as given, or ``+U`` if the key is stored already and ``+I`` otherwise."""
    if KIND_COLUMN in rows.column_names:
        return rows
    update, insert = str(RowKind.UPDATE_AFTER), str(RowKind.INSERT)
    kinds = pc.if_else(pa.array(known), update, insert) if known.any() else pa.repeat(insert, len(known))
    return rows.append_column(KIND_COLUMN, kinds)


def kinds_by(known: npt.NDArray[np.bool_], rows: pa.Table, puts: npt.NDArray[np.bool_]) -> pa.Table:
    """Returns the rows with the kinds that follow from the stored keys, and not those that were given."""
    named = named_kinds(rows.select([name for name in rows.column_names if name != KIND_COLUMN]), known)
    kinds = pc.if_else(pa.array(puts), named.column(KIND_COLUMN), str(RowKind.DELETE))
    return named.set_column(named.num_columns - 1, KIND_COLUMN, kinds)


def compensation(rows: pa.Table, slot: Slot, definition: TableDefinition, kind: RowKind) -> pa.Table:
    """Makes complete changes for the log from a slot's rows: adds missing columns (a delete's, the partition's)."""
    values, own = dict(slot.partition), set(rows.column_names)
    columns = {
        column.name: partition_column(values[column.name], column.type, rows.num_rows)
        if column.name in values
        else rows.column(column.name)
        if column.name in own
        else pa.nulls(rows.num_rows, column.type)
        for column in definition.schema
    }
    return pa.table(columns | {KIND_COLUMN: pa.repeat(str(kind), rows.num_rows)})


def accepted(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Returns `checked` rows, without deletes if the table ignores these."""
    rows = checked(rows, definition)
    if KIND_COLUMN in rows.column_names and definition.merging.deletes is Deletes.IGNORE:
        return rows.filter(adding(rows))
    return rows


def place_columns(definition: TableDefinition) -> set[str]:
    """Returns the columns that determine a row's place: its partition, its bucket, and its order among others."""
    sequence = () if definition.sequence_field is None else (definition.sequence_field,)
    return {*definition.partition_by, *definition.bucket_key, *definition.sort_key, *sequence}


def checked(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Checks that rows may be written, and returns them unchanged.

    Raises:
        InvalidRequest: a column is missing, or one that determines a row's place has another type; a row kind does not
            exist; a delete for a table without a key; a null in a key or in a NOT NULL column (deletes need only their
            key); a day or time that Spark cannot show; a text that is not UTF-8.
    """
    _check_columns(rows, definition)
    required = [c.name for c in definition.schema if not c.nullable]
    kinds = rows.column(KIND_COLUMN) if KIND_COLUMN in rows.column_names else None
    if kinds is not None:
        _check_kinds(rows.column(KIND_COLUMN), definition)
    for name in required:
        column = rows.column(name)
        if not column.null_count:
            continue
        if name in definition.primary_key:
            raise InvalidRequest(
                f"primary key column {name!r} contains {column.null_count} nulls: filter or fill them",
                code="null-key",
            )
        if kinds is not None:
            column = column.filter(adding(rows))
        if column.null_count:
            raise InvalidRequest(
                f"column {name!r} is NOT NULL and contains {column.null_count} nulls: filter or fill them",
                code="null-value",
            )
    return rows


def _check_columns(rows: pa.Table, definition: TableDefinition) -> None:
    placing = place_columns(definition)
    own = set(rows.column_names)
    for column in definition.schema:
        if column.name not in own:
            raise InvalidRequest(f"the rows lack the column {column.name!r}", code="missing-column")
        values = rows.column(column.name)
        if column.name in placing and values.type != column.type:
            raise InvalidRequest(
                f"column {column.name!r} is {column.type} and the rows have {values.type}: cast them",
                code="bad-type",
            )
        _check_range(column.name, values)
        check_utf8(column.name, values)


def check_utf8(name: str, values: pa.ChunkedArray) -> None:
    """Refuses texts that are not UTF-8: Spark takes any bytes as text, but other readers refuse the whole file then.

    Raises:
        InvalidRequest: ``bad-value``: the column contains such a text.
    """
    if not contains_type(values.type, lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return
    try:
        for chunk in values.chunks:
            if not _is_ascii(chunk):
                chunk.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            f"column {name!r} contains a text that is not UTF-8 ({error}): decode it with its own character set, or "
            "make the column BINARY",
            code="bad-value",
        ) from error


def _is_ascii(values: pa.Array) -> bool:
    """Returns whether all texts are surely ASCII: that takes a quarter of the time of checking each text."""
    if not pa.types.is_string(values.type) or not len(values):
        return False
    content, starts, lengths = slices(values)
    return bool(content[starts[0] : starts[-1] + lengths[-1]].max(initial=0) < 0x80)


def _check_range(name: str, values: pa.ChunkedArray) -> None:
    """Refuses days and times outside of the years 1 to 9999, the range of Spark, SQL and Python."""
    if pa.types.is_date32(values.type):
        unit, numbers = 1, values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type) and values.type.unit == "us":
        unit, numbers = _DAY_US, values.cast(pa.int64())
    else:
        return
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or _FIRST_DAY * unit <= bounds["min"] <= bounds["max"] < _END_DAY * unit:
        return
    wrong = bounds["max"] if bounds["max"] >= _END_DAY * unit else bounds["min"]
    raise InvalidRequest(
        f"column {name!r} contains a value {wrong} {'days' if unit == 1 else 'microseconds'} from 1970, which is "
        "outside of the years 1 to 9999: filter it out or replace it",
        code="out-of-range",
    )


def _check_kinds(kinds: pa.ChunkedArray, definition: TableDefinition) -> None:
    if kinds.null_count or not pc.all(pc.is_in(kinds, value_set=_kinds()), min_count=0).as_py():
        given = {"null" if kind is None else repr(kind) for kind in pc.unique(kinds).to_pylist()}
        found = sorted(given - {repr(kind) for kind in _kinds().to_pylist()})
        raise InvalidRequest(
            f"column {KIND_COLUMN!r} contains {found[0]} in some row; give each row one of +I, -U, +U and -D",
            code="bad-row-kind",
        )
    inserts = pc.is_in(kinds, value_set=_adding_kinds()[:1])
    if not definition.primary_key and not pc.all(inserts, min_count=0).as_py():
        raise InvalidRequest(
            "the table has no primary key, so its rows can only be inserted (+I): an update or delete has no key",
            code="no-primary-key",
        )
