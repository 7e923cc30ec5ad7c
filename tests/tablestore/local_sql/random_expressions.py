"""Rows with special values of all types that are computed without Spark, and random expressions over them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

__all__ = ["GROUPED", "ROWS", "Expressions"]

_SHORT = "0.00,,1.50,-1.50,,99999999.99,-99999999.99,0.01,2.00,3.10,7.00,5.25"
_LONG = ",0.00000,1.50000,-1.5,999999999999.99999,2.00001,7,1,2,3,4,-5"
_YEARS = (1, 1582, 1970, 1969, 2000, 2024, 2024, 9999, 1, 2, 2024)


def _decimals(text: str, precision: int, scale: int) -> pa.Array:
    values = [Decimal(one) if one else None for one in text.split(",")]
    return pa.array(values, pa.decimal128(precision, scale))


ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int64()),
        "a": pa.array([None, 0, 1, -1, 127, -128, 5, 5, 2, 3, None, 7], pa.int8()),
        "h": pa.array([0, 1, None, -1, 32767, -32768, 5, 2, 2, 3, 4, 7], pa.int16()),
        "i": pa.array([3, 1, -1, None, 2147483647, -2147483648, 5, 2, 2, 3, 4, 7], pa.int32()),
        "l": pa.array([1, None, 0, -1, 2**63 - 1, -(2**63), 5, 9007199254740993, 2, 3, 4, 7], pa.int64()),
        "f": pa.array([0.0, -0.0, None, math.nan, math.inf, -math.inf, 0.1, 1.5, 3e38, 1e-45, 2, 7], pa.float32()),
        "d": pa.array([-0.0, 0.0, 1.5, None, math.nan, math.inf, -math.inf, 0.1, 1e308, 5e-324, 2, 7], pa.float64()),
        "m": _decimals(_SHORT, 10, 2),
        "n": _decimals(_LONG, 17, 5),
        "s": pa.array(["", "a", "A", None, "b", "ab", "a b", "é", "a%", "日本", "\U0001f600", "z" * 300], pa.string()),
        "t": pa.array(["a", "a", None, "b", "", "ab", "A", "é", "x", "日", "\n", "z"], pa.string()),
        "b": pa.array([True, False, None] * 4, pa.bool_()),
        "c": pa.array([None, True, True, False] * 3, pa.bool_()),
        "e": pa.array([None, *(date(year, 2, 28) for year in _YEARS)], pa.date32()),
        "u": pa.array(
            [None, *(datetime(year, 1, 1, 2, 3, 4, 5, tzinfo=UTC) for year in _YEARS)], pa.timestamp("us", "UTC")
        ),
        "w": pa.array([datetime(year, 12, 31, 23, 59, 59, 999999) for year in (1970, *_YEARS)], pa.timestamp("us")),
        "x": pa.array([b"", b"\x00", b"\xff", None, *b"a,ab,b,\x80,a,z,\x01\x02,c".split(b",")], pa.binary()),
    }
)
"""The rows."""

_OF = {
    "tiny": "a", "small": "h", "int": "i", "big": "l", "float": "f", "double": "d", "dec": "m", "longdec": "n",
    "text": "st", "bool": "bc", "day": "e", "moment": "u", "plain": "w", "bytes": "x",
}  # fmt: skip
_UNITS = ["year", "QUARTER", "month", "week", "DAY", "hour", "minute", "second"]
_INTEGERS = ["tiny", "small", "int", "big"]
_NUMBERS = [*_INTEGERS, "double", "dec", "longdec"]
GROUPED = ["a", "h", "i", "m", "s", "t", "b", "e", "u"]
"""Columns by which rows may be grouped."""


class Expressions:
    """Random expressions in Spark's SQL.

    Args:
        dice: Draws them.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def value(self, kind: str | None = None, deep: int = 2) -> str:
        """Returns an expression of some type."""
        kind = kind or self._of([*_NUMBERS, "float", "text", "bool", "bool", "day", "moment", "bytes"])
        if deep <= 0 or self._dice.randrange(4) == 0:
            return self._leaf(kind)
        if self._dice.randrange(4) == 0:
            return self._chosen(kind, deep - 1)
        if kind == "int" and self._dice.randrange(3) == 0:
            return self._part_of_time()
        if kind in _NUMBERS or kind == "float":
            return self._number(kind, deep - 1)
        if kind == "bool":
            return self.condition(deep - 1)
        if kind == "text":
            return self._of(
                [
                    f"({self.value('text', deep - 1)} || {self.value('text', deep - 1)})",
                    f"concat({self._leaf('text')}, 'x')",
                    f"substring({self.value('text', deep - 1)}, {self._of('1234')}, {self._of('0125')})",
                    f"{self._of(['trim', 'ltrim', 'rtrim'])}({self.value('text', deep - 1)})",
                    f"replace({self.value('text', deep - 1)}, {self._of(['a', ' ', 'é', 'aa', 'z'])!r}, 'b')",
                    f"left({self._leaf('text')}, {self._of('012')})",
                ]
            )
        if kind == "day":
            return self._day(deep - 1)
        if kind == "moment":
            return f"date_trunc('{self._of(_UNITS)}', {self.value('moment', deep - 1)})"
        return self._leaf(kind)

    def _day(self, deep: int) -> str:
        of = self.value(self._of(["day", "day", "moment", "plain"]), deep)
        count = self._of(["0", "1", "-40", self._leaf("tiny")])
        later = [f"date_add({of}, {count})", f"date_sub({of}, 31)"]
        return self._of([f"to_date({of})", f"CAST({of} AS DATE)", f"last_day({of})", *later])

    def _part_of_time(self) -> str:
        if self._dice.randrange(3) == 0:
            return f"{self._of(['hour', 'minute', 'second'])}({self.value(self._of(['moment', 'plain']), 1)})"
        of, other = self.value(self._of(["day", "moment", "plain"]), 1), self.value("day", 1)
        name = self._of(
            ["year", "quarter", "month", "day", "dayofmonth", "dayofweek", "dayofyear", "weekofyear", "extract", "diff"]
        )
        if name == "extract":
            return f"extract({self._of(['YEAR', 'month', 'DAY', 'quarter'])} FROM {of})"
        return f"datediff({of}, {other})" if name == "diff" else f"{name}({of})"

    def condition(self, deep: int = 2) -> str:
        """Returns a condition."""
        dice = self._dice
        if deep <= 0:
            return self._leaf("bool")
        form = dice.randrange(8)
        if form == 0:
            return f"({self.condition(deep - 1)} {self._of(['AND', 'OR'])} {self.condition(deep - 1)})"
        if form == 1:
            return f"(NOT {self.condition(deep - 1)})"
        kind = self._of([*_NUMBERS, "text", "day", "moment", "bool", "bytes", "float"])
        one, other = self.value(kind, deep - 1), self.value(self._near(kind), deep - 1)
        if form == 2:
            return f"({one} IS {self._of(['', 'NOT '])}NULL)"
        if form == 7 and self._dice.randrange(3) == 0:  # of which many are refused
            return f"({one} = {other} {self._of(['IS NULL', 'IN (TRUE, NULL)', 'NOT IN (FALSE)', '= TRUE'])})"
        if form == 3:
            return f"({one} {self._of(['', 'NOT '])}IN ({other}, {self._leaf(kind)}))"
        if form == 4:
            return f"({one} BETWEEN {self._leaf(kind)} AND {other})"
        if form == 6 and kind == "text":
            return f"{self._of(['startswith', 'contains'])}({one}, {other})"
        if form == 5 and kind == "text":
            return f"({one} LIKE '{self._of(['a%', '%b', '_', '%', 'a_b', 'é%', '%%'])}')"
        return f"({one} {self._of(['=', '<>', '<', '<=', '>', '>=', '<=>', '=', 'IS DISTINCT FROM'])} {other})"

    def aggregate(self) -> str:
        """Returns an aggregate."""
        kind = self._of([*_NUMBERS, "text", "day", "moment", "bool", "float"])
        value = self.value(kind, 1)
        found = self._of(
            ["count(*)", f"count({value})", f"min({value})", f"max({value})", f"count_if({self.condition(1)})"]
        )
        if kind in _NUMBERS and self._dice.randrange(2):
            found = self._of([f"sum({self._leaf(kind)})", f"avg({self._leaf(kind)})"])
        if kind not in ("float", "double") and self._dice.randrange(5) == 0:
            found = f"count(DISTINCT {value})"
        elif self._dice.randrange(4) == 0:
            found += f" FILTER (WHERE {self.condition(1)})"
        return found

    def window(self) -> str:
        """Returns a window function."""
        by = ", ".join(self._dice.sample(GROUPED, self._dice.choice([1, 1, 2])))
        order = f"{self._of(GROUPED)} {self._of(['', 'DESC', 'ASC NULLS LAST', 'DESC NULLS FIRST'])}, id"
        return self._of(
            [
                f"row_number() OVER (PARTITION BY {by} ORDER BY {order})",
                f"rank() OVER (PARTITION BY {by} ORDER BY {self._of(GROUPED)})",
                f"dense_rank() OVER (PARTITION BY {by} ORDER BY {self._of(GROUPED)} DESC)",
                f"sum({self._of(['a', 'h', 'i', 'm'])}) OVER (PARTITION BY {by})",
                f"count({self._of(GROUPED)}) OVER (PARTITION BY {by} ORDER BY {self._of(GROUPED)})",
                f"max({self._of(GROUPED)}) OVER (PARTITION BY {by})",
            ]
        )

    def _number(self, kind: str, deep: int) -> str:
        dice = self._dice
        form = dice.randrange(7)
        one, other = self.value(kind, deep), self.value(self._near(kind), deep)
        if form == 0:
            return f"(-{one})"
        if form == 1:
            return f"abs({one})"
        if form == 2 and kind in _INTEGERS:
            return f"({one} {self._of(['%', 'DIV', '/'])} {self._of(['3', '-7', '2', other])})"
        if form == 3 and kind in ("int", "big"):
            return self._of([f"length({self.value('text', 1)})", f"CAST({self._leaf('small')} AS BIGINT)"])
        if form == 4 and kind == "double":
            return self._of([f"CAST({self._leaf('int')} AS DOUBLE)", f"({self._leaf('int')} / {self._of(['3', '7'])})"])
        return f"({one} {self._of(['+', '-', '*'])} {other})"

    def _chosen(self, kind: str, deep: int) -> str:
        one, other = self.value(kind, deep), self.value(kind, deep)
        forms = [
            f"CASE WHEN {self.condition(1)} THEN {one} ELSE {other} END",
            f"CASE WHEN {self.condition(1)} THEN {one} END",
            f"CASE {self._leaf(kind)} WHEN {self._leaf(kind)} THEN {one} WHEN {other} THEN {self._leaf(kind)} END",
            f"if({self.condition(1)}, {one}, {other})",
            f"coalesce({one}, {other})",
            f"nullif({one}, {other})",
            f"nvl({one}, {self._leaf(kind)})",
        ]
        if kind not in ("float", "double"):
            forms.append(f"{self._of(['greatest', 'least'])}({one}, {other})")
        return self._of(forms)

    def _leaf(self, kind: str) -> str:
        literals = {
            "tiny": ["CAST(2 AS TINYINT)"],
            "int": ["0", "1", "-1", "7", "2147483647", "-2147483648"],
            "big": ["3000000000", "-1L", "CAST(5 AS BIGINT)"],
            "double": ["1.5D", "2e0", "-1E-3", "0D"],
            "dec": ["1.50", "-0.01", "10.25", "0.00"],
            "longdec": ["2.00001"],
            "text": ["''", "'a'", "'A b'", "'é'", "'it''s'"],
            "bool": ["TRUE", "FALSE", "true"],
            "day": ["DATE '2024-02-28'", "DATE '1582-10-10'"],
        }
        if kind in literals and self._dice.randrange(4) == 0:
            return self._of(literals[kind])
        return self._of(list(_OF[kind]))

    def _near(self, kind: str) -> str:
        """Returns a type with whose values those of another one can be compared, and computed."""
        if kind in ("dec", "longdec"):
            return self._of([kind, kind, *_INTEGERS])
        return self._of(_INTEGERS) if kind in _INTEGERS else kind

    def _of(self, some: Sequence[str]) -> str:
        return self._dice.choice(some)
