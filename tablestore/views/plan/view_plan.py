"""Decides whether a view is refreshed from what changed or as a whole, and by which key. Pure.

A view is refreshed incrementally if its query is a tree of nodes for which there are rules
(`tablestore.views.plan.nodes`), and its rows are known by a key: that of the joined rows, the groups, or the one that
the user gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from filestore.errors import InvalidRequest, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.model.text import name_list
from filestore.model.types import is_key_type
from tablestore.views.plan.block_reader import has_collation, read_nodes
from tablestore.views.plan.exactness import is_exact
from tablestore.views.plan.functions import check_signs, check_units, is_repeatable
from tablestore.views.plan.join_query import JoinQuery, Side
from tablestore.views.plan.join_table import GivenTable, output_key
from tablestore.views.plan.nodes import Block, Form, Node, Scan, UnionAll, columns_of, scans_of
from tablestore.views.plan.row_key import columns_equal_to, key_of_input, row_key, sources_of_key
from tablestore.views.plan.scope import NotPlainError
from tablestore.views.plan.two_tables import join_of_node
from tablestore.views.plan.with_clause import without_with
from tablestore.views.sql.view_query import ViewQuery
from tablestore.views.sql.view_settings import other_meaning

__all__ = ["Incremental", "Mode", "ViewPlan", "Whole", "check_key", "plan_view", "spelled", "with_key"]

_ANY_TABLE = GivenTable()
_CHANGES_LACK = "rowkind"
"""Changes have their kind in a column of this name."""


class Mode(StrEnum):
    """Says what happens to a view that cannot be refreshed incrementally (``view.incremental``)."""

    AUTO = "auto"
    """Such a view is computed as a whole each time."""
    REQUIRED = "required"
    """Such a view is refused."""


@dataclass(frozen=True, slots=True)
class Incremental:
    """A view that is refreshed from what has changed.

    Attributes:
        query: Its query, without WITH.
        node: The tree of that.
        key: The primary key of the result.
        given: Whether the user gave that key, because none follows from the query.
        exact: Whether it is known that the query has the same values each time that it runs, to the last bit.
        join: The query as a join by a primary key that can be kept bucket by bucket, if it is one.
    """

    query: ViewQuery
    node: Block | UnionAll
    key: tuple[str, ...]
    given: bool = False
    exact: bool = False
    join: JoinQuery | None = None

    @property
    def repeatable(self) -> bool:
        """Returns True: each time that the query runs, it has the same rows."""
        return True

    @property
    def is_row_by_row(self) -> bool:
        """Returns whether each row is made of one joined row."""
        return all(block.form is Form.ROWS for block in _blocks(self.node))

    def described(self) -> tuple[str, ...]:
        """Returns the steps of a refresh, a sentence each."""
        if self.join is not None:
            on = " and ".join(f"{left} = {right}" for left, right in self.join.on)
            return (
                f"read the changed rows of {self.join.left} and the changed keys of {self.join.right}",
                f"join the rows that they affect ({self.join.kind}, {on}), bucket by bucket",
                compared_by(self.key),
            )
        tables = name_list(tuple(dict.fromkeys(scan.table for scan in scans_of(self.node))))
        steps = [f"read the changed rows of {tables}", "find the rows of both versions that depend on them"]
        for block in _blocks(self.node):
            if block.address:
                what = "groups" if block.form is Form.GROUPS else "partitions"
                shown = name_list(tuple(address.name or address.shown for address in block.address))
                steps.append(f"find their {what} ({shown}), and compute these again from all their rows")
        return (*steps, compared_by(self.key))


@dataclass(frozen=True, slots=True)
class Whole:
    """A view that is computed as a whole.

    Attributes:
        reason: The reason, as a clause.
        repeatable: Whether the query has the same rows each time that it runs.
        key: The primary key of the result; empty without one.
    """

    reason: str
    repeatable: bool = True
    key: tuple[str, ...] = ()

    def described(self) -> tuple[str, ...]:
        """Returns the steps of a refresh, a sentence each."""
        return "compute all rows", compared_by(self.key) if self.key else "replace the stored ones"


ViewPlan = Incremental | Whole


def plan_view(
    query: ViewQuery,
    definitions: Mapping[str, TableDefinition],
    settings: Mapping[str, str],
    primary_key: Sequence[str] = (),
    table: GivenTable = _ANY_TABLE,
) -> ViewPlan:
    """Plans the refreshes of a view.

    Args:
        query: The query.
        definitions: Those of its tables, by name.
        settings: The settings of Spark with which it runs.
        primary_key: The key that the user gave, if any: its columns are taken to have no nulls.
        table: The view's table, as far as it is known. In one that does not fit, a join is kept like any other query.
    """
    if (reason := other_meaning(settings)) is not None:
        return Whole(reason, is_repeatable(query.tree))
    try:
        query = without_with(query)
        check_units(query.tokens)
        check_signs(query.tokens)
        node = read_nodes(query, definitions)
        exact = is_exact(query, definitions)
        join = _key_join(query, node, definitions)
        if join is not None and table.fits(join, definitions[join.left]):
            return Incremental(query, node, output_key(join, definitions[join.left]), exact=exact, join=join)
        _check_changes(node)
        try:
            key = _natural_key(node, primary_key)
            plan = Incremental(query, node, _with_more(key, spelled(primary_key, columns_of(node))), exact=exact)
        except NotPlainError:
            if not primary_key:
                raise
            plan = Incremental(query, node, spelled(primary_key, columns_of(node)), given=True, exact=exact)
        if has_collation(query) and (plan.given or not plan.is_row_by_row):
            raise NotPlainError("it has a collation, by which one group has several texts")
        return plan
    except NotPlainError as error:
        return Whole(str(error), is_repeatable(query.tree))


def _key_join(query: ViewQuery, node: Node, definitions: Mapping[str, TableDefinition]) -> JoinQuery | None:
    """Returns a query as a join whose rows are known by the key of its left table; None if it is none."""
    try:
        join = join_of_node(query, node)
    except NotPlainError:
        return None
    key = definitions[join.left].primary_key
    return join if key and set(key) <= {column.source for column in join.of_side(Side.LEFT)} else None


def _check_changes(node: Node) -> None:
    for scan in scans_of(node):
        if any(name.lower() == _CHANGES_LACK for name in scan.definition.schema.names):
            raise NotPlainError(f"{scan.table} has a column rowkind, so its changes cannot be read")


def with_key(plan: ViewPlan, schema: Schema, primary_key: Sequence[str], mode: Mode) -> ViewPlan:
    """Checks a plan with the types of the result and with what the user asked for.

    Raises:
        Unsupported: ``view-not-incremental``: it is to be incremental, and cannot be.
        InvalidRequest: ``view-key``: the user's key is another one than that of the result.
    """
    if isinstance(plan, Incremental):
        for name in plan.key:
            kind = schema.column(name).type
            if not is_key_type(kind):
                plan = Whole(f"its key would be {name}, which is {kind}, and a key has to be exact")
                break
    if isinstance(plan, Incremental):
        check_key(plan.key, primary_key)
    if isinstance(plan, Whole) and mode is Mode.REQUIRED:
        raise Unsupported(
            f"the view cannot be refreshed incrementally: {plan.reason}; leave out view.incremental = required to "
            "compute it as a whole each time",
            code="view-not-incremental",
        )
    return plan


def check_key(key: Sequence[str], given: Sequence[str]) -> None:
    """Checks the key that a user gave, if any; `InvalidRequest` (``view-key``) if the query has another one."""
    if given and {name.lower() for name in given} != {name.lower() for name in key}:
        raise InvalidRequest(
            f"the primary key of the result is ({name_list(key)}), which follows from the query, and not "
            f"({name_list(given)}): leave PRIMARY KEY out, or give that one",
            code="view-key",
        )


def compared_by(key: Sequence[str]) -> str:
    """Returns the last step of a refresh that replaces no rows."""
    return f"compare them by key ({name_list(key)}) with the stored rows, and write those that differ"


def _blocks(node: Node) -> Iterator[Block]:
    """Yields the SELECTs of a node, the innermost first."""
    match node:
        case Block():
            for source in node.inputs:
                yield from _blocks(source.node)
            yield node
        case UnionAll():
            for branch in node.branches:
                yield from _blocks(branch)


def spelled(key: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Returns names as the columns have them: a statement may write them in another case."""
    known = {name.lower(): name for name in columns}
    return tuple(known.get(name.lower(), name) for name in key)


