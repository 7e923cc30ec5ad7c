"""Decides how many of a table's changes are in one batch: whole versions, and parts of one that is larger. Pure.

A place in a history is a version whose changes were all read, and the number of units read of the next one, counted
over its pieces (`tablestore.following.pieces`). Log records can be divided anywhere. Files, and changes that are
derived from files, cannot be divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["Limit", "Place", "admit", "between"]


class Sized(Protocol):
    """A piece with what matters here: its size."""

    @property
    def units(self) -> int:
        """The approximate number of rows; at least 1."""

    @property
    def divisible(self) -> bool:
        """Returns whether it can be divided."""


AnyPiece = TypeVar("AnyPiece", bound=Sized)


@dataclass(frozen=True, slots=True)
class Place:
    """The position up to which a reader has read.

    Attributes:
        version: It has read all changes of this version.
        units: The units that it has read of the next version.
    """

    version: int
    units: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of a batch; a piece that cannot be divided is read if it is the first.

    Attributes:
        rows: The largest number of rows; None: no limit.
        versions: The largest number of versions; None: no limit.
    """

    rows: int | None = None
    versions: int | None = None


def admit(pieces: Callable[[int], Sequence[Sized]], start: Place, newest: int, limit: Limit) -> Place:
    """Determines where a batch ends.

    Args:
        pieces: Returns the pieces of a version; called only for versions that matter.
        start: Where the batch begins.
        newest: The newest version.
        limit: The limits of the batch.

    Returns:
        A place at or after `start`; `start` only if there is nothing to read.
    """
    last = newest if limit.versions is None else min(newest, start.version + limit.versions)
    if limit.rows is None:
        return Place(last) if last > start.version else start
    place, left, empty = start, limit.rows, True
    while place.version < last:
        sizes = pieces(place.version + 1)
        end = _reach(sizes, place.units, left, empty)
        if end < sum(piece.units for piece in sizes):
            return Place(place.version, end)
        left -= end - place.units
        empty = empty and end == place.units
        place = Place(place.version + 1)
    return place


def _reach(pieces: Sequence[Sized], start: int, left: int, empty: bool) -> int:
    """The unit at which a batch ends that begins at `start`, if `left` more units are allowed."""
    high = 0
    for piece in pieces:
        low, high = max(start, high), high + piece.units
        if low >= high:
            continue
        if high - low > max(left, 0):
            if piece.divisible:
                return low + max(left, 0)
            if not empty:
                return low
        left -= high - low
        empty = False
    return high


def between(pieces: Sequence[AnyPiece], start: int, end: int | None) -> Iterator[tuple[AnyPiece, int, int]]:
    """Yields the pieces from one unit to before another (None: to the end), each with the range of its own units."""
    at = 0
    for piece in pieces:
        low = max(start - at, 0)
        high = piece.units if end is None else min(end - at, piece.units)
        at += piece.units
        if low < high:
            yield piece, low, high
