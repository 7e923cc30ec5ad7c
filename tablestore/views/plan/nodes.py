"""The tree of a query: scans, SELECTs over them, and what of it a change of a table reaches. Pure.

A node is a table at one place of the query (`Scan`), a SELECT (`Block`), or several with UNION ALL (`UnionAll`). A
SELECT first makes *joined rows* by FROM and WHERE, and then rows of the result: one for each (`Form.ROWS`), one for
those that share a group (`Form.GROUPS`), or one for each with values of others that share a partition
(`Form.PARTITIONS`). Its inputs are of two kinds:

member      each joined row has exactly one row of it: FROM a, JOIN a, and a in a LEFT JOIN b
dependent   joined rows depend on those of its rows that equal them in some columns: b in a LEFT JOIN b ON b.k = a.x,
            in a LEFT SEMI JOIN b, in EXISTS (SELECT … FROM b WHERE b.k = a.x), in a.x IN (SELECT k FROM b);
            of a subquery in an expression that joins tables it is what its FROM makes of them

So what a change of an input reaches is found, in each of two versions, by its own changed rows if it is a member, and
by the values of those columns in its changed rows if it is a dependent. This is a superset: whatever else WHERE or ON
says is applied to the joined rows as they are in that version, with and without a partner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from tablestore.views.sql.select_text import SelectText, Span

__all__ = [
    "Address",
    "Block",
    "Form",
    "Input",
    "Item",
    "Name",
    "Node",
    "Scan",
    "Term",
    "UnionAll",
    "columns_of",
    "scans_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A table at one place of the query.

    Attributes:
        use: The number of the place (`ViewQuery.uses`).
        table: ``database.table``.
        definition: Its definition.
    """

    use: int
    table: str
    definition: TableDefinition


@dataclass(frozen=True, slots=True)
class Name:
    """A column of an input.

    Attributes:
        source: The number of the input in its SELECT.
        column: The column.
    """

    source: int
    column: str

    @property
    def sources(self) -> frozenset[int]:
        """The number of the input, as a set."""
        return frozenset({self.source})


@dataclass(frozen=True, slots=True)
class Term:
    """An expression over joined rows.

    Attributes:
        text: It, as a part of a SELECT.
        kind: Its type.
        sources: The numbers of the inputs whose columns it has.
    """

    text: str
    kind: pa.DataType
    sources: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """An input of a SELECT.

    Attributes:
        node: What it is.
        alias: The name by which its SELECT calls it; empty if it has none.
        span: Its position in the text; None in a subquery of an expression, where nothing takes its place.
        needs_alias: Whether its alias is its name alone, so that another name in its place needs one.
        member: Whether it is a member, and no dependent.
        visible: Whether the columns of the SELECT may be its own.
        equal: Its columns, each with the column of another input, or the expression over others, that it has to equal.
        first_by: Columns of which no two rows that WHERE leaves have the same values, since it leaves the first rows of
            partitions by them alone; empty without that.
    """

    node: Node
    alias: str
    span: Span | None
    needs_alias: bool
    member: bool
    visible: bool
    equal: tuple[tuple[str, Name | Term], ...]
    first_by: tuple[str, ...] = ()

    def text_of(self, column: str) -> str:
        """Returns a column as its SELECT names it."""
        return ".".join(quoted(part) for part in (self.alias, column) if part)


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the result.

    Attributes:
        name: Its name.
        origin: The column of an input that it is; None for any other expression.
        nullable: Whether it may be null, as far as that can be seen.
        kind: Its type; None if it is another expression than a column, of which only Spark knows the type.
        numbers: Of ``row_number()`` the columns of the result by which its partitions are.
    """

    name: str
    origin: Name | None
    nullable: bool
    kind: pa.DataType | None = None
    numbers: tuple[str, ...] = ()


class Form(StrEnum):
    """The rows that a SELECT makes of its joined rows."""

    ROWS = "rows"
    """One row for each."""
    GROUPS = "groups"
    """One row for those that are equal in some expressions: GROUP BY, DISTINCT."""
    PARTITIONS = "partitions"
    """One row for each, with values of all that are equal in some expressions: OVER (PARTITION BY …)."""


@dataclass(frozen=True, slots=True)
class Address:
    """An expression over joined rows whose values say which rows of the result a change reaches.

    Attributes:
        name: The column of the result that it is; empty if none is.
        text: It, as a part of a SELECT; of ``window(…)`` its start.
        shown: It, for messages.
        local: The member from whose row alone it follows, for every row of it, also for those that WHERE leaves out:
            it fails for none. None if there is no such member.
        nullable: Whether it may be null, as far as that can be seen.
        column: The column of that member that it is; empty for any other expression.
    """

    name: str
    text: str
    shown: str
    local: int | None
    nullable: bool
    column: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A SELECT.

    Attributes:
        text: Its text.
        form: Its form.
        inputs: Its inputs, those of FROM first and in their order.
        items: The columns of the result.
        address: Of `Form.GROUPS` the groups, of `Form.PARTITIONS` what all its partitions have in common.
        listed: What is selected in place of its own columns, where it is FROM of a subquery in an expression.
    """

    text: SelectText
    form: Form
    inputs: tuple[Input, ...]
    items: tuple[Item, ...]
    address: tuple[Address, ...] = ()
    listed: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class UnionAll:
    """The rows of several SELECTs, with the names of the first one.

    Attributes:
        branches: They.
    """

    branches: tuple[Block, ...]


Node = Scan | Block | UnionAll


def columns_of(node: Node) -> tuple[str, ...]:
    """Returns the names of a node's columns."""
    match node:
        case Scan():
            return tuple(node.definition.schema.names)
        case Block():
            return tuple(item.name for item in node.items)
        case UnionAll():
            return columns_of(node.branches[0])


def scans_of(node: Node) -> Iterator[Scan]:
    """Yields the scans of a node in the order of the text of FROM; those in subqueries of expressions come last."""
    match node:
        case Scan():
            yield node
        case Block():
            for source in node.inputs:
                yield from scans_of(source.node)
        case UnionAll():
            for branch in node.branches:
                yield from scans_of(branch)
