"""Conditions of reads: SQL text that polars parses, or a polars expression. Rows for which it is true are wanted.

`filestore.reading.pruning` applies a condition to whole files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, Union

from filestore.errors import InvalidRequest, NotFound
from filestore.lazily import pl
from filestore.model.schema import Schema
from filestore.model.text import none_named
from filestore.reading.normal_form import flat
from filestore.rows.frames import polars_schema

__all__ = ["Condition", "Predicate", "require_row_by_row"]

Predicate: TypeAlias = Union[str, "pl.Expr"]  # polars is not loaded yet, and a text knows no `|`
"""A condition of a user: SQL text, such as ``amount > 10 AND region IN ('a', 'b')``, or a polars expression.

A text has no subqueries: it is checked before polars parses it (`filestore.reading.condition_text`)."""

_POLARS_PREFIX = "_POLARS_"


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A predicate that was checked against a schema. Make it with `Condition.of`.

    Attributes:
        expression: It is true, false or null for each row. `filestore.reading.normal_form` has made it flat.
        columns: The columns that it reads, in the schema's order.
    """

    expression: pl.Expr
    columns: tuple[str, ...]

    @classmethod
    def of(cls, where: Predicate, schema: Schema) -> Condition:
        """Checks a predicate for the rows of a table.

        Raises:
            NotFound: it names a column that does not exist (``unknown-column``).
            InvalidRequest: it cannot be parsed, compares types that cannot be compared, is not a condition, or needs
                more than one row (``bad-predicate``).
        """
        types = pl.Schema(polars_schema(schema.to_arrow()))
        expression = flat(where if isinstance(where, pl.Expr) else _checked(where), types)
        columns = _columns(expression, where, schema)
        problem = _problem(expression, types)
        if problem is not None and isinstance(where, str):
            expression = flat(_typed(where, schema), types)
            problem = _problem(expression, types)
        if problem is not None:
            raise _bad(where, problem)
        return cls(expression, columns)

    def wanted(self, rows: pl.DataFrame) -> pl.Series:
        """Marks the rows that fulfil the condition.

        Raises:
            InvalidRequest: the condition fails for a row, such as by a cast.
        """
        try:
            mask = rows.select(self.expression.fill_null(False).alias("wanted")).to_series()
        except pl.exceptions.PolarsError as error:
            raise _bad(self.expression, str(error)) from error
        return mask if len(mask) == rows.height else mask.new_from_index(0, rows.height)


def _checked(where: str) -> pl.Expr:
    """Parses a text with polars, if it is allowed: see `filestore.reading.condition_text`."""
    # These imports load sqlglot, for which reads without a condition should not wait.
    from filestore.reading.condition_text import plain_text, problem_of
    from filestore.reading.condition_words import with_isnan

    text = plain_text(where)
    if (problem := problem_of(text)) is not None:
        raise _bad(where, problem)
    return _parsed(with_isnan(text), where)


def _typed(where: str, schema: Schema) -> pl.Expr:
    from filestore.reading.condition_text import plain_text
    from filestore.reading.condition_words import with_typed_literals

    return _parsed(with_typed_literals(plain_text(where), schema), where)


def _parsed(text: str, where: str) -> pl.Expr:
    try:
        return pl.sql_expr(text)
    except pl.exceptions.PolarsError as error:
        raise _bad(where, str(error)) from error


def require_row_by_row(expression: pl.Expr, schema: Schema) -> None:
    """Refuses an expression of which the result for a row does not depend on that row alone.

    Raises:
        NotFound: ``unknown-column``.
        InvalidRequest: ``bad-predicate``.
    """
    _columns(expression, expression, schema)


def _columns(expression: pl.Expr, where: Predicate, schema: Schema) -> tuple[str, ...]:
    nodes = list(_nodes(expression))
    try:
        named = set(expression.meta.root_names())
        wild = [n for n in nodes if n.meta.is_column_selection() and not n.meta.is_column()]
    except pl.exceptions.PolarsError as error:
        raise _bad(where, f"use no subquery ({error})") from error
    if wild or any(name.startswith(_POLARS_PREFIX) for name in named):
        raise _bad(where, "name its columns one by one, and use no subquery")
    if unknown := sorted(named - set(schema.names)):
        raise _unknown(unknown[0], where, schema)
    for node in nodes:
        if not _row_by_row(node):
            raise _bad(where, f"{node} needs more than one row; filter the result of the scan by it")
    return tuple(name for name in schema.names if name in named)


def _unknown(name: str, where: Predicate, schema: Schema) -> NotFound:
    problem = none_named("column", name, schema.names)
    if isinstance(where, str) and f'"{name}"' in where:
        problem += f". In SQL double quotes are for names: write '{name}' for a text"
    return NotFound(problem, code="unknown-column")


def _nodes(expression: pl.Expr) -> Iterator[pl.Expr]:
    """Yields an expression and all its parts. It is a loop since SQL is easily nested deeper than Python's stack."""
    open_nodes = [expression]
    while open_nodes:
        node = open_nodes.pop()
        yield node
        open_nodes += node.meta.pop()


def _row_by_row(node: pl.Expr) -> bool:
    """Returns whether the result for a row depends on it alone: aggregates and windows would get only one row group."""
    try:
        return node.meta.is_row_separable() or node.meta.is_literal()
    except pl.exceptions.PolarsError:
        return True  # polars cannot decide it without the schema, as for Python functions


def _problem(expression: pl.Expr, types: pl.Schema) -> str | None:
    """Returns polars' objection to the expression; None if it is a condition."""
    try:
        kind = types.to_frame().select(expression.alias("wanted")).to_series().dtype
    except pl.exceptions.PolarsError as error:
        return str(error)
    return None if kind == pl.Boolean else f"it is {kind}, not true or false"


def _bad(where: Predicate, problem: str) -> InvalidRequest:
    return InvalidRequest(f"cannot use {str(where)!r}: {problem.splitlines()[0]}", code="bad-predicate")
