"""Finds the keys that a condition names, if it names whole keys, and their buckets. Pure.

It recognises `column = literal` and `column IN (…)`, joined by AND with anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import pyarrow as pa

from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.reading.expressions import compares_exactly
from filestore.reading.pruning import equalities
from filestore.rows.bucketing import bucket_of
from filestore.rows.frames import arrow_table, polars_schema

__all__ = ["wanted_buckets", "wanted_keys"]

_MOST_KEYS = 4096


def wanted_buckets(condition: pl.Expr, definition: TableDefinition) -> frozenset[int] | None:
    """The buckets that can have rows for which the condition is true; None if all buckets can."""
    names = definition.bucket_key
    if definition.buckets == 1 or not names:
        return None
    keys = _named_keys(condition, names, definition)
    return None if keys is None else frozenset(bucket_of(keys, names, definition.buckets).tolist())


def wanted_keys(condition: pl.Expr, definition: TableDefinition) -> pa.Table | None:
    """The primary keys, each once, of rows for which the condition can be true; None if it does not name keys."""
    return _named_keys(condition, definition.primary_key, definition) if definition.primary_key else None


def _named_keys(condition: pl.Expr, names: Sequence[str], definition: TableDefinition) -> pa.Table | None:
    """Returns all combinations of values of those columns; None if a column is not named, or they are too many."""
    schema = pa.schema([definition.schema.to_arrow().field(name).with_nullable(True) for name in names])
    known = _values(equalities(condition), polars_schema(schema))
    if set(known) != set(names):
        return None
    keys = reduce(lambda left, right: left * right, (len(values) for values in known.values()))
    if keys > _MOST_KEYS:
        return None
    frames = [known[name].to_frame() for name in names]
    return arrow_table(reduce(lambda left, right: left.join(right, how="cross"), frames), schema)


def _values(found: Iterable[tuple[str, pl.Series]], types: Mapping[str, pl.DataType]) -> dict[str, pl.Series]:
    """The possible values of each column, in its type. Columns whose literals do not fit are left out."""
    known: dict[str, pl.Series] = {}
    for name, literals in found:
        if name not in types or not compares_exactly(literals.dtype, types[name]):
            continue
        try:
            values = literals.drop_nulls().cast(types[name]).alias(name)
            same = values.cast(literals.dtype).equals(literals.drop_nulls(), check_names=False)
        except pl.exceptions.PolarsError:
            continue
        if same and (name not in known or len(values) < len(known[name])):
            known[name] = values.unique()
    return known
