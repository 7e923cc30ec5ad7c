"""Finds what Spark is certain to refuse, so that a mistyped word does not start Spark first. Pure.

A wrong refusal is worse than waiting for Spark. So this looks only at what is plain: the word with which a statement
begins, and names of columns in queries of tables whose columns are known. All that it does not know is for Spark:
subqueries, functions but a few, names that are also keywords, hints, time travel. It knows nothing of settings, session
variables and temporary views either, so it is asked only before there can be any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from filestore.errors import InvalidRequest
from filestore.model.text import did_you_mean, none_named

__all__ = ["BEGINNINGS", "Block", "blocks_of", "check_beginning", "check_columns"]

BEGINNINGS = frozenset(
    """
    ADD ALTER ANALYZE BEGIN CACHE CALL CLEAR CLOSE COMMENT COMMIT COMPACT CONVERT COPY CREATE DECLARE DELETE DESC
    DESCRIBE DFS DROP EXECUTE EXPLAIN EXPORT FETCH FROM FSCK GENERATE GRANT IMPORT INSERT LIST LOAD LOCK MAP MERGE MSCK
    OPEN OPTIMIZE REDUCE REFRESH REORG REPAIR REPLACE RESET RESTORE REVOKE ROLLBACK SELECT SET SHOW START SYNC TABLE
    TRUNCATE UNCACHE UNDROP UNLOCK UPDATE USE VACUUM VALUES WITH
    """.split()  # noqa: SIM905  # a list of them would fill a page
)
"""Words with which a statement of Spark, of Delta or of ours can begin, also one that only says what to do instead."""

_PLAIN = re.compile(r"[^\W\d]\w*")
_UNCERTAIN = re.compile(r"\$\{|\\\r?\n|/\*\+|\|>")
"""Variables that Spark replaces in the text, comments that go on in the next line, hints, and pipes."""
_WORDS = frozenset(word.lower() for word in Spark.Tokenizer.KEYWORDS) | frozenset(
    """
    current_database current_path current_timezone curdate grouping__id input_file_name now session user
    nulls last system
    """.split()  # noqa: SIM905  # a list of them would fill a page
)
"""Names that may be something else than a column: words of the grammar, functions without parentheses."""

_CLAUSES = ("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct")
_WALKED = (
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ),
    *(exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod),
    *(exp.Neg, exp.Case, exp.If, exp.Coalesce, exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Distinct),
    *(exp.Upper, exp.Lower, exp.Length, exp.Abs, exp.Alias, exp.Ordered),
)
"""Expressions whose arguments are expressions and nothing else: a name in them is a column."""
_NAMED_BY_TEXT = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Upper, exp.Lower, exp.Length, exp.Abs, exp.Add)
"""Expressions without an alias whose name in the result is no plain word, such as ``count(1)``."""


@dataclass(frozen=True, slots=True)
class Block:
    """A query of tables without a query around it.

    Attributes:
        sources: The tables, in the parts of their names, by the names that columns may be qualified with.
        columns: The columns that it names for certain: what each is qualified with, if it is, and its name.
        outputs: The names that it gives to columns of its result, other than those of its tables.
    """

    sources: Mapping[str, tuple[str, ...]]
    columns: tuple[tuple[str, str], ...]
    outputs: frozenset[str]


def check_beginning(statement: str) -> None:
    """Refuses a statement that begins with a word with which none begins.

    Raises:
        InvalidRequest: ``bad-statement``.
    """
    try:
        tokens = sqlglot.tokenize(statement, dialect="spark")
    except SqlglotError:
        return
    if not tokens or _UNCERTAIN.search(statement):
        return
    word, after = tokens[0].text, tokens[1].token_type if len(tokens) > 1 else None
    written = statement[tokens[0].start : tokens[0].end + 1]
    if word != written or not word.isascii() or not _PLAIN.fullmatch(word) or word.upper() in BEGINNINGS:
        return
    if after in (TokenType.COLON, TokenType.DOT):
        return  # the label of a script
    hint = did_you_mean(word, sorted(BEGINNINGS))
    raise InvalidRequest(
        f"no statement begins with {word!r}{hint}. The documentation of Spark SQL and docs/sql.md have the statements",
        code="bad-statement",
    )


def blocks_of(statement: str) -> list[Block]:
    """Returns the queries whose columns can be checked; none if it is not certain what the statement means."""
    if _UNCERTAIN.search(statement):
        return []
    try:
        tree = sqlglot.parse_one(statement, dialect="spark")
        return list(_blocks(tree))
    except (SqlglotError, RecursionError):
        return []


def check_columns(block: Block, known: Mapping[str, Sequence[str]]) -> None:
    """Refuses a column that no table of a query has.

    Args:
        block: The query.
        known: The columns of each of its sources.

    Raises:
        InvalidRequest: ``unknown-column``.
    """
    of = {source: {name.lower() for name in names} for source, names in known.items()}
    everywhere = {name for names in of.values() for name in names} | block.outputs
    listed = list(dict.fromkeys(name for names in known.values() for name in names))
    for qualifier, name in block.columns:
        if not qualifier:
            if name.lower() not in everywhere:
                raise InvalidRequest(none_named("column", name, listed), code="unknown-column")
        elif qualifier in of and qualifier not in everywhere and name.lower() not in of[qualifier]:
            raise InvalidRequest(none_named("column", name, known[qualifier]), code="unknown-column")


def _blocks(tree: exp.Expr) -> Iterator[Block]:
    if isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Select | exp.Union):
        if tree.args.get("with_") is None:
            yield from _blocks(tree.expression)
    elif isinstance(tree, exp.Union):
        if tree.args.get("with_") is None:
            yield from _blocks(tree.this)
            yield from _blocks(tree.expression)
    elif isinstance(tree, exp.Select):
        if _says_only(tree, _CLAUSES) and (found := _of_select(tree)) is not None:
            yield found
    elif isinstance(tree, exp.Delete | exp.Update):
        known = ("this", "where", "expressions") if isinstance(tree, exp.Update) else ("this", "where")
        sources = _sources([tree.this]) if _says_only(tree, known) else None
        if sources is not None:
            named = [*(tree.args.get("expressions") or ()), tree.args.get("where")]
            yield Block(sources, tuple(_columns(named)), frozenset())


def _of_select(tree: exp.Select) -> Block | None:
    source, joins = tree.args.get("from_"), tree.args.get("joins") or []
    if source is None or not _says_only(source, ("this",)):
        return None
    sources = _sources([source.this, *(join.this for join in joins)])
    if sources is None:
        return None
    names = [_output(node) for node in tree.expressions]
    named = [*tree.expressions, tree.args.get("where"), *(join.args.get("on") for join in joins)]
    if all(name is not None for name in names):
        # the other clauses may name columns of the result, too
        named += [tree.args.get(clause) for clause in ("group", "having", "order")]
    return Block(sources, tuple(_columns(named)), frozenset(name.lower() for name in names if name))


def _sources(tables: Sequence[exp.Expression]) -> dict[str, tuple[str, ...]] | None:
    """Returns the tables by their aliases; None if one is something else than a table's plain name."""
    found: dict[str, tuple[str, ...]] = {}
    for table in tables:
        if not isinstance(table, exp.Table) or not _says_only(table, ("this", "db", "catalog", "alias")):
            return None
        parts = tuple(part.name for part in table.parts if isinstance(part, exp.Identifier))
        if len(parts) != len(table.parts) or not all(map(_PLAIN.fullmatch, parts)):
            return None
        alias = table.args.get("alias")
        if alias is not None and (not _says_only(alias, ("this",)) or not isinstance(alias.this, exp.Identifier)):
            return None
        name = (parts[-1] if alias is None else alias.this.name).lower()
        if name in found:
            return None
        found[name] = parts
    return found


