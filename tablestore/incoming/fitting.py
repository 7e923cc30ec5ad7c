"""Casts columns to the table's types, at any depth and from any layout of Arrow; no cast may change a value."""

from __future__ import annotations

import bisect

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest, Unsupported
from filestore.model.types import canonical, is_moment, to_sql
from filestore.rows.numbers import floats_of_texts
from tablestore.incoming.layouts import Picked, holds_union
from tablestore.incoming.zones import differ_in_zone, zone_advice

__all__ = ["fit"]

_MAX_ELEMENTS = 2**31 - 1
_SHOWN = 80  # characters of a bad value in the message
_EXAMPLES = (
    (pa.types.is_date, "2026-01-31"),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, "2026-01-31 12:00:00Z, with its time zone"),
    (pa.types.is_timestamp, "2026-01-31 12:00:00, without a time zone"),
    (pa.types.is_boolean, "true or false"),
)


class _Unfit(Exception):
    """A part of a column cannot be cast to the table's type; `fit` finds the row."""


def fit(column: pa.ChunkedArray, field: pa.Field, before: int = 0) -> pa.ChunkedArray:
    """Returns a column in the table's type; checks that nested NOT NULL fields have no nulls.

    Args:
        column: The column.
        field: The table's.
        before: The number of rows before these, for errors.

    Raises:
        InvalidRequest: a type that cannot be cast to the column's, a value that does not fit it, or an array whose
            parts contradict each other (``bad-value``); a field that the column lacks (``unknown-column``); an inner
            null (``null-value``).
    """
    given, wanted = column.type, field.type
    if given == wanted and not pa.types.is_nested(wanted):
        return column
    if holds_union(given):
        raise InvalidRequest(
            f"column {field.name!r} is {given}, and a union does not fit {to_sql(wanted)}: choose one of its types",
            code="bad-value",
        )
    chunks: list[pa.Array] = []
    try:
        for chunk in column.chunks:
            chunks.append(_checked(chunk, field))
    except (pa.ArrowException, IndexError, _Unfit) as error:
        why = str(error) if isinstance(error, _Unfit) else "one cannot be cast to the other, so cast it yourself"
        raise _named(column, len(chunks), field, why, before) from error
    return pa.chunked_array(chunks, wanted)


def _checked(chunk: pa.Array, field: pa.Field) -> pa.Array:
    if chunk.type != field.type or pa.types.is_nested(field.type):
        chunk.validate()
    result = _fitted(Picked(chunk), field.type, field.name)
    if pa.types.is_nested(field.type):
        _check_inner_nulls(result, field.name)
    return result


def _fitted(given: Picked, wanted: pa.DataType, path: str) -> pa.Array:
    given = given.unwrapped()
    if given.values.type == wanted:
        return given.values if given.rows is None else given.values.take(given.rows)
    if pa.types.is_null(given.values.type):
        return pa.nulls(len(given), wanted)
    if pa.types.is_struct(wanted):
        return _fitted_struct(given, wanted, path)
    if pa.types.is_list(wanted) or pa.types.is_map(wanted):
        return _fitted_lists(given, wanted, path)
    return _cast(given.plain(), wanted)


def _fitted_lists(given: Picked, wanted: pa.DataType, path: str) -> pa.Array:
    lists = given.lists()
    if lists is None or pa.types.is_map(given.values.type) != pa.types.is_map(wanted):
        raise _Unfit(f"only one of both is a list or a map at {path!r}")
    offsets, elements = lists
    if offsets[-1] > _MAX_ELEMENTS:
        raise InvalidRequest(
            f"column {path!r} has {offsets[-1]} elements in one batch, and an Arrow list has at most "
            f"{_MAX_ELEMENTS}: write fewer rows at once",
            code="bad-value",
        )
    ends, nulls = pa.array(offsets.astype(np.int32)), pa.array(~given.valid())
    if pa.types.is_list(wanted):
        values = _fitted(elements[0], wanted.value_type, f"{path}.element")
        return pa.ListArray.from_arrays(ends, values, type=wanted, mask=nulls)
    keys = _fitted(elements[0], wanted.key_type, f"{path}.key")
    values = _fitted(elements[1], wanted.item_type, f"{path}.value")
    return pa.MapArray.from_arrays(ends, keys, values, type=wanted, mask=nulls)


