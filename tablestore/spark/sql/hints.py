"""Rewrites Flink's hint of options of a table as the options that Spark's grammar has. Pure: text to text.

FROM shop.orders /*+ OPTIONS('fresh' = 'true') */    FROM shop.orders WITH ('fresh' = 'true')
TABLE shop.orders /*+ OPTIONS('fresh' = 'true') */   SELECT * FROM shop.orders WITH ('fresh' = 'true')
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import Unsupported
from tablestore.spark.sql.names import Names, named_table, table_ending, words_of

__all__ = ["with_options"]

_HINT = re.compile(r"/\*\+\s*OPTIONS\s*\(", re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*\+\s*OPTIONS\s*(\((?:(?!\*/).)*?\))\s*\*/|/\*.*?\*/", re.IGNORECASE | re.DOTALL)
_BEFORE = frozenset({"FROM", "JOIN", ",", "(", "INTO", "OVERWRITE", "STREAM", "TABLE", "USING"})
"""The words behind which a statement names a table that it reads or writes."""
_OF_TABLES = frozenset({
    "ALTER", "ANALYZE", "CACHE", "CREATE", "DESC", "DESCRIBE", "DROP", "EXTERNAL", "LAZY", "ON", "REFRESH", "REPAIR",
    "REPLACE", "TRUNCATE", "UNCACHE",
})  # fmt: skip
"""The words behind which ``TABLE t`` is no query."""


def with_options(statement: str, names: Names) -> str:
    """Returns the statement with each hint ``OPTIONS`` behind the name of a table of ours as ``WITH (…)``.

    Raises:
        Unsupported: ``options-hint``: the hint is in another place.
    """
    if not _HINT.search(statement):
        return statement
    tokens = sqlglot.tokenize(statement, dialect="spark")
    for number, token in enumerate(tokens):
        if token.token_type is TokenType.HINT and _HINT.match(token.text) and _reads_ours(tokens, names):
            raise _misplaced(tokens[number - 1].text)
    parts: list[str] = []
    done = 0
    for number, token in enumerate(tokens):
        end = tokens[number + 1].start if number + 1 < len(tokens) else len(statement)
        for comment in _COMMENT.finditer(statement, token.end + 1, end):
            begin = None if comment[1] is None else _name_of_ours(tokens, number, names)
            if begin is None:
                continue
            if (table := tokens[begin - 1]).text.upper() == "TABLE" and _is_query(tokens, begin - 1):
                parts += [statement[done : table.start], "SELECT * FROM"]
                done = table.end + 1
            parts += [statement[done : comment.start()], f"WITH {comment[1]}"]
            done = comment.end()
    return "".join([*parts, statement[done:]])


def _reads_ours(tokens: Sequence[Token], names: Names) -> bool:
    """Returns whether a statement names a table of ours. Of others' tables Spark itself drops a hint, and warns."""
    numbers = (number for number, token in enumerate(tokens) if token.text.upper() in _BEFORE)
    return any(named_table(tokens, number + 1, names.without_views) is not None for number in numbers)


def _name_of_ours(tokens: Sequence[Token], last: int, names: Names) -> int | None:
    """Returns where the name of a table of ours begins that ends with a token; None if there is none."""
    table = table_ending(tokens, last + 1, names.without_views)
    if table is None:
        return None
    if tokens[table.begin - 1].text.upper() not in _BEFORE:
        raise _misplaced(tokens[last].text)
    if verb := _changes(tokens, table.begin - 1):
        raise _misplaced(f"{verb} {tokens[last].text}")
    return table.begin


def _changes(tokens: Sequence[Token], before: int) -> str:
    """Returns the words of a statement that changes the table behind a token and has no options; empty for others."""
    words = words_of(tokens[max(before - 4, 0) : before + 1])
    if words[-2:] == ["DELETE", "FROM"]:
        return "DELETE FROM"
    if words[-2:] == ["MERGE", "INTO"] or words == ["MERGE", "WITH", "SCHEMA", "EVOLUTION", "INTO"]:
        return "MERGE INTO"
    if words[-1] == "TABLE" and not _is_query(tokens, before) and words[-2] not in ("INTO", "OVERWRITE"):
        return " ".join(words[-2:]).removeprefix("( ")
    return ""


def _is_query(tokens: Sequence[Token], table: int) -> bool:
    """Returns whether a word TABLE begins the query ``TABLE t``, and is no word of a statement or an argument."""
    before = tokens[table - 1] if table else None
    if before is None or before.token_type is not TokenType.L_PAREN:
        return before is None or before.text.upper() not in _OF_TABLES | {"INTO", "OVERWRITE"}
    return table < 2 or tokens[table - 2].token_type is not TokenType.VAR  # of a function: f(TABLE t)


def _misplaced(behind: str) -> Unsupported:
    return Unsupported(
        "the hint OPTIONS is of a table that a query reads or INSERT writes: it stands behind the name of the table in "
        f"FROM, JOIN, TABLE or INSERT INTO, before its alias, and not behind {behind}",
        code="options-hint",
    )
