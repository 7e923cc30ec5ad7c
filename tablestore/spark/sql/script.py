"""Finds the statements of a script ``BEGIN … END`` that Spark's grammar lacks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["script"]

_BEFORE = frozenset({"BEGIN", "THEN", "ELSE", "DO", "LOOP", "REPEAT", "ATOMIC"})
"""The words behind which a statement of a script begins; one also begins behind a semicolon."""
_VERBS = frozenset({"ALTER", "CREATE", "DESC", "DESCRIBE", "DROP", "EXPLAIN", "INSERT", "REFRESH", "SHOW"})
"""The first words of statements that are rewritten as a whole."""


def script(statement: str, tokens: Sequence[Token], rewrite: Callable[[str], str]) -> str:
    """Returns a script with each statement rewritten that may need it.

    Args:
        statement: The script.
        tokens: Its tokens.
        rewrite: Rewrites one statement.
    """
    parts: list[str] = []
    done = 0
    for number in range(1, len(tokens)):
        before = tokens[number - 1]
        begins = before.token_type is TokenType.SEMICOLON or before.text.upper() in _BEFORE
        if not begins or tokens[number].text.upper() not in _VERBS or tokens[number].start < done:
            continue
        end = next((t.start for t in tokens[number:] if t.token_type is TokenType.SEMICOLON), len(statement))
        parts += [statement[done : tokens[number].start], rewrite(statement[tokens[number].start : end])]
        done = end
    return "".join([*parts, statement[done:]])
