"""`ViewQuery`: the query of a view, as the text that the user wrote. Pure.

The text is never written anew from a syntax tree, since that might change what it means: names of tables are replaced
in it, and parts of it are cut out, at the positions of their tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from tablestore.views.sql.clauses import system_time
from tablestore.views.sql.place import Place
from tablestore.views.sql.select_text import Span, edited
from tablestore.views.sql.spark_syntax import parsed
from tablestore.views.sql.stars import without_stars

__all__ = [
    "VIEW_QUERY",
    "WINDOW",
    "TableUse",
    "ViewQuery",
    "parse_view",
    "parsed_query",
    "position",
    "shown",
    "view_of_statement",
]

_DIALECT = "spark"
VIEW_QUERY = "view.query"
"""The option that has a view's query."""

_NOW = (
    "current_timestamp now localtimestamp current_date curdate current_time unix_timestamp current_timezone "
    "current_user user session_user current_catalog current_database current_schema current_path"
)
_BY_CHANCE = (
    "rand random randn randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id input_file_name "
    "input_file_block_start input_file_block_length version"
)
_CHANGING = {
    **dict.fromkeys(_NOW.split(), "changes with the time or the session"),
    **dict.fromkeys(_BY_CHANCE.split(), "has another value each time"),
}
"""Functions of Spark whose result does not follow from the rows. Of `unix_timestamp` that is so without arguments."""


@dataclass(frozen=True, slots=True)
class TableUse:
    """A place in the query at which a table is named.

    Attributes:
        name: ``database.table``.
        alias: The name by which the query calls it.
        span: The position of its name in the text.
        needs_alias: Whether it has no alias of its own.
        time: The time behind ``FOR SYSTEM_TIME AS OF``, as of which rows are looked up in it; None without it.
    """

    name: str
    alias: str
    span: Span
    needs_alias: bool
    time: exp.Expr | None = None


