"""Resolves names of columns in the query of a view, and checks that its joins are by primary keys. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from filestore.model.definition import TableDefinition
from tablestore.views.join_query import conjuncts
from tablestore.views.view_query import ViewQuery, shown

__all__ = ["NotPlainError", "Root", "Source", "SourceNames", "plain_joins"]

_DIALECT = "spark"


class NotPlainError(Exception):
    """A query cannot be refreshed incrementally; the message is the reason, as a clause."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table of FROM.

    Attributes:
        alias: The name by which the query calls it.
        table: ``database.table``.
        definition: Its definition.
        optional: Whether a row of the result may have none of it: it is LEFT JOINed.
        equal: The columns of earlier tables that its key has to equal, in the order of the key, each as the name of
            its table and its own. Empty for the first table.
    """

    alias: str
    table: str
    definition: TableDefinition
    optional: bool = False
    equal: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key of the table."""
        return self.definition.primary_key


@dataclass(frozen=True, slots=True)
class Root:
    """The column of a table from which a name begins.

    Attributes:
        source: The table.
        column: The column.
        is_whole: Whether the name is that column, and no field of it.
    """

    source: Source
    column: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class SourceNames:
    """The tables of FROM by the names that the query gives them. Names are compared without case, as in Spark."""

    sources: tuple[Source, ...]

    @classmethod
    def of(cls, query: ViewQuery, definitions: Mapping[str, TableDefinition]) -> SourceNames:
        """Returns the tables of a query without subqueries; raises `NotPlainError` if two have one name."""
        sources = tuple(Source(use.alias, use.name, definitions[use.name]) for use in query.uses)
        if len({source.alias.lower() for source in sources}) < len(sources):
            raise NotPlainError("two of its tables have one name")
        return cls(sources)

    def root(self, column: exp.Column) -> Root | None:
        """Returns the column of a table that a name means; None if it is none, such as the alias of an expression."""
        parts = [part.name for part in column.parts]
        if len(parts) > 1:
            for source in self.sources:
                if source.alias.lower() == parts[0].lower() and (name := _column(source, parts[1])) is not None:
                    return Root(source, name, len(parts) == 2)  # the table and the column
        # of a column of USING, the one of the earlier table counts
        for source in self.sources:
            if (name := _column(source, parts[0])) is not None:
                return Root(source, name, len(parts) == 1)
        return None

    def roots(self, expression: exp.Expr) -> Iterator[Root]:
        """Yields the columns of tables on which an expression depends; raises `NotPlainError` if one is unknown."""
        for column in expression.find_all(exp.Column):
            if (root := self.root(column)) is None:
                raise NotPlainError(f"{shown(column)} in {shown(expression)} is no column of its tables")
            yield root

    def normal(self, expression: exp.Expr) -> str:
        """Returns a text that is equal for expressions that differ only in how they name columns."""

        def named(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and (root := self.root(node)) is not None and root.is_whole:
                return exp.column(root.column, table=root.source.alias, quoted=True)
            return node

        while isinstance(expression, exp.Paren):
            expression = expression.this
        return expression.copy().transform(named).sql(_DIALECT, normalize_functions="lower", comments=False)


def _column(source: Source, name: str) -> str | None:
    return source.definition.schema.spelled(name)


def plain_joins(tree: exp.Select, names: SourceNames) -> tuple[Source, ...]:
    """Returns the tables of FROM; raises `NotPlainError` if a row of the first may have several of another one."""
    source, joins = tree.args.get("from_"), tree.args.get("joins") or []
    parts = [part.this for part in (source, *joins) if part is not None]
    if not parts or not all(isinstance(part, exp.Table) for part in parts) or len(parts) != len(names.sources):
        raise NotPlainError("it does not read plain tables")
    if any(part.args.get("joins") for part in parts):
        raise NotPlainError("its joins are in parentheses")
    if len(parts) > _MOST_TABLES:
        raise NotPlainError(f"it joins more than {_MOST_TABLES} tables")
    driving = names.sources[0]
    if not driving.key:
        raise NotPlainError(f"{driving.table} has no primary key")
    if unread := [source.table for source in names.sources if _column(source, "rowkind") is not None]:
        raise NotPlainError(f"{unread[0]} has a column rowkind, so its changes cannot be read")
    found = [driving]
    for place, (join, joined) in enumerate(zip(joins, names.sources[1:], strict=True), 1):
        kind = " ".join(filter(None, [join.method, join.side, join.kind])).upper()
        if kind not in ("", "INNER", "LEFT", "LEFT OUTER") or not (join.args.get("on") or join.args.get("using")):
            raise NotPlainError(f"it has a {kind or 'CROSS'} JOIN".replace("  ", " "))
        equal = _equal_to_key(join, joined, names.sources[:place], names)
        found.append(replace(joined, optional=join.side.upper() == "LEFT", equal=equal))
    return tuple(found)


_MOST_TABLES = 3


def _equal_to_key(
    join: exp.Join, joined: Source, earlier: Sequence[Source], names: SourceNames
) -> tuple[tuple[str, str], ...]:
    """Returns the columns of earlier tables that the key of a joined table has to equal, so that no row has several."""
    if not joined.key:
        raise NotPlainError(f"{joined.table} has no primary key")
    pairs = dict(_pairs(join, joined, earlier, names))
    if missing := [name for name in joined.key if name not in pairs]:
        raise NotPlainError(
            f"{joined.table} is not joined by its primary key: no column of an earlier table has to equal {missing[0]}"
        )
    for name in joined.key:
        own, other = (_type(column) for column in (Root(joined, name, is_whole=True), pairs[name]))
        if own != other and not (pa.types.is_integer(own) and pa.types.is_integer(other)):
            raise NotPlainError(f"{joined.table} is joined by {name}, which is {own}, with a column that is {other}")
    return tuple((pairs[name].source.alias, pairs[name].column) for name in joined.key)


def _type(root: Root) -> pa.DataType:
    return root.source.definition.schema.column(root.column).type


def _pairs(join: exp.Join, joined: Source, earlier: Sequence[Source], names: SourceNames) -> Iterator[tuple[str, Root]]:
    """Yields columns of a joined table, each with a column of an earlier table that it has to equal."""
    for column in join.args.get("using") or []:
        other = next((source for source in earlier if _column(source, column.name) is not None), None)
        own = _column(joined, column.name)
        if other is not None and own is not None:
            yield own, Root(other, _column(other, column.name) or "", is_whole=True)
    for condition in conjuncts(join.args.get("on")):
        if not isinstance(condition, exp.EQ):
            continue
        sides = [names.root(side) for side in (condition.left, condition.right) if isinstance(side, exp.Column)]
        whole = [root for root in sides if root is not None and root.is_whole]
        own_side = [root for root in whole if root.source is joined]
        others = [root for root in whole if any(root.source is source for source in earlier)]
        if len(own_side) == 1 and len(others) == 1:
            yield own_side[0].column, others[0]
