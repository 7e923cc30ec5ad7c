"""Rows with special floating-point numbers, conditions about them, and what each condition finds: the oracle of tests.

The order is Spark's: NaN equals itself and is above all numbers, -0.0 equals 0.0. The oracle is plain Python, and
compares row by row.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from filestore.files import sink, writer
from filestore.model.files import DataFile, PendingRun
from filestore.table import FileStore
from filestore.writing import pending
from tests.tables import create, define, write

__all__ = [
    "COLUMNS",
    "CONDITIONS",
    "FLOATS",
    "OTHER_NAN",
    "Condition",
    "edition_1",
    "fill",
    "ieee",
    "layout",
    "named",
    "spark",
]

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
TINY, HUGE = 2.0**-149, (2 - 2.0**-23) * 2.0**127  # the least and the greatest FLOAT
FLOATS = (None, math.nan, OTHER_NAN, math.inf, -math.inf, 0.0, -0.0, 1.0, 3.0, 5.0, -2.5, TINY, HUGE)
COLUMNS = ("d", "f", "s.x", "s.y")
LITERALS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 3.0, TINY, HUGE)

Row = dict[str, Any]
Value = float | None
Order = Callable[[float], Any]


def spark(value: float) -> tuple[bool, float]:
    """What Spark sorts and compares a number by; Python's -0.0 equals 0.0, too."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def ieee(value: float) -> float:
    """What a reader compares by for which a NaN is not even equal to itself."""
    return value


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of one column: how it is written in SQL, and whether it holds for a value; None is SQL's NULL."""

    sql: str
    holds: Callable[[Value, Order], bool | None]


def _number(value: float) -> str:
    special = {math.inf: "Infinity", -math.inf: "-Infinity"}
    text = "NaN" if math.isnan(value) else special.get(value, repr(value))
    return f"CAST('{text}' AS DOUBLE)"


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _comparisons() -> Iterable[Condition]:
    for (sign, compare), other in itertools.product(_OPERATORS.items(), LITERALS):

        def holds(value: Value, by: Order, compare: Any = compare, other: float = other) -> bool | None:
            return None if value is None else compare(by(value), by(other))

        def fails(value: Value, by: Order, holds: Any = holds) -> bool | None:
            found = holds(value, by)
            return None if found is None else not found

        yield Condition(f"{{}} {sign} {_number(other)}", holds)
        yield Condition(f"NOT ({{}} {sign} {_number(other)})", fails)


def _others() -> Iterable[Condition]:
    for pair in ((math.nan, 1.0), (0.0, 3.0), (-0.0, math.inf)):

        def listed(value: Value, by: Order, pair: Sequence[float] = pair) -> bool | None:
            return None if value is None else any(by(value) == by(one) for one in pair)

        def unlisted(value: Value, by: Order, listed: Any = listed) -> bool | None:
            found = listed(value, by)
            return None if found is None else not found

        def between(value: Value, by: Order, pair: Sequence[float] = pair) -> bool | None:
            return None if value is None else by(pair[0]) <= by(value) <= by(pair[1])

        texts = ", ".join(map(_number, pair))
        yield Condition(f"{{}} IN ({texts})", listed)
        yield Condition(f"{{}} NOT IN ({texts})", unlisted)
        yield Condition(f"{{}} BETWEEN {_number(pair[0])} AND {_number(pair[1])}", between)
    yield Condition("{} IS NULL", lambda value, _: value is None)
    yield Condition("{} IS NOT NULL", lambda value, _: value is not None)
    for other in (math.nan, -0.0, 3.0):

        def same(value: Value, by: Order, other: float = other) -> bool:
            return value is not None and by(value) == by(other)

        yield Condition(f"{{}} IS NOT DISTINCT FROM {_number(other)}", same)
        yield Condition(f"{{}} IS DISTINCT FROM {_number(other)}", lambda v, by, same=same: not same(v, by))


CONDITIONS = (*_comparisons(), *_others())


def layout(floats: Sequence[Value] = FLOATS) -> tuple[list[Row], int]:
    """Returns the rows of many files, and how many rows a row group has.

    A file, which is a partition, has one pair of values, or the row groups of all pairs with a first value. In a group
    both repeat, so that Parquet could have a dictionary.
    """
    often = 3
    files: list[list[Value]] = [[a, b] for a, b in itertools.combinations_with_replacement(floats, 2)]
    files += [[value for b in floats for value in [a, b] * often] for a in floats]
    placed = [(p, value) for p, values in enumerate(files) for value in values]
    return [_row(n, p, value) for n, (p, value) in enumerate(placed)], 2 * often


def _row(n: int, p: int, value: Value) -> Row:
    return {"id": n, "p": p, "d": value, "f": value, "s": {"x": value, "y": value}, "a": [value, value]}


def fill(folder: Path, **options: object) -> tuple[FileStore, list[Row]]:
    """Creates a table with these rows; needs `tests.model.model.tiny_row_groups`."""
    rows, group = layout()
    columns = "id BIGINT, p INT, d DOUBLE, f FLOAT, s STRUCT<x: DOUBLE, y: FLOAT>, a ARRAY<DOUBLE>"
    store = create(folder, define(columns, (), ("p",), row__group_rows=group, **options))
    write(store, rows)
    return store, rows


def named(rows: Iterable[Row], column: str, condition: Condition, by: Order = spark) -> list[int]:
    """The ids of the rows for which a condition holds."""
    first, _, part = column.partition(".")
    values = ((row["id"], row[first][part] if part else row[first]) for row in rows)
    return [n for n, value in values if condition.holds(value, by)]


@contextmanager
def edition_1() -> Iterator[None]:
    """Makes this process write files as before edition 2: all columns have bounds, an index and a dictionary."""
    everything = {"write_statistics": True, "use_dictionary": True, "column_encoding": None}
    with (
        mock.patch.object(sink, "_sound", lambda schema, how: everything),
        mock.patch.object(writer, "DataFile", partial(DataFile, edition=1)),
        mock.patch.object(pending, "PendingRun", partial(PendingRun, edition=1)),
    ):
        yield