def _fitted_struct(given: Picked, wanted: pa.StructType, path: str) -> pa.Array:
    kind = given.values.type
    if not pa.types.is_struct(kind):
        raise _Unfit(f"the rows have no struct at {path!r}")
    fields, own = given.fields(), {field.name for field in wanted}
    if len(fields) < kind.num_fields:
        raise InvalidRequest(f"{path!r} is {kind}, with two fields of one name: rename one", code="duplicate-column")
    if unknown := [name for name in fields if name not in own]:
        raise InvalidRequest(
            f"the rows have a field {path}.{unknown[0]!r} that the table lacks; the fields of {path!r} are "
            f"{', '.join(field.name for field in wanted)}",
            code="unknown-column",
        )
    children = [
        _fitted(fields[field.name], field.type, f"{path}.{field.name}")
        if field.name in fields
        else pa.nulls(len(given), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=pa.array(~given.valid()))


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Casts with Arrow, and casts back where Arrow does not refuse a change of values: both must be equal."""
    given = values.type
    if pa.types.is_integer(given) and pa.types.is_decimal(wanted):
        return _decimals(values, wanted)
    if pa.types.is_floating(given) and pa.types.is_decimal(wanted):
        return values.cast(pa.string()).cast(wanted)  # 0.1 is 0.1 in any scale, as Spark and every text have it
    if pa.types.is_decimal(given) and pa.types.is_floating(wanted):
        values = values.cast(pa.string())  # Arrow's own cast is often not the nearest number
    if _is_text(values.type) and pa.types.is_floating(wanted):
        return floats_of_texts(values, wanted)
    _check_meaning(given, wanted)
    result = values.cast(wanted)
    cuts = pa.types.is_timestamp(given) and pa.types.is_date(wanted)
    if pa.types.is_boolean(wanted) and not _is_text(given):
        cuts = True
    if cuts:
        same = pc.equal(result.cast(given), values)
    elif pa.types.is_floating(given) and pa.types.is_floating(wanted):
        same = pc.equal(pc.is_inf(result), pc.is_inf(values))
    else:
        return result
    if pc.index(pc.fill_null(same, True), False).as_py() >= 0:
        raise _Unfit("the cast would change a value")
    return result


def _check_meaning(given: pa.DataType, wanted: pa.DataType) -> None:
    """Refuses casts of Arrow for which it takes for granted what nobody has said."""
    if (is_moment(wanted) and pa.types.is_integer(given)) or (is_moment(given) and pa.types.is_integer(wanted)):
        raise _Unfit("what the number counts is not known (seconds, milliseconds, days), so cast it yourself")
    if differ_in_zone(given, wanted):
        raise _Unfit(zone_advice(wanted))


def _decimals(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Casts integers over a wide decimal: directly Arrow refuses a decimal that does not fit all values of the type."""
    wide = pa.decimal256(20 + wanted.scale, wanted.scale)
    return values.cast(pa.decimal256(20, 0)).cast(wide).cast(wanted)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _named(column: pa.ChunkedArray, whole: int, field: pa.Field, why: str, before: int) -> InvalidRequest:
    """Returns the error that names the first value that does not fit, or the types if not even an empty column fits.

    Args:
        column: The column of the rows.
        whole: The number of its chunks that fit.
        field: The table's column.
        why: The reason if the types alone do not fit.
        before: The number of rows before these.
    """
    chunk, kind = column.chunk(whole), to_sql(field.type)
    if not _fits(chunk.slice(0, 0), field):
        return InvalidRequest(
            f"column {field.name!r} is {kind}, and the rows have {_in_sql(chunk.type)}: {why}", code="bad-value"
        )
    # bisect looks for the first prefix that does not fit, so that a million rows need 20 casts
    place = bisect.bisect_left(range(len(chunk)), True, key=lambda row: not _fits(chunk.slice(0, row + 1), field))
    row = before + sum(map(len, column.chunks[:whole])) + place
    return InvalidRequest(
        f"column {field.name!r} is {kind}, and {_shown(chunk, place)} in row {row} (the first is 0) does not fit: "
        f"{_advice(chunk.type, field.type)}",
        code="bad-value",
    )


def _in_sql(kind: pa.DataType) -> str:
    try:
        return to_sql(canonical(kind))
    except Unsupported:
        return f"Arrow's {kind}"


def _fits(chunk: pa.Array, field: pa.Field) -> bool:
    try:
        _checked(chunk, field)
    except (pa.ArrowException, IndexError, _Unfit):
        return False
    return True


def _shown(chunk: pa.Array, place: int) -> str:
    try:
        chunk.slice(place, 1).validate(full=True)
        value = chunk[place].as_py()
    except (pa.ArrowException, IndexError):
        return "a damaged value"
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _advice(given: pa.DataType, wanted: pa.DataType) -> str:
    if _is_text(given):
        for is_kind, example in _EXAMPLES:
            if is_kind(wanted):
                return f"write it as {example}"
    return "correct it or leave its row out"


def _check_inner_nulls(values: pa.Array, path: str) -> None:
    """Checks elements, map values and struct fields that are NOT NULL, because Arrow does not check them."""
    kind = values.type
    inner: list[tuple[pa.Field, pa.Array]] = []
    if pa.types.is_struct(kind):
        present = values.filter(values.is_valid()) if values.null_count else values
        inner = [(kind.field(number), present.field(number)) for number in range(kind.num_fields)]
    elif (lists := Picked(values).lists()) is not None:
        _, elements = lists
        field = kind.item_field if pa.types.is_map(kind) else kind.value_field
        part = elements[-1]
        inner = [(field, part.values if part.rows is None else part.values.take(part.rows))]
    for field, part in inner:
        if part.null_count and not field.nullable:
            raise InvalidRequest(
                f"{path}.{field.name} is NOT NULL and holds {part.null_count} nulls: filter or fill them",
                code="null-value",
            )
        if pa.types.is_nested(part.type):
            _check_inner_nulls(part, f"{path}.{field.name}")
