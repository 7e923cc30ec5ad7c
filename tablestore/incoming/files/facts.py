"""`Facts`: what is known of the values of a column, added up part by part; it decides the column's type. Pure.

A type is chosen by which every value is read as it is written: a number has the value that its digits say, a time its
microseconds. What no type holds so stays a text, such as 00501, which as a number would lose its zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from filestore.model.types import MAX_PRECISION, TIMESTAMP, TIMESTAMP_NTZ, to_sql

__all__ = ["Facts", "Kind", "Seen"]

_SHOWN = 40
_OTHER_DAY = re.compile(r"[0-9]{1,2}([./-])([0-9]{1,2})\1([0-9]{4}|[0-9]{2})\b")


class Kind(StrEnum):
    """The kind of a value, by its spelling."""

    INTEGER = "a whole number"
    NUMBER = "a number"
    NO_NUMBER = "a number that is none"
    BOOLEAN = "a boolean"
    DAY = "a day"
    LOCAL = "a time without a time zone"
    INSTANT = "a time with a time zone"
    LIST = "a list"
    OBJECT = "an object"
    TEXT = "a text"


_NUMBERS = {Kind.INTEGER, Kind.NUMBER}
_SIMPLE: tuple[tuple[set[Kind], pa.DataType], ...] = (
    ({Kind.BOOLEAN}, pa.bool_()),
    ({Kind.DAY}, pa.date32()),
    ({Kind.DAY, Kind.LOCAL}, TIMESTAMP_NTZ),
    ({Kind.INSTANT}, TIMESTAMP),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """Values of one kind.

    Attributes:
        count: Their number.
        first: The first one, as it is written.
    """

    count: int
    first: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Holds what is known of a column's values, but for nulls.

    Attributes:
        seen: The values by kind.
        digits: The most digits of a number before the point.
        places: The most digits of a number behind the point.
        long: A whole number is beyond BIGINT.
        inexact: DOUBLE changes a number.
        members: Of objects: their members.
        elements: Of lists: the elements.
        dated: The numbers that are days or times by a format that was given, by their kinds as those.
    """

    seen: Mapping[Kind, Seen] = field(default_factory=dict)
    digits: int = 0
    places: int = 0
    long: bool = False
    inexact: bool = False
    members: Mapping[str, Facts] = field(default_factory=dict)
    elements: Facts | None = None
    dated: Mapping[Kind, Seen] = field(default_factory=dict)

    def __add__(self, other: Facts) -> Facts:
        """Adds what is known of later values."""
        members = dict(self.members)
        for name, facts in other.members.items():
            members[name] = members.get(name, Facts()) + facts
        both = self.elements is not None and other.elements is not None
        return Facts(
            _added(self.seen, other.seen),
            max(self.digits, other.digits),
            max(self.places, other.places),
            self.long or other.long,
            self.inexact or other.inexact,
            members,
            (self.elements or Facts()) + (other.elements or Facts()) if both else self.elements or other.elements,
            _added(self.dated, other.dated),
        )

    @property
    def is_text(self) -> bool:
        """Returns whether later values cannot change that it is a text."""
        return Kind.TEXT in self.seen

    def type(self) -> pa.DataType:
        """Returns the narrowest of BIGINT, DOUBLE, DECIMAL, BOOLEAN, DATE, TIMESTAMP and STRING that holds all values.

        Without a value it is STRING, as is a column of values that only a text holds.
        """
        kinds = set(self.seen)
        if self._are_dated:
            kinds = kinds - _NUMBERS | set(self.dated)
        if kinds and kinds <= _NUMBERS | {Kind.NO_NUMBER} and kinds & _NUMBERS:
            return self._number(kinds)
        if kinds == {Kind.LIST}:
            return pa.list_(pa.field("element", (self.elements or Facts()).type()))
        if kinds == {Kind.OBJECT} and self.members:
            return pa.struct([pa.field(name, facts.type()) for name, facts in self.members.items()])
        return next((found for taken, found in _SIMPLE if kinds and kinds <= taken), pa.string())

    @property
    def has_numbers(self) -> bool:
        """Returns whether a value is a number."""
        return bool(_NUMBERS & set(self.seen))

    @property
    def _are_dated(self) -> bool:
        """Returns whether all of its numbers are days or times by a format that was given."""
        numbers = sum(seen.count for kind, seen in self.seen.items() if kind in _NUMBERS)
        return 0 < numbers == sum(seen.count for seen in self.dated.values())

    def _number(self, kinds: set[Kind]) -> pa.DataType:
        if kinds == {Kind.INTEGER} and not self.long:
            return pa.int64()
        if kinds != {Kind.INTEGER} and not self.inexact:
            return pa.float64()
        precision = max(self.digits + self.places, 1)
        fits = precision <= MAX_PRECISION and Kind.NO_NUMBER not in kinds
        return pa.decimal128(precision, self.places) if fits else pa.string()

    def remarks(self, path: str) -> Iterator[str]:
        """Yields why a column that is nearly something else is a text."""
        kind = self.type()
        if pa.types.is_struct(kind):
            for name, facts in self.members.items():
                yield from facts.remarks(f"{path}.{name}")
        elif pa.types.is_list(kind) and self.elements is not None:
            yield from self.elements.remarks(f"{path}.element")
        elif not self.seen:
            yield f"{path} has no value"
        elif self._are_dated and not pa.types.is_string(kind):
            first = next(iter(self.dated.values())).first
            yield f"{path} is {to_sql(kind)} by the format that you gave, since all its numbers fit, such as {first}"
        elif set(self.seen) == {Kind.TEXT} and (day := _OTHER_DAY.match(first := self.seen[Kind.TEXT].first)):
            advice = f"a timestamp format such as {_format(day)} makes days of them"
            yield f"{path} has texts such as {_shown(first)}: {advice}"
        elif pa.types.is_string(kind) and len(self.seen) > 1:
            yield f"{path} is a text, since it has {self._mixture()}"
        elif pa.types.is_decimal(kind) and Kind.NUMBER in self.seen:
            yield f"{path} is {to_sql(kind)}, since DOUBLE would change a number"

    def _mixture(self) -> str:
        kinds = sorted(self.seen.items(), key=lambda item: -item[1].count)
        return " and ".join(f"{kind.value} such as {_shown(seen.first)}" for kind, seen in kinds[:2])


def _added(before: Mapping[Kind, Seen], later: Mapping[Kind, Seen]) -> Mapping[Kind, Seen]:
    added = dict(before)
    for kind, seen in later.items():
        own = added.get(kind)
        added[kind] = seen if own is None else Seen(own.count + seen.count, own.first)
    return added


def _format(day: re.Match[str]) -> str:
    """Returns a format that the day has, of the two that it may have the one with the day first."""
    between, second, year = day.groups()
    return between.join(("%m", "%d") if int(second) > 12 else ("%d", "%m")) + between + ("%Y" if year[2:] else "%y")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
