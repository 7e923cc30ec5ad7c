"""Decides whether a view is refreshed from what changed or as a whole, and from which parts of its query. Pure.

A view is refreshed incrementally by one rule. The *driving table* is the first one of FROM, and has a primary key. The
others are reached from it by inner or left joins on their primary keys, so that each of its rows has at most one row of
each of them. So a row of the result is that of one driving row, or of the group of some, and what a change affects is
found by the keys of driving rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlglot import exp

from filestore.errors import InvalidRequest, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.model.text import name_list
from filestore.model.types import is_key_type
from tablestore.views.join_query import conjuncts
from tablestore.views.view_names import NotPlainError, Source, SourceNames, plain_joins
from tablestore.views.view_query import WINDOW, Span, ViewQuery, shown
from tablestore.views.view_settings import other_meaning

__all__ = ["Form", "GroupKey", "Incremental", "Mode", "ViewPlan", "Whole", "check_key", "plan_view", "with_key"]


class Mode(StrEnum):
    """Says what happens to a view that cannot be refreshed incrementally (``view.incremental``)."""

    AUTO = "auto"
    """Such a view is computed as a whole each time."""
    REQUIRED = "required"
    """Such a view is refused."""


class Form(StrEnum):
    """The form of an incremental view."""

    ROWS = "rows"
    """Each row is that of one driving row, and has its key."""
    GROUPS = "groups"
    """Each row is that of a group of driving rows."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """An expression of GROUP BY.

    Attributes:
        name: The column of the result that has it.
        span: Its position in the query's text.
        is_window: Whether it is ``window(…)``, of which the start is in the result.
        direct: Whether it has one value for each driving row, which follows from the driving row alone.
    """

    name: str
    span: Span
    is_window: bool
    direct: bool


@dataclass(frozen=True, slots=True)
class Incremental:
    """A view that is refreshed from what has changed.

    Attributes:
        form: Its form.
        sources: The tables of FROM in their order; the first one drives.
        key: The primary key of the result.
        groups: The expressions of GROUP BY, in the order of `key`.
    """

    form: Form
    sources: tuple[Source, ...]
    key: tuple[str, ...]
    groups: tuple[GroupKey, ...] = ()

    @property
    def repeatable(self) -> bool:
        """Returns True: each time that the query runs, it has the same rows."""
        return True

    def described(self) -> tuple[str, ...]:
        """Returns the steps of a refresh, a sentence each."""
        driving, *others = self.sources
        steps = [f"read the changed rows of {driving.table}"]
        steps += [
            f"read the changed keys of {other.table}, and find the rows of {driving.table} that are joined with them"
            for other in others
        ]
        if self.form is Form.GROUPS:
            steps.append(f"find the groups ({name_list(self.key)}) of these rows in both versions")
            steps.append("compute these groups again from all their rows")
        else:
            steps.append("compute the rows of these keys again")
        steps.append(f"compare them by key ({name_list(self.key)}) with the stored rows, and write those that differ")
        return tuple(steps)


@dataclass(frozen=True, slots=True)
class Whole:
    """A view that is computed as a whole.

    Attributes:
        reason: The reason, as a clause.
        repeatable: Whether the query has the same rows each time that it runs.
    """

    reason: str
    repeatable: bool = True

    def described(self) -> tuple[str, ...]:
        """Returns the steps of a refresh, a sentence each."""
        return ("compute all rows", "replace the stored ones")


ViewPlan = Incremental | Whole


def plan_view(
    query: ViewQuery,
    definitions: Mapping[str, TableDefinition],
    settings: Mapping[str, str],
    primary_key: Sequence[str] = (),
) -> ViewPlan:
    """Plans the refreshes of a view.

    Args:
        query: The query.
        definitions: Those of its tables, by name.
        settings: The settings of Spark with which it runs.
        primary_key: The key that the user gave, if any: its columns are taken to have no nulls.
    """
    if (reason := other_meaning(settings)) is not None:
        return Whole(reason, _is_repeatable(query.tree))
    try:
        return _planned(query, definitions, primary_key)
    except NotPlainError as error:
        return Whole(str(error), _is_repeatable(query.tree))


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


def _planned(query: ViewQuery, definitions: Mapping[str, TableDefinition], primary_key: Sequence[str]) -> Incremental:
    tree = query.tree
    _check_clauses(query)
    assert isinstance(tree, exp.Select)
    names = SourceNames.of(query, definitions)
    sources = plain_joins(tree, names)
    names = SourceNames(sources)
    _check_functions(tree)
    items = query.items("select")
    if len(items) != len(tree.expressions) or any(isinstance(item, exp.Star) for item in tree.expressions):
        raise NotPlainError("its columns cannot be taken apart")
    if tree.args.get("group") is not None:
        groups = tuple(_groups(query, tree, names, primary_key))
        return Incremental(Form.GROUPS, sources, tuple(group.name for group in groups), groups)
    if any(isinstance(node, exp.AggFunc) for item in tree.expressions for node in item.walk()):
        raise NotPlainError("it aggregates all rows, without GROUP BY")
    if any(_is_window(node) for node in tree.walk()):
        raise NotPlainError("it has window() without GROUP BY, by which a row may have several")
    return Incremental(Form.ROWS, sources, _row_key(tree, names, sources[0]))


_CLAUSES = ("expressions", "from_", "joins", "where", "group", "having")
_NAMES_OF_CLAUSES = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "laterals": "LATERAL VIEW",
    "windows": "WINDOW",
}


def _check_clauses(query: ViewQuery) -> None:
    tree = query.tree
    if query.has_pipe:
        raise NotPlainError("it has a pipe (|>)")
    if isinstance(tree, exp.SetOperation):
        raise NotPlainError(f"it is a {type(tree).__name__.upper()} of queries")
    if not isinstance(tree, exp.Select):
        raise NotPlainError("it is no plain SELECT")
    for name, value in tree.args.items():
        if value and name not in _CLAUSES:
            raise NotPlainError(f"it has {_NAMES_OF_CLAUSES.get(name, name.upper())}")
    if tree.find(exp.Pivot) is not None:
        raise NotPlainError("it has PIVOT or UNPIVOT, by which a row is not that of one row of its table")
    if "select" not in query.clauses:
        raise NotPlainError("it is no plain SELECT")
    if any(isinstance(node, exp.Query) and node is not tree for node in tree.walk()):
        raise NotPlainError("it has a subquery")
    if any(isinstance(node, exp.Window) for node in tree.walk()):
        raise NotPlainError("it has a function with OVER, whose result depends on other rows")


_ORDERED = {
    "first", "first_value", "last", "last_value", "any_value", "collect_list", "collect_set", "array_agg", "listagg",
    "string_agg", "max_by", "min_by", "mode", "percentile_approx", "approx_percentile", "histogram_numeric",
    "group_concat", "approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "hll_sketch_agg",
    "hll_union_agg", "kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float", "theta_sketch_agg",
    "theta_union_agg", "tuple_sketch_agg_double", "tuple_sketch_agg_integer",
}  # fmt: skip
"""Aggregates whose result may depend on the order of rows."""
_ORDERED_CLASSES = (
    exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.AnyValue, exp.ArrayAgg, exp.ArrayUniqueAgg,
    exp.GroupConcat, exp.ArgMax, exp.ArgMin, exp.Mode, exp.ApproxQuantile,
)  # fmt: skip
_ROWS_OF_ROWS = {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack",
                 "json_tuple", "session_window"}  # fmt: skip
"""Functions that make several rows of one, or one of several."""


def _name_of(function: exp.Func) -> str:
    return function.name.lower() if isinstance(function, exp.Anonymous) else type(function).sql_name().lower()


def _is_ordered(node: exp.Expr) -> bool:
    """Returns whether it is an aggregate whose result may depend on the order of rows."""
    return isinstance(node, _ORDERED_CLASSES) or (isinstance(node, exp.Func) and _name_of(node) in _ORDERED)


def _check_functions(tree: exp.Expr) -> None:
    for node in tree.find_all(exp.Func):
        name = _name_of(node)
        if isinstance(node, exp.UDTF) or name in _ROWS_OF_ROWS:
            raise NotPlainError(f"it has {name}(), by which a row is not that of one row of its table")
        if _is_ordered(node):
            raise NotPlainError(f"it has {name}(), whose result may depend on the order of rows")


def _is_repeatable(tree: exp.Expr) -> bool:
    """Returns whether the query has the same rows each time that it runs, as far as that can be seen."""
    return not any(isinstance(node, exp.Limit | exp.Window) or _is_ordered(node) for node in tree.walk())


def _row_key(tree: exp.Select, names: SourceNames, driving: Source) -> tuple[str, ...]:
    """Returns the columns of the result that are the key of the driving table."""
    found: dict[str, str] = {}
    for item in tree.expressions:
        column = item.unalias()
        root = names.root(column) if isinstance(column, exp.Column) else None
        if root is not None and root.is_whole and root.source is driving:
            found.setdefault(root.column, item.alias_or_name)
    missing = [name for name in driving.key if name not in found]
    if missing:
        raise NotPlainError(
            f"its columns lack {name_list(missing)} of the primary key of {driving.table}, by which its rows are known"
        )
    return tuple(found[name] for name in driving.key)


_SETS = exp.Rollup | exp.Cube | exp.GroupingSets


def _groups(query: ViewQuery, tree: exp.Select, names: SourceNames, primary_key: Sequence[str]) -> Iterator[GroupKey]:
    group = tree.args["group"]
    sets = any(isinstance(part, _SETS) for part in group.expressions)
    if sets or any(value for name, value in group.args.items() if name != "expressions") or not group.expressions:
        raise NotPlainError("its GROUP BY has ALL, ROLLUP, CUBE or GROUPING SETS")
    spans = query.items("group")
    items = query.items("select")
    if len(spans) != len(group.expressions):
        raise NotPlainError("its GROUP BY cannot be taken apart")
    given = {name.lower() for name in primary_key}
    for written, span in zip(group.expressions, spans, strict=True):
        expression, place = written, span
        at = _item_of(written, tree, names)
        if at is not None:  # GROUP BY 1, or the name of a column of the result
            expression = tree.expressions[at].unalias()
            place = query.expression(items[at]) if isinstance(tree.expressions[at], exp.Alias) else items[at]
        if expression.find(exp.Collate):
            raise NotPlainError(f"the group {shown(expression)} has a collation, by which one group has several texts")
        is_window = _is_window(expression)
        name = _result_column(expression, tree, names, is_window=is_window)
        if not is_window and name.lower() not in given and _may_be_null(expression, tree, names):
            raise NotPlainError(
                f"the group {shown(expression)} may be null, and a key may not: add WHERE "
                f"{shown(expression)} IS NOT NULL, or give PRIMARY KEY if there are no nulls"
            )
        local = all(root.source is names.sources[0] for root in names.roots(expression))
        yield GroupKey(name, place, is_window, local and _is_safe(expression))


def _is_safe(expression: exp.Expr) -> bool:
    """Returns whether a group has one value for every row, also for those that WHERE leaves out: it fails for none."""
    if isinstance(expression, exp.Coalesce):
        return all(map(_is_safe, (expression.this, *expression.expressions)))
    if isinstance(expression, exp.Paren | exp.TimestampTrunc | exp.DateTrunc):
        return _is_safe(expression.this)
    if isinstance(expression, exp.Neg):
        return isinstance(expression.this, exp.Literal)  # the least of all integers has none
    if _is_window(expression):
        return len(expression.expressions) == 2 and isinstance(expression.expressions[0], exp.Column)  # and the length
    return isinstance(expression, exp.Column | exp.Literal)


def _item_of(written: exp.Expr, tree: exp.Select, names: SourceNames) -> int | None:
    """Returns the number of the column of the result that GROUP BY names by its number or its alias."""
    if isinstance(written, exp.Literal) and not written.is_string:
        number = int(written.name) if written.name.isdecimal() else 0
        if not 1 <= number <= len(tree.expressions):
            raise NotPlainError(f"its GROUP BY has {shown(written)}")
        return number - 1
    if isinstance(written, exp.Column) and names.root(written) is None and len(written.parts) == 1:
        aliases = [item.alias.lower() for item in tree.expressions]
        if written.name.lower() in aliases:
            return aliases.index(written.name.lower())
    return None


def _is_window(expression: exp.Expr) -> bool:
    return isinstance(expression, exp.Anonymous) and expression.name == WINDOW


def _result_column(expression: exp.Expr, tree: exp.Select, names: SourceNames, *, is_window: bool) -> str:
    """Returns the column of the result that is a group's expression, or the start of its window."""
    wanted = names.normal(expression)
    for item in tree.expressions:
        column = item.unalias()
        if is_window:
            by_name = (
                isinstance(column, exp.Column)
                and [part.name.lower() for part in column.parts] == ["window", "start"]
                and names.root(column) is None
            )
            in_full = (
                isinstance(column, exp.Dot) and column.name.lower() == "start" and names.normal(column.this) == wanted
            )
            if by_name or in_full:
                return str(item.alias_or_name)
        elif names.normal(column) == wanted:
            return str(item.alias_or_name)
    what = "the start of " if is_window else ""
    raise NotPlainError(f"its columns lack {what}the group {shown(expression)}, by which its rows are known")


