"""Converts rows of any supported kind to Arrow: frames, lists of dicts, streams."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.lazily import pl
from filestore.model.types import to_sql
from tablestore.incoming.zones import check_zones

__all__ = ["Rows", "array_of", "arrow_parts", "arrow_rows", "is_table"]


_QUERY_ROWS = 1 << 17


@runtime_checkable
class ArrowStream(Protocol):
    """An object with Arrow's C stream interface: DuckDB's relations, pandas frames, nanoarrow, arro3."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns a capsule with a stream of record batches."""


@runtime_checkable
class ArrowArray(Protocol):
    """An object that is one record batch, with Arrow's C data interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        """Returns capsules with a schema and a struct array."""


@runtime_checkable
class BatchSource(Protocol):
    """A read of a table, or a dataset of Arrow. Its errors stay what they are; of Arrow's streams they are texts."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time."""


Rows: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | pl.DataFrame | pl.LazyFrame"
    " | BatchSource | ArrowStream | ArrowArray | Sequence[Mapping[str, Any]]"
)
"""Rows as Arrow, polars, a pandas frame, a list of dicts, or anything with Arrow's C stream or array interface."""


def is_table(rows: object) -> bool:
    """Returns whether an object has rows with named columns; a list of dicts does not count."""
    return isinstance(rows, ArrowStream | ArrowArray) or _is_query(rows) or _is_pandas(rows)


def arrow_rows(rows: Rows, schema: pa.Schema) -> pa.Table:
    """Returns the rows as Arrow. A stream that can be read only once is consumed.

    Args:
        rows: The rows. The levels of a pandas index that have names are columns, as Arrow has them; what pandas takes
            for missing (NaN, NaT, None, NA) is null; NaN in its nullable and Arrow types stays. A key that some dicts
            lack is null there.
        schema: The columns that they are written to: Python values do not always determine their types.

    Raises:
        InvalidRequest: ``bad-rows``: an object of another kind; ``bad-value``: Python values that do not make an Arrow
            column.
    """
    return pa.concat_tables(list(arrow_parts(rows, schema)))