def _with_more(key: tuple[str, ...], given: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the key that was given if it has all columns of the one that follows, and more: then it is one, too."""
    return given if set(given) > set(key) else key


def _natural_key(node: Block | UnionAll, given: Sequence[str]) -> tuple[str, ...]:
    """Returns the key that follows from a query; raises `NotPlainError` if none does, or if it may be null."""
    if isinstance(node, UnionAll):
        raise NotPlainError("it is a UNION ALL of queries, whose rows are known by no key: give PRIMARY KEY")
    without_nulls = {name.lower() for name in given}
    if node.form is Form.GROUPS:
        return tuple(_group_key(node, without_nulls))
    names = row_key(node.inputs)
    if not names:
        sources = (node.inputs[number] for number in sources_of_key(node.inputs))
        missing = next((one.node for one in sources if key_of_input(one) is None), None)
        what = missing.table if isinstance(missing, Scan) else "a subquery of it"
        raise NotPlainError(f"{what} has no primary key")
    found = []
    for name in names:
        equal = columns_equal_to(name, node.inputs)
        item = next((item for item in node.items if item.origin in equal), None)
        source = node.inputs[name.source]
        what = source.node.table if isinstance(source.node, Scan) else source.alias or "a subquery"
        if item is None:
            raise NotPlainError(
                f"its columns lack {name.column} of the primary key of {what}, by which its rows are known"
            )
        if item.nullable and item.name.lower() not in without_nulls:
            raise NotPlainError(f"its key would have {item.name}, which may be null, as in a row without one of {what}")
        found.append(item.name)
    return tuple(dict.fromkeys(found))


def _group_key(block: Block, without_nulls: set[str]) -> Iterator[str]:
    for group in block.address:
        if not group.name:
            what = "the start of " if group.text.endswith(".start") and not group.shown.endswith(".start") else ""
            raise NotPlainError(f"its columns lack {what}the group {group.shown}, by which its rows are known")
        if group.nullable and group.name.lower() not in without_nulls:
            raise NotPlainError(
                f"the group {group.shown} may be null, and a key may not: add WHERE {group.shown} IS NOT NULL, or give "
                "PRIMARY KEY if there are no nulls"
            )
        yield group.name
