"""`Scope`: what the names of columns mean in a SELECT. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tablestore.views.plan.nodes import Block, Input, Name, Node, Scan, columns_of
from tablestore.views.sql.view_query import shown

__all__ = ["NotPlainError", "Root", "Scope", "column_type", "walked"]

_DIALECT = "spark"


class NotPlainError(Exception):
    """A query cannot be refreshed incrementally; the message is the reason, as a clause."""


@dataclass(frozen=True, slots=True)
class Root:
    """The column of an input from which a name begins.

    Attributes:
        name: The column.
        is_whole: Whether the name is that column, and no field of it.
    """

    name: Name
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """The inputs of a SELECT by the names that it gives them. Names are compared without case, as in Spark."""

    inputs: tuple[Input, ...]

    def __post_init__(self) -> None:
        """Raises `NotPlainError` if two inputs have one name."""
        aliases = [source.alias.lower() for source in self.inputs if source.visible and source.alias]
        if len(set(aliases)) < len(aliases):
            raise NotPlainError("two of its tables have one name")

    def root(self, column: exp.Expr) -> Root | None:
        """Returns the column of an input that a name means; None if it is none, such as the alias of an expression."""
        if not isinstance(column, exp.Column):
            return None
        parts = [part.name for part in column.parts]
        if len(parts) > 1:
            for number, source in self._visible():
                if source.alias.lower() == parts[0].lower() and (name := _column(source, parts[1])) is not None:
                    return Root(Name(number, name), len(parts) == 2)  # the input and the column
        # of a column of USING, the one of the earlier table counts
        for number, source in self._visible():
            if (name := _column(source, parts[0])) is not None:
                return Root(Name(number, name), len(parts) == 1)
        return None

    def whole(self, column: exp.Expr) -> Name | None:
        """Returns the column that an expression is; None if it is none."""
        root = self.root(column)
        return root.name if root is not None and root.is_whole else None

    def type_of(self, column: exp.Expr) -> pa.DataType | None:
        """Returns the type of the column that an expression is; None if it is none, or only Spark knows the type."""
        name = self.whole(column)
        return None if name is None else column_type(self.inputs[name.source].node, name.column)

    def roots(self, expression: exp.Expr) -> Iterator[Root]:
        """Yields the columns on which an expression depends; raises `NotPlainError` if one is unknown."""
        for column in walked(expression, exp.Column):
            if (root := self.root(column)) is None:
                raise NotPlainError(f"{shown(column)} in {shown(expression)} is no column of its tables")
            yield root

    def normal(self, expression: exp.Expr) -> str:
        """Returns a text that is equal for expressions that differ only in how they name columns."""

        def named(node: exp.Expr) -> exp.Expr:
            if (name := self.whole(node)) is not None:
                return exp.column(name.column, table=f"_{name.source}", quoted=True)
            return node

        while isinstance(expression, exp.Paren):
            expression = expression.this
        return expression.copy().transform(named).sql(_DIALECT, normalize_functions="lower", comments=False)

    def _visible(self) -> Iterator[tuple[int, Input]]:
        return ((number, source) for number, source in enumerate(self.inputs) if source.visible)


def _column(source: Input, name: str) -> str | None:
    wanted = name.lower()
    return next((known for known in columns_of(source.node) if known.lower() == wanted), None)


def column_type(node: Node, column: str) -> pa.DataType | None:
    """Returns the type of a node's column; None if it is that of an expression, which only Spark knows."""
    if isinstance(node, Scan):
        return node.definition.schema.column(column).type
    if isinstance(node, Block):
        return next(item.kind for item in node.items if item.name == column)
    return None


def walked(expression: exp.Expr, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Yields the parts of an expression that are of some kinds, without those of the queries in it."""
    for node in expression.walk(prune=lambda one: isinstance(one, exp.Query) and one is not expression):
        if isinstance(node, kinds):
            yield node
