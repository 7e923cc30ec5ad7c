"""`Typed`: an expression as DuckDB evaluates it, with the type that it has in Spark. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from tablestore.local_sql.refusal import NotLocalError
from tablestore.local_sql.value_types import duckdb_type

__all__ = ["Typed", "Used", "Values", "Writer", "identifier", "required_type", "text_literal"]

Used = frozenset[tuple[str, str]]
"""Columns, each with the relation that has it."""


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression.

    Attributes:
        text: It, for DuckDB.
        kind: Its type; `pyarrow.null()` of NULL, which has any type.
        uses: The columns of relations from which its value follows.
    """

    text: str
    kind: pa.DataType
    uses: Used = frozenset()

    def cast(self, kind: pa.DataType) -> str:
        """Returns its text as a value of a type."""
        if self.kind == kind:
            return self.text
        return f"CAST({self.text} AS {required_type(kind)})"

    @staticmethod
    def used_by(parts: Iterable[Typed]) -> Used:
        """Returns what several expressions use."""
        return frozenset(one for part in parts for one in part.uses)


class Values(Protocol):
    """Writes the expressions of a SELECT (`tablestore.local_sql.expressions.Expressions`)."""

    @property
    def in_utc(self) -> bool:
        """Returns whether the session's time zone is UTC."""

    def typed(self, node: exp.Expr) -> Typed:
        """Writes an expression; raises `NotLocalError` for one that is not known."""

    def operand(self, node: exp.Expr) -> Typed:
        """Writes an operand: as `typed`, but for comparisons without parentheses."""


Writer = Callable[[Values, exp.Expr], Typed]
"""Writes a function."""


def required_type(kind: pa.DataType) -> str:
    """Returns the name of a type in DuckDB; refuses those whose values are not computed here."""
    if (found := duckdb_type(kind)) is None:
        raise NotLocalError(f"it computes with values of type {kind}")
    return found


def identifier(name: str) -> str:
    """Returns a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """Returns a text for DuckDB."""
    if "\0" in value:
        raise NotLocalError("it has a text with the character 0")
    return "'" + value.replace("'", "''") + "'"
