"""Rewrites Flink's hint of options of a table as the options that Spark's grammar has. Pure: text to text.

FROM shop.orders /*+ OPTIONS('fresh' = 'true') */    FROM shop.orders WITH ('fresh' = 'true')
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import Unsupported
from tablestore.spark.sql.names import Names, named_table
from tablestore.spark.sql.system_time import common_tables

__all__ = ["with_options"]

_HINT = re.compile(r"/\*\+\s*OPTIONS\s*\(", re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*\+\s*OPTIONS\s*(\((?:(?!\*/).)*?\))\s*\*/|/\*.*?\*/", re.IGNORECASE | re.DOTALL)
_BEFORE = frozenset({"FROM", "JOIN", ",", "(", "INTO", "OVERWRITE", "STREAM", "TABLE", "USING"})
"""The words behind which a statement names a table that it reads or writes."""


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
            if comment[1] is not None and _is_ours(tokens, number, names):
                parts += [statement[done : comment.start()], f"WITH {comment[1]}"]
                done = comment.end()
    return "".join([*parts, statement[done:]])


def _reads_ours(tokens: Sequence[Token], names: Names) -> bool:
    """Returns whether a statement names a table of ours. Of others' tables Spark itself drops a hint, and warns."""
    numbers = (number for number, token in enumerate(tokens) if token.text.upper() in _BEFORE)
    return any(named_table(tokens, number + 1, names) is not None for number in numbers)


def _is_ours(tokens: Sequence[Token], last: int, names: Names) -> bool:
    """Returns whether the name of a table of ours ends with a token."""
    for begin in (last - 4, last - 2, last):
        table = named_table(tokens, begin, names) if begin > 0 else None
        if table is None or table.end != last + 1 or tokens[begin - 1].token_type is TokenType.DOT:
            continue
        if tokens[begin - 1].text.upper() not in _BEFORE:
            raise _misplaced(tokens[last].text)
        if begin == last and tokens[last].text.lower() in common_tables(tokens):
            raise Unsupported(
                f"{tokens[last].text} is a query of WITH here, which has no options: write the hint OPTIONS behind the "
                "table that it reads",
                code="options-hint",
            )
        return True
    return False


def _misplaced(behind: str) -> Unsupported:
    return Unsupported(
        f"the hint OPTIONS stands behind the name of a table, before its alias, and not behind {behind}",
        code="options-hint",
    )
