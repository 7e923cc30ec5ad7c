"""Checks the tokens of a query for what its syntax tree does not say, or says otherwise than Spark reads it. Pure.

sqlglot knows functions that Spark does not have, leaves out arguments that are too many, and writes out short units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from tablestore.local_sql.refusal import NotLocalError

__all__ = ["check_tokens", "inside"]

_VALUES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN, TokenType.END)
"""The ends of what a plus may be behind."""
_MANY = 1 << 10
_ARGUMENTS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("row_number", "rank", "dense_rank"), (0, 0)),
    **dict.fromkeys(("sum", "avg", "mean", "min", "max", "count_if", "abs", "length", "char_length", "len"), (1, 1)),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofmonth", "dayofyear", "dayofweek", "weekofyear"), (1, 1)),
    **dict.fromkeys(("hour", "minute", "second", "extract", "to_date", "date", "last_day"), (1, 1)),
    **dict.fromkeys(("trim", "ltrim", "rtrim", "cast", "try_cast"), (1, 1)),
    **dict.fromkeys(("nvl", "ifnull", "nullif", "startswith", "contains", "left"), (2, 2)),
    **dict.fromkeys(("date_trunc", "date_add", "dateadd", "date_sub", "datediff", "date_diff"), (2, 2)),
    **dict.fromkeys(("substring", "substr"), (1, 3)),  # FROM and FOR are no commas
    "replace": (2, 3),
    "if": (3, 3),
    "count": (1, 1),
    **dict.fromkeys(("coalesce", "concat"), (1, _MANY)),
    **dict.fromkeys(("greatest", "least"), (2, _MANY)),
}
"""The functions of Spark that are known, each with the least and the greatest number of its arguments."""
_UNITS = {"year", "quarter", "month", "week", "day", "hour", "minute", "second"}


def check_tokens(text: str) -> None:
    """Raises `NotLocalError` for a text that is not in the syntax tree as it is written."""
    for mark, what in (("\\", "a backslash"), ("{", "a brace, as of ${…}"), ("::", "a cast by ::")):
        if mark in text:
            raise NotLocalError(f"it has {what}")
    tokens = sqlglot.tokenize(text, dialect="spark")
    for before, token in pairwise(tokens):
        if token.token_type == TokenType.PIPE_GT:
            raise NotLocalError("it has a pipe (|>)")
        if before.token_type == token.token_type == TokenType.STRING:
            raise NotLocalError("it has two texts side by side, as in 'it''s'")  # sqlglot drops the quote
        if token.token_type == TokenType.PLUS and before.token_type not in _VALUES:
            raise NotLocalError("it has a plus before a value")  # sqlglot drops it
    for number, (token, following) in enumerate(pairwise(tokens)):
        if following.token_type == TokenType.L_PAREN:
            _check_call(text, token, tokens[number + 2 :])


def _check_call(text: str, name: Token, behind: Sequence[Token]) -> None:
    """Checks a call of a function; other words may be before a parenthesis, too."""
    known = _ARGUMENTS.get(name.text.lower()) if name.token_type != TokenType.IDENTIFIER else None
    if known is None and name.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
        return
    between = list(inside(behind))
    shown = f"{text[name.start : between[-1].end + 1]})" if between else f"{name.text}()"
    if known is None:
        raise NotLocalError(f"it has {shown}")
    least, most = known
    count = sum(depth == 0 and token.token_type == TokenType.COMMA for token, depth in _deep(between)) + bool(between)
    if not least <= count <= most:
        raise NotLocalError(f"it has {shown}, with another number of arguments than is known")
    if name.text.lower() == "date_trunc":
        unit = between[0]
        if unit.token_type != TokenType.STRING or unit.text.lower() not in _UNITS:
            raise NotLocalError("it has DATE_TRUNC with a unit that is not written out")


def inside(behind: Sequence[Token]) -> Iterator[Token]:
    """Yields the tokens up to the end of a parenthesis that has been opened."""
    for token, depth in _deep(behind):
        if depth < 0:
            return
        yield token


def _deep(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Yields tokens with the number of parentheses that are open; one that closes is outside."""
    depth = 0
    for token in tokens:
        depth -= token.token_type == TokenType.R_PAREN
        yield token, depth
        depth += token.token_type == TokenType.L_PAREN
