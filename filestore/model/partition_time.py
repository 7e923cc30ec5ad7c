"""Reads the time of a partition from its values (options ``partition.timestamp-*``). Pure.

As in Paimon, the pattern makes a text of values of partition columns, and the formatter parses that text. Formatters
use the letters of Java's DateTimeFormatter that are listed below. Times are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from filestore.model.files import Partition
from filestore.model.names import unquoted
from filestore.model.types import is_moment

__all__ = ["Formatter", "TimestampPattern", "column_time", "partition_time"]

_LETTERS = {
    "yyyy": ("year", r"\d{4}"),
    "MM": ("month", r"\d{2}"),
    "M": ("month", r"\d{1,2}"),
    "dd": ("day", r"\d{2}"),
    "d": ("day", r"\d{1,2}"),
    "HH": ("hour", r"\d{2}"),
    "H": ("hour", r"\d{1,2}"),
    "mm": ("minute", r"\d{2}"),
    "m": ("minute", r"\d{1,2}"),
    "ss": ("second", r"\d{2}"),
    "s": ("second", r"\d{1,2}"),
    "SSS": ("millisecond", r"\d{3}"),
}
_TOKEN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")
_NAME = re.compile(r"\$(?:\{(`(?:[^`]|``)+`|[^}]+)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, slots=True)
class Formatter:
    """Parses times of one format, such as ``yyyyMMdd`` or ``yyyy-MM-dd'T'HH:mm``; missing parts get the least value."""

    text: str
    regex: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Formatter:
        """Makes the formatter of a text.

        Raises:
            ValueError: it has unknown letters, one of them twice, no year, or a day without its month.
        """
        found: list[str] = []
        regex, end = "", 0
        for token in _TOKEN.finditer(text):
            if token.start() != end:
                break
            end = token.end()
            regex += _regex_of(token, found)
        if end != len(text) or not _complete(found):
            raise ValueError(
                f"a format of {', '.join(_LETTERS)} with a year, from large to small, such as 'yyyy-MM-dd'"
            )
        return cls(text, re.compile(regex, re.ASCII))

    def read(self, text: str) -> datetime | None:
        """Parses a time; returns None if the text has another format or is not a valid time."""
        match = self.regex.fullmatch(text)
        if match is None:
            return None
        parts = {name: int(value) for name, value in match.groupdict().items()}
        microsecond = parts.pop("millisecond", 0) * 1000
        try:
            return datetime(**{"month": 1, "day": 1, **parts}, microsecond=microsecond, tzinfo=UTC)
        except ValueError:
            return None


def _regex_of(token: re.Match[str], found: list[str]) -> str:
    letters = token["letters"]
    if letters is None:
        return re.escape("'" if token["quoted"] == "" else token["quoted"] or token["other"])
    name, digits = _LETTERS.get(letters, ("", ""))
    if not name or name in found:
        raise ValueError(
            f"a format with known letters, each only once, but {letters!r} is not; known are {', '.join(_LETTERS)}"
        )
    found.append(name)
    return f"(?P<{name}>{digits})"


def _complete(found: Sequence[str]) -> bool:
    """Returns whether there is every unit that is larger than a given one."""
    units = ["year", "month", "day", "hour", "minute", "second", "millisecond"]
    return len(found) > 0 and set(found) == set(units[: len(found)])


_DEFAULTS = (Formatter.of("yyyy-M-d H:m:s"), Formatter.of("yyyy-M-d"))


@dataclass(frozen=True, slots=True)
class TimestampPattern:
    """Makes the text with a partition's time, such as ``$day`` or ``$year-$month-$day $hour:00:00``."""

    text: str

    @classmethod
    def parse(cls, text: str) -> TimestampPattern:
        """Makes a pattern that names at least one column; its `ValueError` says what is expected."""
        pattern = cls(text)
        if not pattern.columns:
            raise ValueError("a text with partition columns in it, such as '$day' or '$year-$month-$day'")
        return pattern

    @property
    def columns(self) -> list[str]:
        """The columns that it names."""
        return [_column(match) for match in _NAME.finditer(self.text)]

    def of(self, partition: Partition) -> str | None:
        """The text with the partition's values in it; None if one of them is null."""
        values = dict(partition)
        if any(values[name] is None for name in self.columns):
            return None
        return _NAME.sub(lambda match: str(values[_column(match)]), self.text)


def _column(match: re.Match[str]) -> str:
    """The column that a place in a pattern names; one in backticks may have ``}`` in its name."""
    return match[2] or unquoted(match[1])


def partition_time(
    partition: Partition, types: Iterable[pa.DataType], pattern: TimestampPattern | None, formatter: Formatter | None
) -> datetime | None:
    """Returns the time of a partition.

    Args:
        partition: The partition's values.
        types: The types of the partition columns.
        pattern: Makes the text with the time; None uses the first partition column.
        formatter: Parses the text. None: ``yyyy-M-d H:m:s`` or ``yyyy-M-d``; and without a pattern, too, a DATE or
            TIMESTAMP column has its own time.

    Returns:
        The time, in UTC; None if a value is null or does not have that format.
    """
    (_, value), kind = partition[0], next(iter(types))
    if pattern is None and formatter is None and is_moment(kind):
        return column_time(value)
    text = value if pattern is None else pattern.of(partition)
    if text is None:
        return None
    times = (form.read(text) for form in (_DEFAULTS if formatter is None else (formatter,)))
    return next((time for time in times if time is not None), None)


def column_time(value: Any) -> datetime | None:
    """The time of a DATE or TIMESTAMP partition value; both are UTC."""
    if value is None:
        return None
    time = datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
