"""Splits a text into statements at its semicolons. Pure.

A semicolon inside of a text, a name in backticks, a comment or a compound statement (``BEGIN … END``) does not end
a statement. The words are those of sqlglot's tokenizer for Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest

__all__ = ["Split", "changes_session", "split", "used_database"]

_BLOCKS = frozenset({"IF", "WHILE", "LOOP", "REPEAT", "FOR", "CASE"})
"""The words behind the END of a block that is not a compound statement."""
_KEEPS_SESSION = frozenset(
    """
    SELECT WITH FROM VALUES TABLE INSERT UPDATE DELETE MERGE TRUNCATE CREATE ALTER DROP SHOW DESCRIBE DESC EXPLAIN
    CALL ANALYZE COMMENT OPTIMIZE VACUUM
    """.split()  # noqa: SIM905  # a list of them would fill a page
)


@dataclass(frozen=True, slots=True)
class Split:
    """The statements of a text.

    Attributes:
        statements: Each without the semicolon behind it, and without blanks around it.
        rest: What follows after the last semicolon, with at least one word; else it is empty.
    """

    statements: tuple[str, ...]
    rest: str

    @property
    def all(self) -> tuple[str, ...]:
        """The statements of a script, whose last one needs no semicolon."""
        return (*self.statements, self.rest) if self.rest else self.statements


def split(text: str) -> Split:
    """Splits a text.

    Raises:
        InvalidRequest: ``bad-statement``: a quote or a comment has no end.
    """
    try:
        tokens = sqlglot.tokenize(text, dialect="spark")
    except TokenError as error:
        raise InvalidRequest(
            "the statement cannot be read: a quote, a backtick or a comment in it has no end. Close it",
            code="bad-statement",
        ) from error
    found: list[str] = []
    begin = words = 0
    for end, count in _ends(tokens):
        if count > words:
            found.append(text[begin:end].strip())
        begin, words = end + 1, count + 1
    rest = text[begin:].strip() if len(tokens) > words else ""
    return Split(tuple(found), rest)


def _ends(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yields the place in the text and the number of each semicolon that ends a statement."""
    depth, first = 0, True
    for number, token in enumerate(tokens):
        word = token.text.upper()
        after = tokens[number + 1].text.upper() if number + 1 < len(tokens) else ""
        before = tokens[number - 1].text.upper() if number else ""
        if token.token_type is TokenType.SEMICOLON and depth == 0:
            yield token.start, number
            first = True
            continue
        if word == "BEGIN" and token.token_type is not TokenType.STRING:
            depth += first or depth > 0
        elif depth and word == "CASE" and before != "END":
            depth += 1
        elif depth and word == "END" and (after not in _BLOCKS or after == "CASE"):
            depth -= 1
        first = False


def used_database(statement: str) -> tuple[str, ...] | None:
    """Returns the name that a statement ``USE lake.shop`` makes current, in its parts; None for other statements."""
    tokens = _tokens(statement)
    if not tokens or tokens[0].text.upper() != "USE":
        return None
    names = tokens[1:]
    if len(names) > 1 and names[0].text.upper() in ("DATABASE", "SCHEMA", "NAMESPACE"):
        names = names[1:]
    dots = names[1::2]
    if not names or len(names) % 2 == 0 or any(dot.token_type is not TokenType.DOT for dot in dots):
        return None
    return tuple(name.text for name in names[::2])


def changes_session(statement: str) -> bool:
    """Returns whether it may change what later statements mean: by settings, temporary views or current names."""
    words = [token.text.upper() for token in _tokens(statement)]
    return bool(words) and (words[0] not in _KEEPS_SESSION or "TEMP" in words or "TEMPORARY" in words)


def _tokens(statement: str) -> list[Token]:
    try:
        return sqlglot.tokenize(statement, dialect="spark")
    except TokenError:
        return []
