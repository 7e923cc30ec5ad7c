"""Limits of a table's definition (FORMAT.md section 3.2). Pure.

Every list of tables reads the definitions, every change writes one, and every reader holds one. So sizes that no user
needs are refused. The limits hold in the service, in the embedded catalog, and for changes of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Protocol

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.types import field_count

__all__ = [
    "COLUMNS_MAX",
    "COMMENT_MAX",
    "DEPTH_MAX",
    "FIELD_NAME_MAX",
    "OPTIONS_MAX",
    "OPTION_VALUE_MAX",
    "Extent",
    "check_columns",
    "check_comment",
    "check_extent",
]

COLUMNS_MAX = 5_000
DEPTH_MAX = 32
FIELD_NAME_MAX = 1_000
COMMENT_MAX = 4_000
OPTION_VALUE_MAX = 16_000
OPTIONS_MAX = 500_000

_BOUNDS: tuple[tuple[int, str, str], ...] = (
    (COLUMNS_MAX, "too-many-columns", "columns and fields of STRUCTs together"),
    (DEPTH_MAX, "too-deep", "levels of nested types"),
    (FIELD_NAME_MAX, "too-long", "characters in the name of a column or field"),
    (COMMENT_MAX, "too-long", "characters in a comment"),
    (OPTION_VALUE_MAX, "too-long", "characters in the value of an option"),
    (OPTIONS_MAX, "too-many-options", "characters in all options together"),
)


class _Column(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> pa.DataType: ...
    @property
    def comment(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a definition; the fields stand for the limits, in the same order."""

    columns: int
    depth: int
    name: int
    comment: int
    option_value: int
    options: int

    @classmethod
    def of(cls, columns: Iterable[_Column], options: Mapping[str, str], comment: str | None) -> Extent:
        """Measures a table's columns, options and comment."""
        columns = tuple(columns)
        return cls(
            columns=len(columns) + sum(field_count(c.type) for c in columns),
            depth=max((_depth(c.type) for c in columns), default=0),
            name=max((max(len(c.name), _longest_name(c.type)) for c in columns), default=0),
            comment=max((len(text or "") for text in (comment, *(c.comment for c in columns))), default=0),
            option_value=max((len(str(value)) for value in options.values()), default=0),
            options=sum(len(name) + len(str(value)) for name, value in options.items()),
        )


def check_extent(after: Extent, before: Extent | None = None) -> None:
    """Refuses a definition that is too large.

    Args:
        after: The extent of the new definition.
        before: The extent of the present one. A table that exceeded a limit before there were limits may change as
            long as it does not grow there.

    Raises:
        InvalidRequest: ``too-many-columns``, ``too-deep``, ``too-long``, ``too-many-options``.
    """
    had = (0,) * len(_BOUNDS) if before is None else astuple(before)
    for is_now, was, (most, code, what) in zip(astuple(after), had, _BOUNDS, strict=True):
        if is_now > max(most, was):
            raise InvalidRequest(f"the table has {is_now:,} {what}, and {most:,} is the limit: use fewer", code=code)


def check_columns(count: int) -> None:
    """Checks the number of columns before their types are parsed, which costs more than counting them."""
    check_extent(Extent(count, 0, 0, 0, 0, 0))


def check_comment(what: str, comment: str | None) -> None:
    """Refuses a comment that is too long.

    Raises:
        InvalidRequest: ``too-long``.
    """
    if comment is not None and len(comment) > COMMENT_MAX:
        raise InvalidRequest(
            f"the comment of {what} has {len(comment):,} characters, and {COMMENT_MAX:,} is the limit: shorten it",
            code="too-long",
        )


def _children(arrow: pa.DataType) -> list[pa.Field]:
    return [arrow.field(i) for i in range(arrow.num_fields)] if pa.types.is_nested(arrow) else []


def _depth(arrow: pa.DataType) -> int:
    return 1 + max((_depth(child.type) for child in _children(arrow)), default=0)


def _longest_name(arrow: pa.DataType) -> int:
    return max((max(len(child.name), _longest_name(child.type)) for child in _children(arrow)), default=0)
