"""Finds in the tree of a query that it joins two tables by the primary key of one, and nothing else. Pure.

Such a join can be kept bucket by bucket, whatever size its tables have (`tablestore.views.joins`), and a table of
events is looked up by such a join (`tablestore.views.events`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from filestore.model.definition import TableDefinition
from filestore.model.text import name_list
from filestore.model.types import is_wider, to_sql
from tablestore.views.plan.block_reader import read_nodes
from tablestore.views.plan.join_query import JoinColumn, JoinKind, JoinQuery, Side, SystemTime
from tablestore.views.plan.nodes import Block, Name, Node, Scan
from tablestore.views.plan.scope import NotPlainError, Scope
from tablestore.views.sql.clauses import conjuncts, other_clauses
from tablestore.views.sql.view_query import ViewQuery, shown

__all__ = ["join_of", "join_of_node"]


def join_of(query: ViewQuery, definitions: Mapping[str, TableDefinition]) -> JoinQuery:
    """Returns the join that a query is.

    Args:
        query: The query.
        definitions: Those of its tables, by name.

    Raises:
        NotPlainError: it is none, or has more than the columns and the equalities of a join.
    """
    return join_of_node(query, read_nodes(query, definitions))


def join_of_node(query: ViewQuery, node: Node) -> JoinQuery:
    """Returns the join that the tree of a query is; raises as `join_of`."""
    if not isinstance(node, Block):
        raise NotPlainError("it does not join two tables")
    tree = node.text.tree
    if found := other_clauses(tree):
        raise NotPlainError(f"it has {found[0].upper()}")
    scans = [source.node for source in node.inputs if isinstance(source.node, Scan) and source.visible]
    if len(scans) != 2 or len(node.inputs) != 2:
        raise NotPlainError("it does not join two tables")
    return _TwoTables(query, node, scans).join()


class _TwoTables:
    """A SELECT over two tables.

    Attributes:
        query: The query.
        block: The SELECT.
        scans: The tables.
    """

    def __init__(self, query: ViewQuery, block: Block, scans: list[Scan]) -> None:
        self.query, self.block, self.scans = query, block, scans
        self._scope = Scope(block.inputs)
        [self._join] = block.text.tree.args["joins"]
        self._merged = {name.name.lower() for name in self._join.args.get("using") or []}

    def join(self) -> JoinQuery:
        pairs = list(dict.fromkeys(self._pairs()))
        left, right = self._order(pairs)
        on = {names[right].column: names[left].column for names in pairs}
        if len(on) < len(pairs):
            raise NotPlainError(f"a column of {self.scans[right].table} has to equal several of the other table")
        self._check_key(right, on)
        sides = {left: Side.LEFT, right: Side.RIGHT}
        columns = tuple(
            JoinColumn(item.alias or name.column, sides[name.source], name.column)
            for item in self.block.text.tree.expressions
            for name in [self._name(item.unalias())]
        )
        key = self.scans[right].definition.primary_key
        return JoinQuery(
            self.scans[left].table,
            self.scans[right].table,
            JoinKind.INNER if self.block.inputs[right].member else JoinKind.LEFT,
            tuple((on[name], name) for name in key),
            columns,
            self._time(left, right),
        )

    def _order(self, pairs: list[tuple[Name, Name]]) -> tuple[int, int]:
        """Returns the numbers of the left and of the right table: this one is joined by its key.

        A row of the left one stays without a row of the other. In an inner join both may be the left one: it is the
        one that the query names first, if it can be.
        """
        timed = [number for number in (0, 1) if self._time_of(number) is not None]
        rights = [number for number in (1, 0) if self.block.inputs[1 - number].member]
        keys = {number: set(self.scans[number].definition.primary_key) for number in rights}
        fitting = (number for number in rights if {names[number].column for names in pairs} == keys[number] != set())
        right = next(fitting, rights[0])
        if timed and timed != [right]:
            table = self.scans[timed[0]].table
            raise NotPlainError(f"FOR SYSTEM_TIME AS OF is behind {table}, which is not joined by its primary key")
        return 1 - right, right

    def _check_key(self, right: int, on: Mapping[str, str]) -> None:
        scan = self.scans[right]
        key = scan.definition.primary_key
        if not key or set(on) != set(key):
            raise NotPlainError(
                f"the join is by {name_list(tuple(on)) or 'no columns'} of {scan.table}, and the primary key of that "
                f"table is {name_list(key) or 'missing'}"
            )
        for own, other in on.items():
            kind = self.scans[1 - right].definition.schema.column(other).type
            wanted = scan.definition.schema.column(own).type
            if not (kind == wanted or is_wider(kind, wanted) or is_wider(wanted, kind)):
                raise NotPlainError(f"{other} is {to_sql(kind)}, and has to equal {own}, which is {to_sql(wanted)}")

    def _pairs(self) -> Iterator[tuple[Name, Name]]:
        """Yields pairs of a column of the first table and a column of the second one that have to be equal."""
        for name in sorted(self._merged):
            spelled = [scan.definition.schema.spelled(name) for scan in self.scans]
            first, second = (Name(number, column or name) for number, column in enumerate(spelled))
            yield first, second
        for condition in conjuncts(self._join.args.get("on")):
            if not isinstance(condition, exp.EQ):
                raise NotPlainError(f"the condition {shown(condition)} is no equality of two columns")
            names = sorted((self._name(condition.left), self._name(condition.right)), key=lambda name: name.source)
            if names[0].source == names[1].source:
                raise NotPlainError(f"the condition {shown(condition)} compares columns of one table")
            yield names[0], names[1]

    def _name(self, column: exp.Expr) -> Name:
        name = self._scope.whole(column)
        if name is None:
            tables = " or ".join(f"{scan.table} ({name_list(scan.definition.schema.names)})" for scan in self.scans)
            raise NotPlainError(f"{shown(column)} is no column of {tables}")
        of_both = all(scan.definition.schema.spelled(column.name) is not None for scan in self.scans)
        if of_both and not column.args.get("table") and column.name.lower() not in self._merged:
            raise NotPlainError(f"both tables have a column {column.name!r}: say of which it is")
        return name

    def _time_of(self, number: int) -> exp.Expr | None:
        return self.query.uses[self.scans[number].use].time

    def _time(self, left: int, right: int) -> SystemTime | None:
        """Returns the time as of which rows of the left table are looked up in the right one."""
        time, events = self._time_of(right), self.scans[left]
        if time is None or isinstance(time, exp.CurrentTimestamp):
            return None if time is None else SystemTime()
        name = self._name(time)
        if name.source != left:
            raise NotPlainError(f"FOR SYSTEM_TIME AS OF {shown(time)} is no time of {events.table}")
        kind = events.definition.schema.column(name.column).type
        if not pa.types.is_timestamp(kind):
            raise NotPlainError(
                f"{events.table}.{name.column} is {to_sql(kind)}, and events are looked up as of a TIMESTAMP"
            )
        return SystemTime(name.column)
