"""Reads the tree of a query: `tablestore.views.plan.nodes`. Pure.

What is not understood here raises `NotPlainError`, and such a view is computed as a whole. Each part that is read by
its position in the text is parsed again by itself, and has to be the same as in the tree of the whole query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token

from filestore.model.definition import TableDefinition
from tablestore.views.plan.equal_columns import joined, with_equal_columns
from tablestore.views.plan.first_rows import numbered_by, with_first_rows
from tablestore.views.plan.functions import (
    WINDOW_PARTS,
    check_functions,
    check_windows,
    is_time,
    is_window,
    truncates_time,
)
from tablestore.views.plan.nodes import Address, Block, Form, Input, Item, Name, Scan, UnionAll
from tablestore.views.plan.nulls import may_be_null
from tablestore.views.plan.row_key import row_key
from tablestore.views.plan.scope import NotPlainError, Scope, walked
from tablestore.views.plan.select_clauses import CLAUSES, check_clauses, check_groups, expressions_of, name_of_clause
from tablestore.views.plan.subqueries import Subqueries
from tablestore.views.plan.values import type_of
from tablestore.views.sql.select_text import SelectText, Span, union_nodes, union_parts
from tablestore.views.sql.view_query import ViewQuery, parsed_query, shown

__all__ = ["has_collation", "read_nodes"]


def read_nodes(query: ViewQuery, definitions: Mapping[str, TableDefinition]) -> Block | UnionAll:
    """Returns the tree of a query.

    Args:
        query: The query.
        definitions: Those of its tables, by name.

    Raises:
        NotPlainError: there is something in it that no rule is known for.
    """
    if query.has_pipe:
        raise NotPlainError("it has a pipe (|>)")
    if query.tree.find(exp.Pivot) is not None:
        raise NotPlainError("it has PIVOT or UNPIVOT, by which a row is not that of one row of its table")
    check_functions(query.tree)
    reader = _Reader(query, definitions, {use.span[0]: number for number, use in enumerate(query.uses)})
    return reader.node(query.tree, query.tokens)


def has_collation(query: ViewQuery) -> bool:
    """Returns whether a query has a collation, by which texts are equal that are not the same."""
    return any(token.text.upper() == "COLLATE" for token in query.tokens)


@dataclass(frozen=True, slots=True)
class _Reader:
    query: ViewQuery
    definitions: Mapping[str, TableDefinition]
    uses: Mapping[int, int]
    """The numbers of `ViewQuery.uses`, by the positions at which they begin."""

    def node(self, tree: exp.Expr, tokens: Sequence[Token]) -> Block | UnionAll:
        if isinstance(tree, exp.Select):
            return self.block(self._select(tree, tokens))
        if isinstance(tree, exp.SetOperation):
            return UnionAll(tuple(self._branches(tree, tokens)))
        raise NotPlainError("it is no plain SELECT")

    def _select(self, tree: exp.Select, tokens: Sequence[Token]) -> SelectText:
        check_clauses(tree, CLAUSES)
        select = SelectText(tree, tuple(tokens))
        if parsed_query(self.query.text[slice(*select.span)]) != tree or "select" not in select.clauses:
            raise NotPlainError("it is no plain SELECT")
        return select

    def _branches(self, tree: exp.SetOperation, tokens: Sequence[Token]) -> Iterator[Block]:
        """Reads what UNION ALL connects."""
        trees, parts = list(_branches(tree)), union_parts(tokens)
        if len(parts) != len(trees):
            raise NotPlainError("its UNION ALL cannot be taken apart")
        for branch, part in zip(trees, parts, strict=True):
            yield self.block(self._select(branch, part))

    def block(self, select: SelectText) -> Block:
        tree = select.tree
        inputs = self._from(select)
        scope = Scope(inputs)
        inputs += tuple(Subqueries(self.query, self._from).of(select, scope))
        own = select.items("select")
        if len(own) != len(tree.expressions) or any(item.is_star for item in tree.expressions):
            raise NotPlainError("its columns cannot be taken apart")
        if not all(isinstance(item, exp.Alias | exp.Column | exp.Dot) for item in tree.expressions):
            raise NotPlainError("a column of a subquery, or of a query behind UNION ALL, has no name")
        items = tuple(_item(item, tree, scope) for item in tree.expressions)
        if len({item.name.lower() for item in items}) < len(items):
            raise NotPlainError("two of its columns have one name")
        found = Block(select, Form.ROWS, inputs, items)
        windows = [window for item in expressions_of(tree) for window in walked(item, exp.Window)]
        if tree.args.get("group") is not None:
            if windows or tree.args.get("distinct") is not None:
                raise NotPlainError(f"it has {'OVER' if windows else 'DISTINCT'} over groups")
            return replace(found, form=Form.GROUPS, address=tuple(self._groups(select, scope)))
        _check_rows(tree, items)
        if windows:
            return self._partitioned(found, scope, windows)
        if tree.args.get("distinct") is not None:
            address = (
                self._address(item.unalias(), _without_alias(select, item, span), item.alias_or_name, tree, scope)
                for item, span in zip(tree.expressions, own, strict=True)
            )
            return replace(found, form=Form.GROUPS, address=tuple(address))
        return found

    # ------------------------------------------------------------------------------------------ FROM

    def _from(self, select: SelectText) -> tuple[Input, ...]:
        tree = select.tree
        source, joins = tree.args.get("from_"), tree.args.get("joins") or []
        parts = [part.this for part in (source, *joins) if part is not None]
        if not parts or "from" not in select.clauses:
            raise NotPlainError("it does not read plain tables")
        spans = select.sources()
        if len(parts) != len(spans):
            raise NotPlainError("it does not read plain tables")
        inputs: tuple[Input, ...] = ()
        for number, (part, span) in enumerate(zip(parts, spans, strict=True)):
            read = self._input(part, span, select)
            inputs = (read,) if not number else joined(joins[number - 1], inputs, read)
        if len(inputs) > 1 and not all(source.alias for source in inputs):
            raise NotPlainError("it has a subquery in FROM without a name")
        return with_first_rows(tree, with_equal_columns(tree, inputs))

    def _input(self, part: exp.Expr, span: Span, select: SelectText) -> Input:
        if isinstance(part, exp.Table):
            if part.args.get("joins"):
                raise NotPlainError("its joins are in parentheses")
            if (number := self.uses.get(span[0])) is None:
                raise NotPlainError("it does not read plain tables")
            use = self.query.uses[number]
            return Input(self._scan(number), use.alias, use.span, use.needs_alias, True, True, ())
        if not isinstance(part, exp.Subquery):
            raise NotPlainError("it does not read plain tables")
        alias = part.args.get("alias")
        if any(value for name, value in part.args.items() if name not in ("this", "alias")):
            raise NotPlainError("it has more than a name behind a subquery in FROM")
        if alias is not None and alias.args.get("columns"):
            raise NotPlainError("it gives columns of a subquery other names in FROM")
        tokens = select.within(span)[1:-1]
        return Input(self.node(part.this, tokens), part.alias, span, False, True, True, ())

    def _scan(self, number: int) -> Scan:
        use = self.query.uses[number]
        return Scan(number, use.name, self.definitions[use.name])

    # ------------------------------------------------------------------------------------------ groups, partitions

    def _groups(self, select: SelectText, scope: Scope) -> Iterator[Address]:
        tree = select.tree
        group = tree.args["group"]
        check_groups(tree)
        spans, items = select.items("group"), select.items("select")
        if len(spans) != len(group.expressions):
            raise NotPlainError("its GROUP BY cannot be taken apart")
        known: set[str] = set()
        for written, span in zip(group.expressions, spans, strict=True):
            expression, place = written, span
            at = _item_of(written, tree, scope)
            if at is not None:  # GROUP BY 1, or the name of a column of the result
                expression = tree.expressions[at].unalias()
                place = _without_alias(select, tree.expressions[at], items[at])
            if (normal := scope.normal(expression)) not in known:
                known.add(normal)
                name, part = _result_column(expression, tree, scope)
                yield self._address(expression, place, name, tree, scope, part)

    def _address(
        self, expression: exp.Expr, place: Span, name: str, tree: exp.Select, scope: Scope, part: str = ""
    ) -> Address:
        if expression.find(exp.Collate):
            raise NotPlainError(f"the group {shown(expression)} has a collation, by which one group has several texts")
        if expression.find(exp.Query):
            raise NotPlainError(f"the group {shown(expression)} has a subquery")
        sources = {root.name.source for root in scope.roots(expression)}
        one = sources.pop() if len(sources) == 1 else None
        local = one if one is not None and scope.inputs[one].member and _is_safe(expression, scope) else None
        text = self.query.text[slice(*place)] + part
        whole = scope.whole(expression) if local is not None else None
        column = whole.column if whole is not None else ""
        return Address(name, text, shown(expression), local, may_be_null(expression, tree, scope), column)

    def _partitioned(self, block: Block, scope: Scope, windows: Sequence[exp.Expr]) -> Block:
        tree = block.text.tree
        if tree.args.get("distinct") is not None:
            raise NotPlainError("it has DISTINCT over OVER")
        _check_names_of_qualify(tree, block.items, scope)
        common: list[Name] | None = None
        for window in windows:
            found = [scope.whole(part) for part in window.args.get("partition_by") or []]
            names = [name for name in found if name is not None]
            common = names if common is None else [name for name in common if name in names]
        if not common:
            raise NotPlainError("it has OVER without PARTITION BY, or by no column of its tables")
        check_windows(windows, scope, row_key(block.inputs))
        address = []
        for name in dict.fromkeys(common):
            source = scope.inputs[name.source]
            text = source.text_of(name.column)
            result = next((item.name for item in block.items if item.origin == name), "")
            local = name.source if source.member else None
            address.append(Address(result, text, text, local, True, name.column if source.member else ""))
        items = [
            replace(item, numbers=numbered_by(written.unalias(), block.items, scope))
            for item, written in zip(block.items, tree.expressions, strict=True)
        ]
        return replace(block, form=Form.PARTITIONS, items=tuple(items), address=tuple(address))


def _without_alias(select: SelectText, item: exp.Expr, span: Span) -> Span:
    return select.expression(span) if isinstance(item, exp.Alias) else span


def _check_rows(tree: exp.Select, items: Sequence[Item]) -> None:
    """Checks that each joined row is one of the result."""
    if tree.args.get("having") is not None:
        raise NotPlainError("it has HAVING without GROUP BY")
    for item in tree.expressions:
        for node in walked(item, exp.AggFunc):
            if not isinstance(node.find_ancestor(exp.Window, exp.Select), exp.Window):
                raise NotPlainError("it aggregates all rows, without GROUP BY")
    unknown = [node for item in tree.expressions for node in walked(item, exp.Anonymous)]
    if unknown and not any(item.origin for item in items):  # beside a column alone Spark takes no aggregate
        raise NotPlainError(f"{unknown[0].name}() may aggregate all rows: it is not known here")
    if any(is_window(node) for item in expressions_of(tree) for node in walked(item, exp.Anonymous)):
        raise NotPlainError("it has window() without GROUP BY, by which a row may have several")


def _check_names_of_qualify(tree: exp.Select, items: Sequence[Item], scope: Scope) -> None:
    """Raises `NotPlainError` if a name in QUALIFY is one of the result, and another column of the tables."""
    own = {item.name.lower(): item for item in items}
    qualify = tree.args.get("qualify")
    for column in () if qualify is None else walked(qualify, exp.Column):
        name, item = scope.whole(column), own.get(column.name.lower())
        if name is not None and item is not None and not column.args.get("table") and item.origin != name:
            raise NotPlainError(f"{column.name} in QUALIFY is a column of the result, and another one of its tables")


def _branches(tree: exp.Expr) -> Iterator[exp.Select]:
    for node in union_nodes(tree):
        if isinstance(node, exp.Select):
            yield node
            continue
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            what = "UNION without ALL" if isinstance(node, exp.Union) else type(node).__name__.upper()
            raise NotPlainError(f"it is a {what} of queries")
        for name, value in node.args.items():
            if value and name not in ("this", "expression", "distinct"):
                raise NotPlainError(f"it has {name_of_clause(name)} behind UNION ALL")


def _item(item: exp.Expr, tree: exp.Select, scope: Scope) -> Item:
    expression = item.unalias()
    kind = type_of(expression, scope)
    return Item(item.alias_or_name, scope.whole(expression), may_be_null(expression, tree, scope), kind)


def _is_safe(expression: exp.Expr, scope: Scope) -> bool:
    """Returns whether a group has one value for every row, also for those that WHERE leaves out: it fails for none."""
    if isinstance(expression, exp.Coalesce):
        parts = [expression.this, *expression.expressions]
        kinds = {_kind(part, scope) for part in parts}
        return len(kinds) == 1 and None not in kinds
    if isinstance(expression, exp.Paren):
        return _is_safe(expression.this, scope)
    if is_window(expression):
        return len(expression.expressions) == 2 and is_time(expression.expressions[0], scope)  # and the length
    return isinstance(expression, exp.Column | exp.Literal) or truncates_time(expression, scope)


def _kind(expression: exp.Expr, scope: Scope) -> str | None:
    """Returns the kind of a column or of a literal: values of one kind need no cast that may fail."""
    if isinstance(expression, exp.Neg):
        expression = expression.this if isinstance(expression.this, exp.Literal) else expression
    if isinstance(expression, exp.Literal):
        return "string" if expression.is_string else "integer" if expression.name.isdecimal() else None
    kind = scope.type_of(expression)
    return None if kind is None else "integer" if pa.types.is_integer(kind) else str(kind)


def _item_of(written: exp.Expr, tree: exp.Select, scope: Scope) -> int | None:
    """Returns the number of the column of the result that GROUP BY names by its number or its alias."""
    while isinstance(written, exp.Paren):
        written = written.this
    if isinstance(written, exp.Literal) and not written.is_string:
        number = int(written.name) if written.name.isdecimal() else 0
        if not 1 <= number <= len(tree.expressions):
            raise NotPlainError(f"its GROUP BY has {shown(written)}")
        return number - 1
    if isinstance(written, exp.Column) and scope.root(written) is None and len(written.parts) == 1:
        aliases = [item.alias.lower() for item in tree.expressions]
        if written.name.lower() in aliases:
            return aliases.index(written.name.lower())
    return None


def _result_column(expression: exp.Expr, tree: exp.Select, scope: Scope) -> tuple[str, str]:
    """Returns the column of the result that is a group's expression, "" if none is; and what is added to its text.

    A window is a column by its start or its end, of which each follows from the other.
    """
    if not is_window(expression):
        wanted = scope.normal(expression)
        columns = (item.alias_or_name for item in tree.expressions if scope.normal(item.unalias()) == wanted)
        return next(columns, ""), ""
    for part in WINDOW_PARTS:
        for item in tree.expressions:
            if _is_part(item.unalias(), part, expression, scope):
                return item.alias_or_name, f".{part}"
    return "", f".{WINDOW_PARTS[0]}"


def _is_part(column: exp.Expr, part: str, window: exp.Expr, scope: Scope) -> bool:
    """Returns whether a column is the start, or the end, of the window by which a SELECT groups."""
    if isinstance(column, exp.Dot):
        return column.name.lower() == part and scope.normal(column.this) == scope.normal(window)
    named = isinstance(column, exp.Column) and [one.name.lower() for one in column.parts] == ["window", part]
    return named and scope.root(column) is None
