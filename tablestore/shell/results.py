"""The results of statements: a schema, and rows that are read as they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

__all__ = ["Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a statement.

    Attributes:
        engine: Which engine ran it, as people write its name.
        schema: The columns; None if the statement returns no rows.
        batches: The rows, some at a time, each with that schema. Two columns may have one name.
        reason: Why it was not polars.
    """

    engine: str
    schema: pa.Schema | None = None
    batches: Iterator[pa.Table] = field(default_factory=lambda: iter(()))
    reason: str | None = None