@dataclass(frozen=True)
class ViewQuery:
    """A query as text, in which names of tables have a database and no catalog.

    Attributes:
        text: The text.
        tree: Its syntax tree, which is only read.
        uses: The places of tables in it, in their order.
    """

    text: str
    tree: exp.Query
    uses: tuple[TableUse, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it reads, each once."""
        return tuple(dict.fromkeys(use.name for use in self.uses))

    @cached_property
    def names(self) -> frozenset[str] | None:
        """All names in it, in lower case, those of the columns that it reads among them; None if it has a star.

        PIVOT groups by all other columns, so it is None with that as well.
        """
        if any(not isinstance(star.parent, exp.Count) for star in self.tree.find_all(exp.Star)):
            return None
        if self.tree.find(exp.Pivot) is not None:
            return None
        return frozenset(name.name.lower() for name in self.tree.find_all(exp.Identifier))

    @property
    def looks_up(self) -> bool:
        """Returns whether rows are looked up in a table of it as of a time."""
        return any(use.time is not None for use in self.uses)

    @property
    def has_pipe(self) -> bool:
        """Returns whether it is a pipe, or has one: ``FROM t |> WHERE …``."""
        return any(token.token_type is TokenType.PIPE_GT for token in self.tokens)

    def part(self, span: Span, names: Sequence[str], edits: Sequence[tuple[Span, str]] = ()) -> str:
        """Returns a part of the text in which the tables have other names.

        Args:
            span: The part.
            names: For each of `uses` the name.
            edits: What takes the place of other parts of it, tables in these among them.
        """
        tables = [
            (use.span, quoted(name) + (f" AS {quoted(use.alias)}" if use.needs_alias else ""))
            for use, name in zip(self.uses, names, strict=True)
            if span[0] <= use.span[0] < span[1]
        ]
        return edited(self.text, [*edits, *tables], span)

    def with_tables(self, names: Sequence[str]) -> str:
        """Returns the whole query with other names of the tables, one for each of `uses`."""
        return self.part((0, len(self.text)), names)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of the text."""
        return tuple(sqlglot.tokenize(self.text, dialect=_DIALECT))


def parse_view(text: str) -> ViewQuery:
    """Reads a query that `view_of_statement` made."""
    tree = parsed_query(text)
    return ViewQuery(text, tree, tuple(_uses(tree, set(), Place("", "").name)))


def view_of_statement(text: str, place: Place, definition_of: Callable[[str], TableDefinition]) -> ViewQuery:
    """Reads the query of a statement: tables get their databases, and ``*`` becomes the columns that it stands for.

    Args:
        text: The query as it was written.
        place: Completes names of tables.
        definition_of: Returns the definition of a table; raises `NotFound`.

    Raises:
        Unsupported: ``view-query``: the result would not follow from the rows of tables of this catalog.
        InvalidRequest: ``view-query``: the text is no query, or a column of the result has no name.
        NotFound: there is no such table.
    """
    text = _selecting(text)
    tree = parsed_query(text)
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    uses = list(_uses(tree, named, place.name))
    if not uses:
        raise _unsupported("it reads no table")
    for use in uses:
        definition_of(use.name)
    for name in sorted(named):
        if _exists(f"{place.database}.{name}", definition_of):
            raise _unsupported(f"its WITH has the name {name!r} of a table: take another name")
    _check_repeatable(tree)
    _check_no_bare_call(tree, {name.lower() for use in uses for name in definition_of(use.name).schema.names})
    edits = [(use.span, ".".join(map(quoted, use.name.split(".")))) for use in uses]
    tokens = sqlglot.tokenize(text, dialect=_DIALECT)
    edits += without_stars(tree, tokens, {use.span[0]: use.name for use in uses}, definition_of)
    query = parse_view(edited(text, edits, (0, len(text))).strip().rstrip(";"))
    _check_names(query.tree)
    return query


WINDOW = "w1ndow"
"""The name of Spark's function ``window`` in syntax trees, where sqlglot takes it for the beginning of a clause."""


def shown(expression: exp.Expr) -> str:
    """Returns an expression as text, for messages."""
    return expression.sql(_DIALECT, comments=False).replace(WINDOW.upper(), "window")


def _readable(text: str) -> str:
    """Returns the text with another name of the function ``window``, of the same length: positions stay."""
    tokens = sqlglot.tokenize(text, dialect=_DIALECT)
    calls = (a for a, b in pairwise(tokens) if a.token_type is TokenType.WINDOW and b.token_type is TokenType.L_PAREN)
    return edited(text, [((token.start, token.end + 1), WINDOW) for token in calls], (0, len(text)))


def _selecting(text: str) -> str:
    """Returns a query ``TABLE t …`` as ``SELECT * FROM t …``, and every other one as it is."""
    try:
        first = next(iter(sqlglot.tokenize(text, dialect=_DIALECT)), None)
    except SqlglotError as error:
        raise _not_parsed(error) from error
    if first is None or first.token_type is not TokenType.TABLE:
        return text
    return edited(text, [((first.start, first.end + 1), "SELECT * FROM")], (0, len(text)))


def parsed_query(text: str) -> exp.Query:
    """Parses a query; raises `InvalidRequest` or `Unsupported` (``view-query``)."""
    try:
        tree = parsed(_readable(text))
    except SqlglotError as error:
        raise _not_parsed(error) from error
    if not isinstance(tree, exp.Query):
        raise _unsupported(f"it is no SELECT but {type(tree).__name__.upper()}")
    return tree


def _not_parsed(error: SqlglotError) -> InvalidRequest:
    why = str(error).splitlines()[0]
    if isinstance(error, ParseError) and error.errors:  # whose text marks the place with codes for terminals
        first = error.errors[0]
        place = f"{str(first['start_context'])[-30:]}{first['highlight']}{str(first['end_context'])[:30]}"
        why = f"{str(first['description']).rstrip('.')}, at {' '.join(place.split())!r}"
    return InvalidRequest(f"the query cannot be parsed: {why}", code="view-query")


def _uses(tree: exp.Expr, named: set[str], complete: Callable[[exp.Table], str]) -> Iterator[TableUse]:
    """Yields the tables of a query in the order of the text, without the names that WITH gives."""
    named = named or {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found = [
        table
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier)
        and (table.db or table.name.lower() not in named)
        and table.find_ancestor(exp.Hint) is None  # which names tables by their aliases
    ]
    for table in sorted(found, key=position):
        time = _time_of(table)
        clauses = [name for name, value in table.args.items() if value and name not in _OF_TABLES]
        if (
            clauses != ([] if time is None else ["version"])
            or (isinstance(table.parent, exp.TableSample))
            or "$" in table.name
        ):
            raise _unsupported(f"it does not read all rows of a table by its own name: {shown(table)}")
        if (alias := table.args.get("alias")) is not None and alias.args.get("columns"):
            raise _unsupported(f"it gives columns of a table other names in FROM: {shown(table)}; do so in SELECT")
        yield TableUse(complete(table), table.alias_or_name, position(table), not table.alias, time)


def _time_of(table: exp.Table) -> exp.Expr | None:
    """Returns the time as of which a table is joined: a column, or that of the statement. One version of it is none."""
    time = system_time(table) if isinstance(table.parent, exp.Join) else None
    return time if isinstance(time, exp.Column | exp.CurrentTimestamp) else None


_MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
"""Texts that Spark takes for a time of its clock where they become dates or timestamps; a zone may follow."""

_OF_TABLES = ("this", "db", "catalog", "alias", "joins", "pivots")


def position(table: exp.Table) -> Span:
    """Returns the position of a table's name in the text."""
    parts = [part.meta for part in table.parts]
    return min(int(part["start"]) for part in parts), max(int(part["end"]) for part in parts) + 1


def _exists(name: str, definition_of: Callable[[str], TableDefinition]) -> bool:
    try:
        definition_of(name)
    except (NotFound, Unsupported, InvalidRequest):  # of a name that no table may have
        return False
    return True


def _check_repeatable(tree: exp.Expr) -> None:
    """Refuses functions whose result does not follow from the rows, so that no refresh could be exact."""
    for node in tree.walk(prune=lambda one: isinstance(one, exp.Version)):  # the time of which rows are looked up
        if not isinstance(node, exp.Func):
            if isinstance(node, exp.TableSample):
                raise _unsupported("TABLESAMPLE chooses other rows each time")
            if isinstance(node, exp.Literal) and node.is_string and _MOMENT.fullmatch(node.name):
                raise _unsupported(f"{node.name!r} as a date or a timestamp changes with the time")
            continue
        for name in _names_of(node):
            if name == "unix_timestamp" and any(node.args.values()):
                continue
            if name in _CHANGING:
                raise _unsupported(f"{name}() {_CHANGING[name]}, and the result has to follow from the rows alone")


_BARE = frozenset({"current_path", "current_time", "user"})
"""Functions that Spark calls without parentheses, too, where sqlglot takes them for columns."""


def _check_no_bare_call(tree: exp.Expr, columns: set[str]) -> None:
    """Refuses functions without parentheses that are no columns."""
    for column in tree.find_all(exp.Column):
        name = column.name.lower()
        if name in _BARE and len(column.parts) == 1 and not column.this.quoted and name not in columns:
            raise _unsupported(f"{name} {_CHANGING[name]}, and the result has to follow from the rows alone")


def _names_of(function: exp.Func) -> list[str]:
    """Returns the names that a function may have in the text."""
    if isinstance(function, exp.Anonymous):
        return [function.name.lower()]
    return [name.lower() for name in type(function).sql_names()]


def _check_names(tree: exp.Query) -> None:
    for item in tree.selects:
        if isinstance(item, exp.Alias | exp.Column | exp.Dot | exp.Star | exp.Aliases):
            continue
        raise InvalidRequest(
            f"the column {shown(item)} of the result has no name: give it one with AS", code="view-query"
        )


def _unsupported(what: str) -> Unsupported:
    return Unsupported(f"the query cannot be that of a materialized view: {what}", code="view-query")