def arrow_parts(rows: Rows, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields the rows as Arrow, a stream batch by batch; there is at least one part.

    Rows that are not a stream are checked by the call, not by the first part.
    """
    if isinstance(rows, pa.Table):
        return iter([rows])
    if isinstance(rows, pa.RecordBatch):
        return iter([pa.Table.from_batches([rows])])
    if _is_query(rows):
        return _from_query(rows)
    if _is_frame(rows):
        return iter([_from_polars(rows)])
    if _is_pandas(rows):
        return iter([_from_pandas(rows, schema)])
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return iter([_from_dicts(rows, schema)])
    if isinstance(rows, BatchSource):
        return _from_batches(rows.schema, rows.to_batches())
    if isinstance(rows, ArrowStream | ArrowArray):
        opened = _opened(rows)
        return _from_batches(opened.schema, opened)
    raise InvalidRequest(
        f"cannot write a {type(rows).__name__}: pass an Arrow table, a polars or pandas frame, a list of dicts, or "
        "something with the method __arrow_c_stream__",
        code="bad-rows",
    )


def array_of(values: Any, name: str, field: pa.Field | None) -> pa.ChunkedArray:
    """Converts Python values, or a column of pandas, to Arrow in the type that Arrow infers; `fit` casts it later.

    Where the type cannot be inferred (pairs are lists or maps, a number may be a float or a decimal), the type of
    `field` is tried first.

    Args:
        values: A list or a series.
        name: The column's name, for errors.
        field: The table's column of that name; None if it has none.

    Raises:
        InvalidRequest: ``bad-value``.
    """
    from_pandas = not isinstance(values, list)
    if field is not None and (not from_pandas or str(values.dtype) == "object"):
        check_zones(values, field.type, name)
    unclear = (
        field is not None and _cannot_be_inferred(field.type) and (not from_pandas or str(values.dtype) == "object")
    )
    kinds = [field.type, None] if field is not None and unclear else [None]
    if field is not None and not unclear:
        kinds.append(field.type)
    errors: list[Exception] = []
    for kind in kinds:
        try:
            found = pa.array(values, kind, from_pandas=from_pandas)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            errors.append(error)
            continue
        if from_pandas and field is not None and found.null_count == len(found):
            return pa.chunked_array([pa.nulls(len(found), field.type)])  # pandas converts them to floats
        if kind is None and unclear and pa.types.is_floating(found.type):
            _check_floats(values, name)
        return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])
    what = "no Arrow column" if field is None else f"not all {to_sql(field.type)}"
    raise InvalidRequest(f"the values of column {name!r} are {what}: {errors[0]}", code="bad-value") from errors[0]


def _cannot_be_inferred(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) or pa.types.is_decimal(kind):
        return True
    return any(_cannot_be_inferred(kind.field(number).type) for number in range(kind.num_fields))


def _check_floats(values: Any, name: str) -> None:
    """Refuses decimals among floats: Arrow converts them to floats, which changes them."""
    kinds = sorted({type(value).__name__ for value in values} - {"NoneType", "float", "int", "float64"})
    if "Decimal" in kinds:
        raise InvalidRequest(
            f"column {name!r} has decimals and floats, and a float changes them: make all of them Decimal",
            code="bad-value",
        )


def _is_query(rows: object) -> TypeGuard[pl.LazyFrame]:
    return _is("polars", "LazyFrame", rows)


def _is_frame(rows: object) -> TypeGuard[pl.DataFrame]:
    return _is("polars", "DataFrame", rows)


def _is_pandas(rows: object) -> bool:
    return _is("pandas", "DataFrame", rows)


def _is(library: str, name: str, rows: object) -> bool:
    # a program that has such an object has imported its library; another thread may be importing it just now
    kind = getattr(sys.modules.get(library), name, None)
    return kind is not None and isinstance(rows, kind)


def _from_pandas(rows: Any, schema: pa.Schema) -> pa.Table:
    parts = [(name, rows.iloc[:, at]) for at, name in enumerate(rows.columns)]
    parts += _index_levels(rows)
    for name, _ in parts:
        if not isinstance(name, str):
            raise InvalidRequest(
                f"the pandas frame has a column labelled {name!r}: use a str as its name", code="bad-rows"
            )
    fields = _fields(schema)
    columns = [array_of(values, name, fields.get(name)) for name, values in parts]
    return pa.Table.from_arrays(columns, names=[name for name, _ in parts])


def _index_levels(rows: Any) -> list[tuple[Any, Any]]:
    """Returns the levels of a frame's index that are columns: those with names, as `set_index` and `groupby` make them.

    Numbers without a name are dropped: every filter and every sort leaves some. Other values without a name have no
    column to go to.

    Raises:
        InvalidRequest: ``bad-rows``: there are such values.
    """
    levels = []
    for at, name in enumerate(rows.index.names):
        level = rows.index.get_level_values(at).to_series()
        if name is None and len(level) and not (rows.index.nlevels == 1 and level.dtype.kind in "iu"):
            raise InvalidRequest(
                f"the index of the pandas frame has {'labels' if rows.index.nlevels == 1 else 'a level'} without a "
                f"name, such as {level.iloc[0]!r}: name it (rename_axis) if it is a column, or drop it "
                "(reset_index(drop=True))",
                code="bad-rows",
            )
        kept = name in rows.columns  # by set_index(…, drop=False)
        same = kept and level.reset_index(drop=True).equals(rows[name].reset_index(drop=True))  # NaN equals NaN
        if name is not None and not same:
            levels.append((name, level))
    return levels


def _from_dicts(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    if not rows:
        return schema.empty_table()
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidRequest(
                f"row {at} of the list is a {type(row).__name__}: pass each row as a dict from column names to values",
                code="bad-rows",
            )
    names = list(dict.fromkeys(name for row in rows for name in row))
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise InvalidRequest(f"a row has the key {wrong[0]!r}, which is not a column name: use a str", code="bad-rows")
    if not names:
        raise InvalidRequest("the dicts are all empty: name at least one column", code="bad-rows")
    fields = _fields(schema)
    return pa.table({name: array_of([row.get(name) for row in rows], name, fields.get(name)) for name in names})


def _fields(schema: pa.Schema) -> dict[str, pa.Field]:
    return {field.name: field for field in schema}


def _from_polars(rows: pl.DataFrame) -> pa.Table:
    for name, kind in rows.schema.items():
        if any(isinstance(inner, pl.Object) for inner in _inner(kind)):
            raise InvalidRequest(
                f"column {name!r} has objects of Python, which a table cannot store: cast it", code="bad-value"
            )
    try:
        return rows.to_arrow()
    except pa.ArrowInvalid as error:  # such as Int128, which Arrow does not know
        raise InvalidRequest(
            f"Arrow does not know a type of the polars frame ({error}); its columns are "
            f"{', '.join(f'{name} {kind}' for name, kind in rows.schema.items())}: cast it, as Int128 to Decimal",
            code="bad-value",
        ) from error


def _inner(kind: pl.DataType) -> Iterator[pl.DataType]:
    yield kind
    if isinstance(kind, pl.List | pl.Array):
        yield from _inner(kind.inner)  # type: ignore[arg-type]  # an instance, though polars' types allow a class
    elif isinstance(kind, pl.Struct):
        for field in kind.fields:
            yield from _inner(field.dtype)  # type: ignore[arg-type]  # as above


def _opened(rows: ArrowStream | ArrowArray) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    try:
        if isinstance(rows, ArrowStream):
            return pa.RecordBatchReader.from_stream(rows)
        batch = pa.record_batch(rows)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError) as error:
        raise InvalidRequest(
            f"a {type(rows).__name__} has no rows with named columns ({error}): pass a table or a record batch",
            code="bad-rows",
        ) from error


def _from_query(rows: pl.LazyFrame) -> Iterator[pa.Table]:
    """Yields a query's rows while polars computes them."""
    try:
        yield _from_polars(rows.collect_schema().to_frame())
        for part in rows.collect_batches(chunk_size=_QUERY_ROWS, maintain_order=True, lazy=True):
            yield _from_polars(part)
    except pl.exceptions.PolarsError as error:
        raise InvalidRequest(f"the query of the rows failed: {error}", code="bad-rows") from error


def _from_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    yield schema.empty_table()
    try:
        for batch in batches:
            yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"the stream of rows failed: {error}", code="bad-rows") from error
