"""The time that a partition stands for, read from its values (options ``partition.timestamp-*``). Pure.

As in Paimon: the pattern puts values of partition columns into a text, the formatter says how that text is read.
Formatters are those of Java's DateTimeFormatter as far as the letters below go. Times are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from filestore.model.files import Partition

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
_NAME = re.compile(r"\$(?:\{([^}]+)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, slots=True)
class Formatter:
    """Reads texts of one form as times, such as ``yyyyMMdd`` or ``yyyy-MM-dd'T'HH:mm``; what it lacks is the least."""

    text: str
    regex: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Formatter:
        """The formatter of that text.

        Raises:
            ValueError: it has letters that are not known, one twice, no year, or a month's day without the month.
        """
        found: list[str] = []
        regex, end = "", 0
        for token in _TOKEN.finditer(text):
            if token.start() != end:
                break
            end = token.end()
            regex += _regex_of(token, found)
        if end != len(text) or not _complete(found):
            raise ValueError(f"a form of {', '.join(_LETTERS)} with a year, from large to small, such as 'yyyy-MM-dd'")
        return cls(text, re.compile(regex, re.ASCII))

    def read(self, text: str) -> datetime | None:
        """The time; None if the text has another form or names no time."""
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
        raise ValueError(f"a form in which {letters!r} does not stand, or only once: known are {', '.join(_LETTERS)}")
    found.append(name)
    return f"(?P<{name}>{digits})"


def _complete(found: Sequence[str]) -> bool:
    """Whether every unit has the larger ones too."""
    units = ["year", "month", "day", "hour", "minute", "second", "millisecond"]
    return len(found) > 0 and set(found) == set(units[: len(found)])


_DEFAULTS = (Formatter.of("yyyy-M-d H:m:s"), Formatter.of("yyyy-M-d"))


@dataclass(frozen=True, slots=True)
class TimestampPattern:
    """Where a partition's time stands, such as ``$day`` or ``$year-$month-$day $hour:00:00``."""

    text: str

    @classmethod
    def parse(cls, text: str) -> TimestampPattern:
        """A pattern that names a column; `ValueError` says what is expected."""
        pattern = cls(text)
        if not pattern.columns:
            raise ValueError("a text with partition columns in it, such as '$day' or '$year-$month-$day'")
        return pattern

    @property
    def columns(self) -> list[str]:
        """The columns that it names."""
        return [braced or plain for braced, plain in _NAME.findall(self.text)]

    def of(self, partition: Partition) -> str | None:
        """The text with the partition's values in it; None if one of them is null."""
        values = dict(partition)
        if any(values[name] is None for name in self.columns):
            return None
        return _NAME.sub(lambda match: str(values[match[1] or match[2]]), self.text)


def partition_time(
    partition: Partition, types: Iterable[pa.DataType], pattern: TimestampPattern | None, formatter: Formatter | None
) -> datetime | None:
    """The time that a partition stands for.

    Args:
        partition: Its values.
        types: The types of the partition columns.
        pattern: Where the time stands; the first partition column if None.
        formatter: How it is written. None: ``yyyy-M-d H:m:s`` or ``yyyy-M-d``; and a DATE or TIMESTAMP column, if there
            is no pattern either, is its own time.

    Returns:
        The time, in UTC; None if a value is null or cannot be read so.
    """
    (_, value), kind = partition[0], next(iter(types))
    if pattern is None and formatter is None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
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
