"""The type of an option, and the functions that parse its text. Their `ValueError` says which texts are valid."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from filestore.model.names import names_in

__all__ = [
    "OneOf",
    "Option",
    "any_text",
    "column_names",
    "duration",
    "duration_text",
    "flag",
    "one_of",
    "positive_duration",
    "seconds_or_more",
    "share",
    "size",
    "some_text",
    "whole",
]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, the function that parses it, its default as a text, and its meaning in one sentence.

    `fixed` is set for an option that cannot change after the table's creation, and says why. `final` is a value that an
    option keeps once it has it, with the reason.
    """

    name: str
    kind: str
    parse: Callable[[str], Any]
    default: str | None
    doc: str
    fixed: str | None = None
    final: tuple[str, str] | None = None


_SIZE_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def size(text: str) -> int:
    """Parses a number of bytes, such as ``128 mb``."""
    match = re.fullmatch(r"\s*([0-9]+)\s*([kmgt]?b?)\s*", text.lower())
    unit = match[2] if match else ""
    unit = unit if unit.endswith("b") or not unit else unit + "b"
    if match is None or int(match[1]) == 0:
        raise ValueError("a size above zero such as '128 mb'")
    return int(match[1]) * _SIZE_UNITS[unit]


def size_or_none(text: str) -> int:
    """Parses a number of bytes, or 0."""
    return 0 if text.strip() == "0" else size(text)


def whole(low: int, high: int) -> Callable[[str], int]:
    """Makes a parser of whole numbers between bounds, both included."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def share(text: str) -> float:
    """Parses a number between 0 and 1, both excluded."""
    if not re.fullmatch(r"0?\.[0-9]*[1-9][0-9]*", text):
        raise ValueError("a number above 0 and below 1 such as '0.01'")
    return float(text)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Accepts one of some texts."""

    choices: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Returns the text, if it is one of them."""
        if text not in self.choices:
            raise ValueError(" or ".join(repr(c) for c in self.choices))
        return text


def one_of(*choices: str) -> OneOf:
    """Makes a parser that accepts one of those texts."""
    return OneOf(choices)


def flag(text: str) -> bool:
    """Parses true or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError("'true' or 'false'")
    return text.lower() == "true"


def any_text(text: str) -> str:
    """Returns the text as it is."""
    return text


def column_names(text: str) -> tuple[str, ...]:
    """Parses names that are separated by commas; one may stand in backticks."""
    return names_in(text)


def some_text(text: str) -> str:
    """Returns a text that is not empty."""
    if not text.strip():
        raise ValueError("a text that is not empty")
    return text


def positive_duration(text: str) -> timedelta:
    """Parses a duration above zero."""
    found = duration(text)
    if not found:
        raise ValueError("a duration above zero such as '7 d'")
    return found


def seconds_or_more(text: str) -> timedelta:
    """Parses a duration of at least a second."""
    found = duration(text)
    if found < timedelta(seconds=1):
        raise ValueError("a duration of at least 1 s such as '60 s'")
    return found


_TIME_UNITS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration(text: str) -> timedelta:
    """Parses a duration, such as ``30 min``."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*([a-z]+)\s*", text.lower())
    if match is None or match[2] not in _TIME_UNITS:
        raise ValueError(f"a duration such as '7 d' or '90 min' (units: {', '.join(_TIME_UNITS)})")
    return timedelta(milliseconds=int(match[1]) * _TIME_UNITS[match[2]])


def duration_text(milliseconds: int) -> str:
    """Reverses `duration`, with the longest unit that gives a whole number."""
    name, size = next((name, size) for name, size in reversed(_TIME_UNITS.items()) if milliseconds % size == 0)
    return f"{milliseconds // size} {name}"