def _output(node: exp.Expression) -> str | None:
    """Returns the name that an expression has in the result, or nothing if no plain word is it; None: unknown."""
    if isinstance(node, exp.Alias):
        return node.alias
    if isinstance(node, exp.Star):
        return "" if _says_only(node, ()) else None
    if isinstance(node, exp.Column):
        if isinstance(node.this, exp.Star):
            return None
        return node.name if node.table else ""  # a field has its own name, and a column is one of a table
    return "" if isinstance(node, _NAMED_BY_TEXT) else None


def _columns(nodes: Sequence[exp.Expression | None]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, exp.Column):
            if _is_certain(node):
                yield node.table.lower(), node.name
        elif isinstance(node, (*_WALKED, exp.Where, exp.Group, exp.Having, exp.Order)):
            yield from _columns(list(node.iter_expressions()))


def _is_certain(node: exp.Column) -> bool:
    """Returns whether it is a column, maybe of a table that is named; with more parts it may be a field."""
    names = [node.name, *([node.table] if node.table else [])]
    return (
        _says_only(node, ("this", "table"))
        and isinstance(node.this, exp.Identifier)
        and all(_PLAIN.fullmatch(name) and name[0] != "_" and name.lower() not in _WORDS for name in names)
    )


def _says_only(node: exp.Expression, known: Sequence[str]) -> bool:
    return all(name in known or value in (None, False, []) for name, value in node.args.items())
