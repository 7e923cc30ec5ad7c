"""Rewrites what may be joined to the name of a table of ours: a system table, or a version. Pure: text to text.

    FROM shop.orders$files                  the name in backticks
    FROM shop.orders@v3                     shop.orders VERSION AS OF 3 (Delta)
    FROM shop.orders@20260131120000000      shop.orders TIMESTAMP AS OF '2026-01-31 12:00:00.000' (Delta)

Such text elsewhere stays as it is, also in names of others: ``SET key = a.B$C`` is none of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from tablestore.spark.sql.names import Names, is_word, literal, name_begin, table_ending, words_of

__all__ = ["system_tables", "versions"]

_READ = frozenset({"FROM", "JOIN", "USING"})
"""The words behind which a query names a table of which it may read a version."""
_NAMED = _READ | {
    "DESC", "DESCRIBE", "EXISTS", "EXTENDED", "FORMATTED", "IN", "INTO", "LIKE", "OVERWRITE", "STREAM", "TABLE",
    "UPDATE",
}  # fmt: skip
"""The words behind which a statement names any table."""
_OPENED = _READ | {"TABLE", "STREAM"}
"""The words behind which a name in parentheses is that of a table."""
_LISTING = frozenset({"FROM", "SELECT", "WHERE", "BY", "HAVING", "VALUES", "SET"})
"""The words of a clause with a list."""
_VARIABLES = frozenset({"SET", "RESET", "ADD", "LIST"})
"""The first words of statements whose text Spark takes as it is."""
_WORD = re.compile(r"\w+")
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_VERSION = re.compile(r"v(\d+)", re.IGNORECASE)
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{3})")


def system_tables(statement: str, names: Names) -> str:
    """Puts each name ``t$files`` of a system table of ours into backticks, also before its columns."""
    tokens = sqlglot.tokenize(statement, dialect="spark")
    named = [
        number
        for number in _suffixed(tokens, "$", _NAMED, names.without_views)
        # ${…} is a variable, for which Spark puts its value
        if _WORD.fullmatch(tokens[number + 2].text)
        and tokens[number].token_type in _NAMES
        and statement[tokens[number].start] != "`"
    ]
    parts: list[str] = []
    done = 0
    for number in sorted({*named, *_qualifiers(tokens, named, names)}):
        table, system = tokens[number], tokens[number + 2]
        parts += [statement[done : table.start], f"`{table.text}${system.text}`"]
        done = system.end + 1
    return "".join([*parts, statement[done:]])


def _qualifiers(tokens: Sequence[Token], named: Sequence[int], names: Names) -> Iterator[int]:
    """Yields where the name of one of these tables stands before one of its columns, as in ``t$files.path``."""
    wholes = [(names.catalog, names.database, *_texts(tokens, number))[-3:] for number in named]
    endings = {whole[begin:] for whole in wholes for begin in range(3)}
    for number in _joined(tokens, "$") if named else ():
        is_before_column = number + 3 < len(tokens) and tokens[number + 3].token_type is TokenType.DOT
        if is_before_column and tuple(_texts(tokens, number)) in endings:
            yield number


def _texts(tokens: Sequence[Token], last: int) -> list[str]:
    """The parts of a name with its suffix."""
    name = [token.text for token in tokens[name_begin(tokens, last + 1) : last + 1 : 2]]
    return [*name[:-1], f"{name[-1]}${tokens[last + 2].text}"]


def versions(statement: str, names: Names) -> str:
    """Writes each ``t@v3`` and ``t@yyyyMMddHHmmssSSS`` of a table of ours as Spark's own clause."""
    parts: list[str] = []
    done = 0
    tokens = sqlglot.tokenize(statement, dialect="spark")
    for number in _suffixed(tokens, "@", _READ, names):
        table, version = tokens[number], tokens[number + 2]
        clause = _clause(version.text)
        if clause is not None:
            parts += [statement[done : table.end + 1], clause]
            done = version.end + 1
    return "".join([*parts, statement[done:]])


def _clause(version: str) -> str | None:
    if (number := _VERSION.fullmatch(version)) is not None:
        return f" VERSION AS OF {number[1]}"
    if (time := _TIME.fullmatch(version)) is None:
        return None
    year, month, day, hour, minute, second, milli = time.groups()
    return f" TIMESTAMP AS OF {literal(f'{year}-{month}-{day} {hour}:{minute}:{second}.{milli}')}"


def _suffixed(tokens: Sequence[Token], sign: str, behind: frozenset[str], names: Names) -> Iterator[int]:
    """Yields the number of the last token of each name of ours that has the sign behind it, and then a word."""
    joined = [] if _is_setting(tokens) else list(_joined(tokens, sign))
    places = _places(tokens) if joined else {}
    for number in joined:
        table = table_ending(tokens, number + 1, names)
        if table is not None and _names_table(tokens, table.begin - 1, behind, places):
            yield number


def _joined(tokens: Sequence[Token], sign: str) -> Iterator[int]:
    for number, (table, between, suffix) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        if between.text == sign and between.start == table.end + 1 and suffix.start == between.end + 1:
            yield number


def _is_setting(tokens: Sequence[Token]) -> bool:
    """Returns whether Spark takes the text of a statement as it is. A variable may have the value of a query."""
    words = words_of(tokens[:4])
    sets_variable = words[:1] == ["SET"] and (words[1:2] in (["VAR"], ["VARIABLE"], ["("]) or words[2:] == ["=", "("])
    return words[:1] != [] and words[0] in _VARIABLES and not sets_variable


def _places(tokens: Sequence[Token]) -> Mapping[int, bool]:
    """Returns for each comma and each ``(`` whether a name behind it is that of a table: both may also be of a call.

    The items of a list are what the last word of a clause before them says, or else what the parenthesis around them.
    """
    found: dict[int, bool] = {}
    lists = [False]
    for number, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            found[number] = _names_table(tokens, number - 1, _OPENED, found)
            lists.append(found[number])
        elif token.token_type is TokenType.R_PAREN:
            lists.pop()
            lists = lists or [False]
        elif token.token_type is TokenType.COMMA:
            found[number] = lists[-1]
        elif is_word(token, _LISTING):
            lists[-1] = token.text.upper() == "FROM"
    return found


def _names_table(tokens: Sequence[Token], before: int, behind: frozenset[str], places: Mapping[int, bool]) -> bool:
    """Returns whether a name behind a token is that of a table."""
    return before >= 0 and places.get(before, is_word(tokens[before], behind))