_NULL_FOR_NULL = (
    *(exp.Paren, exp.Neg, exp.Upper, exp.Lower, exp.Length, exp.Not),
    *(exp.TimestampTrunc, exp.DateTrunc, exp.Year, exp.Month, exp.Day),
)


def _may_be_null(expression: exp.Expr, tree: exp.Select, names: SourceNames) -> bool:
    """Returns whether a group may be null, as far as that can be seen."""
    if isinstance(expression, exp.Literal | exp.Boolean | exp.Is):
        return False
    if isinstance(expression, exp.Coalesce):
        return all(_may_be_null(part, tree, names) for part in (expression.this, *expression.expressions))
    if isinstance(expression, exp.Case | exp.If):
        branches = expression.args.get("ifs") or [expression]
        last = expression.args.get("default" if isinstance(expression, exp.Case) else "false")
        results = [branch.args["true"] for branch in branches]
        return last is None or any(_may_be_null(part, tree, names) for part in (*results, last))
    if isinstance(expression, _NULL_FOR_NULL):
        return _may_be_null(expression.this, tree, names)
    normal = names.normal(expression)
    where = tree.args.get("where")
    for condition in conjuncts(where.this if where is not None else None):
        if _is_not_null(condition, normal, names):
            return False
    root = names.root(expression) if isinstance(expression, exp.Column) else None
    if root is None or not root.is_whole:
        return True
    return root.source.optional or root.source.definition.schema.column(root.column).nullable


def _is_not_null(condition: exp.Expr, normal: str, names: SourceNames) -> bool:
    """Returns whether rows that fulfil a condition have no null in an expression."""
    if isinstance(condition, exp.Not) and isinstance(condition.this, exp.Is):
        is_null = isinstance(condition.this.expression, exp.Null)
        return is_null and names.normal(condition.this.this) == normal
    if isinstance(condition, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
        return normal in (names.normal(condition.left), names.normal(condition.right))
    return False
