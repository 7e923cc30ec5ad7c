"""Finds the statements of a script ``BEGIN … END`` that Spark's grammar lacks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import Unsupported
from tablestore.spark.sql.commands import VERBS, is_of_spark
from tablestore.spark.sql.names import Names, words_of
from tablestore.spark.sql.patterns import tokens_of

__all__ = ["script"]

_BEFORE = frozenset({"BEGIN", "THEN", "ELSE", "DO", "LOOP", "REPEAT", "ATOMIC"})
"""The words behind which a statement of a script begins; one also begins behind a semicolon."""
_VERBS = VERBS | {"ALTER", "CREATE", "DESC", "DESCRIBE", "DROP", "EXPLAIN", "INSERT", "REFRESH", "SHOW"}
"""The first words of statements that are rewritten as a whole."""

Rewrite = Callable[[str, Names], str]


def script(statement: str, tokens: Sequence[Token], names: Names, whole: Rewrite, part: Rewrite) -> str:
    """Returns a script with each statement rewritten that may need it.

    Args:
        statement: The script.
        tokens: Its tokens.
        names: The catalogs of the session.
        whole: Rewrites one statement.
        part: Rewrites what is in a part of a script that does not begin with a verb.

    Raises:
        Unsupported: ``script-use``: a statement behind USE with a name that is resolved before the script runs.
    """
    parts: list[str] = []
    done = 0
    moved = False
    for first, end in _between_semicolons(tokens):
        verb = next((n for n in _beginnings(tokens, first, end) if tokens[n].text.upper() in _VERBS), end)
        middle = tokens[verb].start if verb < len(tokens) else len(statement)
        close = tokens[end].start if end < len(tokens) else len(statement)
        for rewrite, text in ((part, statement[done:middle]), (whole, statement[middle:close])):
            in_full = rewrite(text, replace(names, catalog="", database="")) if moved else ""
            if moved and is_of_spark(tokens_of(text)):
                parts.append(in_full)
                continue
            parts.append(rewrite(text, names))
            if moved and parts[-1] != in_full:
                raise Unsupported(
                    f"{' '.join(text.split())} is behind a USE of its script, and its names are resolved before the "
                    "script runs: write them with catalog and database, or USE the database before the script",
                    code="script-use",
                )
        done = close
        moved = moved or any(_moves(tokens[n:end]) for n in _beginnings(tokens, first, end))
    return "".join([*parts, statement[done:]])


def _between_semicolons(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yields the number of the first token of each part, and of the semicolon behind it."""
    first = 0
    for number, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            yield first, number
            first = number + 1
    yield first, len(tokens)


def _beginnings(tokens: Sequence[Token], first: int, end: int) -> Iterator[int]:
    """Yields the numbers of the tokens of a part with which a statement may begin."""
    of_handler = False
    for number in range(first, end):
        if number == first or of_handler or tokens[number - 1].text.upper() in _BEFORE:
            yield number
        of_handler = of_handler or tokens[number].text.upper() == "HANDLER"


def _moves(tokens: Sequence[Token]) -> bool:
    """Returns whether tokens begin with ``USE`` or ``SET CATALOG``."""
    words = words_of(tokens[:2])
    return words[:1] == ["USE"] or words == ["SET", "CATALOG"]
