"""SELECT, joins and UNION ALL, written for DuckDB. Pure; see `tablestore.local_sql.expressions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from sqlglot import exp

from tablestore.local_sql.expressions import Expressions
from tablestore.local_sql.refusal import NotLocalError, only
from tablestore.local_sql.scope import Output, Scope, Source
from tablestore.local_sql.typed import Typed, Used, identifier
from tablestore.local_sql.value_types import is_exact, same_type

__all__ = ["ANY", "Relation", "Selects"]

ANY = ""
"""The column in `Relation.uses` of a relation that is read, whichever of its columns."""
_ONE_SIDED = ("SEMI", "ANTI")
_CLAUSES = ("expressions", "from_", "joins", "where", "group", "having", "distinct", "with_")


@dataclass(frozen=True, slots=True)
class Relation:
    """A query for DuckDB.

    Attributes:
        text: Its text.
        columns: Its columns. Each names what its values follow from.
        always: What its rows follow from, whichever of its columns are read.
    """

    text: str
    columns: tuple[Output, ...]
    always: Used

    @property
    def uses(self) -> Used:
        """All that it reads."""
        return self.always | Typed.used_by(column.value for column in self.columns)


@dataclass
class Selects:
    """Writes queries over relations.

    Attributes:
        known: Returns the columns of a relation; None if there is none of that name.
        in_utc: Whether the session's time zone is UTC.
    """

    known: Callable[[str], Sequence[Output] | None]
    in_utc: bool
    _numbers: count[int] = field(default_factory=count)
    _named: dict[str, Relation] = field(default_factory=dict)

    def query(self, tree: exp.Expr, outer: Scope | None = None) -> Relation:
        """Writes a query.

        Args:
            tree: Its syntax tree.
            outer: The scope around it, if it is a subquery of an expression.
        """
        named = dict(self._named)  # names of WITH are those of this query alone
        if isinstance(tree, exp.Select):
            found = self._select(tree, outer)
        elif isinstance(tree, exp.Subquery):
            only(tree, "this")
            found = self.query(tree.this, outer)
        elif isinstance(tree, exp.Union):
            found = self._union(tree, outer)
        else:
            raise NotLocalError(f"it has {tree.key.upper()}")
        self._named = named
        return found

    def named_query(self, tree: exp.Expr) -> Relation:
        """Writes a query whose columns are read by their names; upper and lower case are one."""
        found = self.query(tree)
        if len({column.name.lower() for column in found.columns}) < len(found.columns):
            raise NotLocalError("two columns of it, or of a subquery, have one name")
        return found

    def _union(self, tree: exp.Union, outer: Scope | None) -> Relation:
        only(tree, "this", "expression", "distinct", "with_")
        self._with(tree)
        if tree.args.get("distinct"):
            raise NotLocalError("it has UNION without ALL")
        sides = [self.query(tree.this, outer), self.query(tree.expression, outer)]
        if len(sides[0].columns) != len(sides[1].columns):
            raise NotLocalError("it has UNION ALL of different numbers of columns")
        columns = [_united(*pair) for pair in zip(sides[0].columns, sides[1].columns, strict=True)]
        texts = []
        for side in sides:
            alias = self._alias()
            values = [
                Typed(f"{alias}.{_column(number)}", own.value.kind).cast(column.value.kind)
                + f" AS {identifier(column.name)}"
                for number, (own, column) in enumerate(zip(side.columns, columns, strict=True))
            ]
            given = ", ".join(_column(number) for number in range(len(columns)))
            texts.append(f"SELECT {', '.join(values)} FROM ({side.text}) AS {alias}({given})")
        return Relation(" UNION ALL ".join(texts), tuple(columns), sides[0].always | sides[1].always)

    def _with(self, tree: exp.Expr) -> None:
        if (found := tree.args.get("with_")) is None:
            return
        only(found, "expressions")
        for one in found.expressions:
            only(one, "this", "alias")
            if one.args["alias"].args.get("columns"):
                raise NotLocalError("it gives columns of WITH other names")
            if one.alias.lower() in self._named:
                raise NotLocalError(f"it has two WITH of the name {one.alias}")
            self._named[one.alias.lower()] = self.named_query(one.this)

    # ------------------------------------------------------------------------------------------ SELECT

    def _select(self, tree: exp.Select, outer: Scope | None) -> Relation:
        only(tree, *_CLAUSES)
        self._with(tree)
        scope, used = Scope(outer), set[tuple[str, str]]()

        def subquery(node: exp.Expr) -> tuple[str, tuple[Typed, ...]]:
            found = self.query(node, scope)
            used.update(found.uses)
            return found.text, tuple(column.value for column in found.columns)

        write = Expressions(scope.column, subquery, self.in_utc)
        parts = [self._from(tree, scope, write, used)]
        items = [*self._items(tree, scope, write, are_named=outer is None)]
        if (where := tree.args.get("where")) is not None:
            condition = write.where(where.this)
            used |= condition.uses
            parts.append(f"WHERE {condition.text}")
        if (group := tree.args.get("group")) is not None:
            if any(item.find(exp.Query) is not None for item in tree.expressions):
                raise NotLocalError("it has a subquery in a column of groups")
            groups = [write.exact(_meant(one, tree, scope)) for one in _groups(group)]
            used |= Typed.used_by(groups)
            parts.append(f"GROUP BY {', '.join(one.text for one in groups)}")
        if (having := tree.args.get("having")) is not None:
            condition = write.condition(_without_names(having.this, tree, scope))
            used |= condition.uses
            parts.append(f"HAVING {condition.text}")
        if (distinct := tree.args.get("distinct")) is not None:
            only(distinct)
            used |= Typed.used_by(item.value for item in items)
            if not all(is_exact(item.value.kind) for item in items):
                raise NotLocalError("it has DISTINCT over values that are not exact")
        listed = ", ".join(f"{item.value.text} AS {identifier(item.name)}" for item in items)
        text = f"SELECT {'DISTINCT ' if distinct is not None else ''}{listed} {' '.join(parts)}"
        return Relation(text, tuple(items), frozenset(used))

    def _items(self, tree: exp.Select, scope: Scope, write: Expressions, *, are_named: bool) -> Iterable[Output]:
        for number, item in enumerate(tree.expressions):
            if isinstance(item, exp.Star):
                only(item)
                yield from scope.all()
            elif isinstance(item, exp.Alias):
                yield Output(item.alias, write.typed(item.this))
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Identifier):
                yield Output(item.name, write.typed(item))
            elif not are_named:  # in a subquery of an expression, whose columns nobody names
                yield Output(_column(number), write.typed(item))
            else:
                raise NotLocalError(f"the column {item.sql('spark')} of it has no name")

    # ------------------------------------------------------------------------------------------ FROM

    def _from(self, tree: exp.Select, scope: Scope, write: Expressions, used: set[tuple[str, str]]) -> str:
        source, joins = tree.args.get("from_"), tree.args.get("joins") or []
        if source is None:
            raise NotLocalError("it has a SELECT without FROM")
        text, first = self._source(source.this, used)
        scope.sources.append(first)
        texts, crossed = [f"FROM {text}"], False
        for join in joins:
            only(join, "this", "side", "kind", "on", "using")
            side, kind = str(join.side or "").upper(), str(join.kind or "").upper()
            if crossed and side in ("RIGHT", "FULL"):
                raise NotLocalError("it has RIGHT or FULL JOIN behind a comma or CROSS JOIN")  # a comma binds less
            crossed = crossed or kind == "CROSS"
            right_text, right = self._source(join.this, used)
            texts.append(f"{_word(side, kind)} JOIN {right_text}")
            if kind == "CROSS":
                scope.sources.append(right)
            else:
                condition = self._on(join, side, kind, scope, right, write)
                used |= condition.uses
                texts.append(f"ON {condition.text}")
        return " ".join(texts)

    def _on(self, join: exp.Join, side: str, kind: str, scope: Scope, right: Source, write: Expressions) -> Typed:
        """Writes the condition of a join, and adds its right side to the scope."""
        on, using = join.args.get("on"), join.args.get("using")
        if using is not None and kind in ("", "INNER", "OUTER"):
            found = scope.merged_with(right, [one.name for one in using], side)
            scope.sources.append(right)
            return found
        if on is None:
            raise NotLocalError(f"it has {join.sql('spark')}")
        if kind in _ONE_SIDED:
            inner = scope.with_source(right)
            return Expressions(inner.column, _no_subquery, self.in_utc).where(on)
        scope.sources.append(right)
        return write.where(on)

    def _source(self, part: exp.Expr, used: set[tuple[str, str]]) -> tuple[str, Source]:
        alias, given = self._alias(), part.args.get("alias")
        if given is not None and given.args.get("columns"):
            raise NotLocalError("it gives columns in FROM other names")
        if isinstance(part, exp.Subquery):
            only(part, "this", "alias")
            found = self.named_query(part.this)
            used |= found.uses
            return f"({found.text}) AS {alias}", Source(part.alias, alias, found.columns)
        if not isinstance(part, exp.Table) or len(part.parts) != 1 or not isinstance(part.this, exp.Identifier):
            raise NotLocalError(f"it reads {part.sql('spark')}, which is no table")
        only(part, "this", "alias")
        name = part.alias or part.name
        if (own := self._named.get(part.name.lower())) is not None:
            used |= own.uses
            return f"({own.text}) AS {alias}", Source(name, alias, own.columns)
        if (columns := self.known(part.name)) is None:
            raise NotLocalError(f"it reads {part.sql('spark')}, which is no table")
        used.add((part.name, ANY))
        return f"{identifier(part.name)} AS {alias}", Source(name, alias, tuple(columns))

    def _alias(self) -> str:
        return f"t{next(self._numbers)}"


def _word(side: str, kind: str) -> str:
    if kind in _ONE_SIDED and side in ("", "LEFT"):
        return kind
    if kind == "CROSS" and not side:
        return "CROSS"
    if kind in ("", "INNER") and not side:
        return "INNER"
    if kind in ("", "OUTER") and side in ("LEFT", "RIGHT", "FULL"):
        return side
    raise NotLocalError(f"it has {side} {kind} JOIN")


def _no_subquery(node: exp.Expr) -> tuple[str, tuple[Typed, ...]]:
    raise NotLocalError("it has a subquery in the condition of a join")


def _groups(group: exp.Expr) -> Sequence[exp.Expr]:
    only(group, "expressions")
    return list(group.expressions)


def _meant(node: exp.Expr, tree: exp.Select, scope: Scope) -> exp.Expr:
    """Returns what a group is: GROUP BY 1 and the name of a column of the result mean that column."""
    if node.find(exp.Column) is None:
        number = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
        if not number.isdecimal() or not 0 < int(number) <= len(tree.expressions):
            raise NotLocalError(f"it has GROUP BY {node.sql('spark')}")
        item: exp.Expr = tree.expressions[int(number) - 1]
        return item.unalias()
    if isinstance(node, exp.Column) and not node.table and scope.find(node) is None:
        return _named(tree).get(node.name.lower(), node)
    return node


def _without_names(condition: exp.Expr, tree: exp.Select, scope: Scope) -> exp.Expr:
    """Returns a condition over groups in which no names are those of columns of the result."""
    if condition.find(exp.Query) is not None:
        raise NotLocalError("it has a subquery in HAVING")
    named = _named(tree)

    def meant(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table or node.name.lower() not in named:
            return node
        if scope.find(node) is not None or node.find_ancestor(exp.AggFunc) is not None:
            raise NotLocalError(f"{node.name} in HAVING of it may be that of a table or of the result")
        return exp.Paren(this=named[node.name.lower()].copy())

    found: exp.Expr = condition.copy().transform(meant)
    return found


def _named(tree: exp.Select) -> Mapping[str, exp.Expr]:
    """Returns the expressions of the result that have a name of their own, by it in lower case."""
    found = [(item.alias.lower(), item.this) for item in tree.expressions if isinstance(item, exp.Alias)]
    if len(dict(found)) < len(found):
        raise NotLocalError("two of its columns have one name")
    return dict(found)


def _united(one: Output, other: Output) -> Output:
    left, right = one.value, other.value
    kind = left.kind if left.kind == right.kind else same_type([left.kind, right.kind])
    return Output(one.name, Typed("", kind, left.uses | right.uses))


def _column(number: int) -> str:
    return f"c{number}"
