"""The inputs of a SELECT that subqueries in its expressions are: EXISTS, IN, and those that are values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from filestore.model.names import quoted
from tablestore.views.plan.equal_columns import correlated, searched
from tablestore.views.plan.nodes import Block, Form, Input, Item, Name, Node, Scan, Term, UnionAll, scans_of
from tablestore.views.plan.scope import NotPlainError, Scope, column_type, walked
from tablestore.views.plan.select_clauses import (
    CLAUSES_OF_SUBQUERIES,
    check_clauses,
    check_groups,
    conditions_of_joins,
    expressions_of,
)
from tablestore.views.sql.select_text import SelectText
from tablestore.views.sql.view_query import ViewQuery, parsed_query

__all__ = ["Subqueries"]


@dataclass(frozen=True, slots=True)
class Subqueries:
    """Reads the subqueries in the expressions of a query.

    Attributes:
        query: The query.
        inputs_of: Returns the inputs of FROM of a SELECT.
    """

    query: ViewQuery
    inputs_of: Callable[[SelectText], tuple[Input, ...]]

    def of(self, select: SelectText, scope: Scope) -> Iterator[Input]:
        """Yields what the subqueries in the expressions of a SELECT read.

        Args:
            select: The SELECT.
            scope: The inputs of its FROM.

        Raises:
            NotPlainError: there is one that no rule is known for.
        """
        tree = select.tree
        for clause in ("having", "qualify"):  # where a name means the column of the result first
            if (part := tree.args.get(clause)) is not None and any(walked(part, exp.Query)):
                raise NotPlainError(f"it has a subquery in {clause.upper()}")
        for join in tree.args.get("joins") or []:
            on = join.args.get("on")
            if on is not None and (join.side or join.kind not in ("", "INNER")) and any(walked(on, exp.Query)):
                # a row without a partner has no column that names a row of the subquery
                raise NotPlainError("it has a subquery in the condition of another join than INNER JOIN")
        for part in (*expressions_of(tree), *conditions_of_joins(tree)):
            for found in walked(part, exp.Query):
                yield self._subquery(found, select, scope)

    def _subquery(self, found: exp.Expr, select: SelectText, scope: Scope) -> Input:
        inner = found.this if isinstance(found, exp.Subquery) else found
        if not isinstance(inner, exp.Select) or inner.args.get("from_") is None:
            raise NotPlainError("it has a subquery in an expression that is no plain SELECT")
        if any(
            query for part in (*expressions_of(inner), *conditions_of_joins(inner)) for query in walked(part, exp.Query)
        ):
            raise NotPlainError("it has a subquery within one of an expression")
        check_clauses(inner, CLAUSES_OF_SUBQUERIES)
        check_groups(inner)
        text = self._from_of_subquery(inner, select)
        inputs = self.inputs_of(text)
        for condition in conditions_of_joins(inner):
            list(_every(inputs).roots(condition))  # raises if one is a column of the query around it
        for source in inputs:
            _check_own_names(source.node)
        pairs = list(correlated(inner, Scope(inputs), scope))
        if isinstance(found.parent, exp.In) and found.parent.args.get("query") is found:  # and no value of a list
            pairs += searched(found.parent, inner, Scope(inputs), select.tree, scope)
        if not pairs:
            tables = ", ".join(dict.fromkeys(scan.table for source in inputs for scan in scans_of(source.node)))
            raise NotPlainError(f"of {tables} in a subquery no column has to equal one of the query around it")
        if len(inputs) == 1 and isinstance(inputs[0].node, Scan):
            equal = [(name.column, outer) for name, outer in pairs]
            return replace(inputs[0], span=None, needs_alias=False, member=False, visible=False, equal=tuple(equal))
        return _joined_subquery(text, inputs, pairs)

    def _from_of_subquery(self, inner: exp.Select, select: SelectText) -> SelectText:
        """Returns a subquery of an expression up to the end of its FROM: a SELECT of the rows that its tables make."""
        table = next(inner.args["from_"].find_all(exp.Table), None)
        if table is None or "start" not in table.parts[0].meta:
            raise NotPlainError("it has a subquery in an expression that reads no plain table")
        for tokens in select.enclosing(int(table.parts[0].meta["start"])):
            own = SelectText(inner, tuple(tokens))
            if parsed_query(self.query.text[slice(*own.span)]) == inner and "from" in own.clauses:
                end = own.clauses["from"][1]
                tree = inner.copy()
                for clause in ("where", "group", "having", "distinct"):
                    tree.set(clause, None)
                return SelectText(tree, tuple(token for token in tokens if token.start < end))
        raise NotPlainError("it has a subquery in an expression that is no plain SELECT")


def _every(inputs: tuple[Input, ...]) -> Scope:
    """Returns the scope of ON: that of all that FROM joins, also by a semi-join."""
    return Scope(tuple(replace(source, visible=True) for source in inputs if source.span is not None))


def _check_own_names(node: Node) -> None:
    """Raises `NotPlainError` if a subquery in FROM of another one may have a column of the query around that."""
    match node:
        case UnionAll():
            for branch in node.branches:
                _check_own_names(branch)
        case Block():
            scope = _every(node.inputs)
            for part in (*expressions_of(node.text.tree), *conditions_of_joins(node.text.tree)):
                if any(walked(part, exp.Query)):
                    raise NotPlainError("it has a subquery within one of an expression")
                list(scope.roots(part))
            for source in node.inputs:
                _check_own_names(source.node)


def _joined_subquery(text: SelectText, inputs: tuple[Input, ...], pairs: Sequence[tuple[Name, Name | Term]]) -> Input:
    """Returns what a subquery of an expression reads that joins tables: the columns that have to equal others."""
    first, *rest = inputs
    if unequal := [source for source in (first, *rest) if source.member and not source.equal][1:]:
        raise NotPlainError(
            f"{unequal[0].alias} is joined in a subquery without a column that has to equal another one"
        )
    items, listed, equal = [], [], []
    for number, (name, outer) in enumerate(pairs):
        source, column = inputs[name.source], f"c{number}"
        items.append(Item(column, name, True, column_type(source.node, name.column)))
        listed.append(f"{source.text_of(name.column)} AS {quoted(column)}")
        equal.append((column, outer))
    block = Block(text, Form.ROWS, inputs, tuple(items), listed=", ".join(listed))
    return Input(block, "", None, False, False, False, tuple(equal))
