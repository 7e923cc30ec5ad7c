"""The watermark of a table: how late the rows of a stream of it may be, by a column with their time (Flink's DDL).

A stream processor emits the result of a window when the watermark has passed the window's end, and then forgets the
window's state. The watermark is the highest time that it has read, less the delay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.option_values import Option, duration, some_text
from filestore.model.schema import Column
from filestore.model.table_columns import MetadataColumn
from filestore.model.text import name_list

__all__ = ["WATERMARK_OPTIONS", "Watermark", "watermark_of"]

_COLUMN, _DELAY = "watermark.column", "watermark.delay"

WATERMARK_OPTIONS = (
    Option(
        _COLUMN,
        "column",
        some_text,
        None,
        "The column with the time of each row, a TIMESTAMP. A stream of the table in SQL has a watermark by it; "
        "`WATERMARK FOR` sets it.",
    ),
    Option(
        _DELAY,
        "duration",
        duration,
        None,
        "With watermark.column: how much later than the newest row a row may arrive, and not be late; default: 0 ms.",
    ),
)


@dataclass(frozen=True, slots=True)
class Watermark:
    """The lateness that rows may have.

    Attributes:
        column: The column with the time of a row.
        delay: How much older than the newest row a row may be.
    """

    column: str
    delay: timedelta

    def __str__(self) -> str:
        """Returns it as Flink's DDL has it, such as ``at - 5000 ms``."""
        return f"{self.column} - {self.delay_ms} ms"

    @property
    def delay_ms(self) -> int:
        """The delay in milliseconds."""
        return self.delay // timedelta(milliseconds=1)


def watermark_of(
    column: str | None, delay: timedelta | None, columns: Iterable[Column | MetadataColumn]
) -> Watermark | None:
    """Returns the watermark that a table's options describe; None without one.

    Args:
        column: The option ``watermark.column``.
        delay: The option ``watermark.delay``.
        columns: The columns that can have the time.

    Raises:
        InvalidRequest: ``bad-watermark``: a delay without a column, or a column that is not there or no TIMESTAMP.
    """
    if column is None:
        if delay is not None:
            raise InvalidRequest(f"{_DELAY} needs {_COLUMN}: the column with the time of a row", code="bad-watermark")
        return None
    types = {c.name: c.type for c in columns}
    if column not in types:
        raise InvalidRequest(
            f"{_COLUMN} {column!r} is not in the schema; its columns are {name_list(list(types))}",
            code="bad-watermark",
        )
    type_ = types[column]
    if not (pa.types.is_timestamp(type_) and type_.tz is not None):
        raise InvalidRequest(
            f"{_COLUMN} {column!r} has the type {type_}, and a watermark needs the type TIMESTAMP", code="bad-watermark"
        )
    return Watermark(column, delay or timedelta())
