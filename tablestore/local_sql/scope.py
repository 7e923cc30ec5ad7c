"""`Scope`: what names of columns mean in a SELECT. Pure.

Each table gets an alias of ours, and each column is written with it, so DuckDB never looks a name up by its own rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from tablestore.local_sql.refusal import NotLocalError, UnknownColumnError
from tablestore.local_sql.typed import Typed, identifier
from tablestore.local_sql.value_types import is_exact

__all__ = ["Output", "Scope", "Source"]


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a relation.

    Attributes:
        name: Its name.
        value: Its type, and what it follows from; its text is of no use to others.
    """

    name: str
    value: Typed


@dataclass(frozen=True, slots=True)
class Source:
    """A relation in FROM.

    Attributes:
        name: The name by which the query calls it; empty if it has none.
        alias: Ours.
        columns: Its columns.
    """

    name: str
    alias: str
    columns: tuple[Output, ...]

    def column(self, output: Output) -> Typed:
        """Returns one of its columns, as an expression."""
        return Typed(f"{self.alias}.{identifier(output.name)}", output.value.kind, output.value.uses)

    def named(self, name: str) -> Iterator[Typed]:
        """Yields its columns of a name, of which upper and lower case are one."""
        return (self.column(output) for output in self.columns if output.name.lower() == name.lower())


@dataclass
class Scope:
    """The tables of a SELECT.

    Attributes:
        outer: The scope of the query around it, whose columns it may name.
        sources: The tables.
        merged: The columns that USING has made one, by name in lower case, each with the number of its tables.
    """

    outer: Scope | None = None
    sources: list[Source] = field(default_factory=list)
    merged: dict[str, tuple[Typed, int]] = field(default_factory=dict)

    def with_source(self, source: Source) -> Scope:
        """Returns a scope with one more table."""
        return Scope(self.outer, [*self.sources, source], self.merged)

    def column(self, node: exp.Column) -> Typed:
        """Returns the column that a name means; refuses one that is not known, and one that may mean several."""
        if (found := self.find(node)) is not None:
            return found
        if self.outer is not None:
            return self.outer.column(node)
        raise UnknownColumnError(f"{node.sql('spark')} in it is no column of its tables")

    def find(self, node: exp.Column) -> Typed | None:
        """Returns the column of these tables that a name means, if it is one."""
        if len(node.parts) > 2 or not isinstance(node.this, exp.Identifier):
            raise NotLocalError(f"it has {node.sql('spark')}")
        if node.name.lower() in self.merged:
            value, tables = self.merged[node.name.lower()]
            if node.table or sum(1 for source in self.sources for _ in source.named(node.name)) != tables:
                raise NotLocalError(f"{node.sql('spark')} in it is beside the column of USING")
            return value
        sources = [one for one in self.sources if not node.table or one.name.lower() == node.table.lower()]
        found = [column for source in sources for column in source.named(node.name)]
        if len(found) > 1 or (node.table and len(sources) > 1):
            raise NotLocalError(f"{node.sql('spark')} in it may be several columns")
        if node.table and (not sources or not found) and next(self._named(node.table), None) is not None:
            raise NotLocalError(f"{node.sql('spark')} in it may be a part of a column")
        return found[0] if found else None

    def all(self) -> list[Output]:
        """Returns what ``*`` stands for."""
        if self.merged:
            raise NotLocalError("it has * behind USING")
        return [Output(one.name, source.column(one)) for source in self.sources for one in source.columns]

    def _named(self, name: str) -> Iterator[Typed]:
        return (column for source in self.sources for column in source.named(name))

    def merged_with(self, right: Source, names: Sequence[str], side: str) -> Typed:
        """Makes columns of both sides of a join one (USING); returns the condition that they are equal."""
        conditions = []
        found: dict[str, tuple[Typed, int]] = {}
        for name in names:
            left, others = self.find(exp.column(name)), [*right.named(name)]
            if left is None or len(others) != 1 or left.kind != others[0].kind or not is_exact(left.kind):
                raise NotLocalError(f"it has USING ({name}) of columns of two types")
            [other] = others
            uses = left.uses | other.uses
            texts = {"RIGHT": other.text, "FULL": f"coalesce({left.text}, {other.text})"}
            tables = self.merged[name.lower()][1] if name.lower() in self.merged else 1
            found[name.lower()] = Typed(texts.get(side, left.text), left.kind, uses), tables + 1
            conditions.append(f"{left.text} = {other.text}")
        self.merged.update(found)
        return Typed(" AND ".join(conditions), pa.bool_(), Typed.used_by(value for value, _ in found.values()))
