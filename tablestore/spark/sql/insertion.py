"""Rewrites ``INSERT INTO … WITH (…)``: a stream becomes a call, and options go where Spark's grammar has them.

    INSERT INTO t [(a, b)] [BY NAME] WITH ('checkpoint' = …) SELECT …    CALL lake.sys.start_stream(…)
    INSERT INTO t (a, b) WITH (…) SELECT …                               INSERT INTO t WITH (…) (a, b) SELECT …

Pure: text to text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest, Unsupported
from tablestore.spark.sql.names import NamedTable, Names, literal, named_table, words_of
from tablestore.spark.sql.parenthesized import Parenthesized, options_of, parenthesized

__all__ = ["insertion"]

_STREAM_OPTIONS = ("checkpoint", "trigger", "output_mode", "name")


@dataclass
class _Clauses:
    """The clauses between the name of a table and the query.

    Attributes:
        end: The number of the token behind them.
        begin: The number of the word WITH of the options; None without options.
        options: The options.
        columns: The list of columns; None without one.
        partition: Whether there is a PARTITION.
    """

    end: int
    begin: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    columns: list[str] | None = None
    partition: bool = False


def insertion(statement: str, tokens: Sequence[Token], names: Names, query: Callable[[str], str]) -> str:
    """Returns an ``INSERT`` as Spark parses it.

    Args:
        statement: The statement.
        tokens: Its tokens.
        names: The catalogs of the session.
        query: Rewrites the query of a stream.

    Raises:
        InvalidRequest: ``no-checkpoint``: options of a stream without a checkpoint; ``bad-options``.
        Unsupported: ``unknown-option``; ``output-mode``, ``stream-partition``: what a stream cannot do.
    """
    begin = 3 if len(tokens) > 2 and tokens[2].text.upper() == "TABLE" else 2
    table = named_table(tokens, begin, names)
    if table is None:
        return statement
    clauses = _clauses(tokens, table.end)
    if clauses.begin is None:
        return statement
    if any(option in clauses.options for option in _STREAM_OPTIONS):
        _refuse_parameters(tokens[clauses.begin : clauses.end])
        _check_stream(table, clauses, overwrites=tokens[1].text.upper() == "OVERWRITE")
        text = statement[tokens[clauses.end].start : tokens[-1].end + 1] if clauses.end < len(tokens) else ""
        return _call(table, clauses, query(text))
    if clauses.begin == table.end:
        return statement
    first, last = tokens[clauses.begin], tokens[_end_of(tokens, clauses.begin + 1)]
    name_end = tokens[table.end - 1].end + 1
    options, between = statement[first.start : last.end + 1], statement[name_end : first.start]
    return f"{statement[:name_end]} {options}{between.rstrip()}{statement[last.end + 1 :]}"


def _end_of(tokens: Sequence[Token], begin: int) -> int:
    listed = parenthesized(tokens, begin)
    assert listed is not None
    return listed.close


def _clauses(tokens: Sequence[Token], number: int) -> _Clauses:
    found = _Clauses(number)
    while found.end < len(tokens):
        word, listed = tokens[found.end].text.upper(), parenthesized(tokens, found.end + 1)
        if tokens[found.end].token_type is TokenType.WITH and listed is not None and found.begin is None:
            found.begin, found.options, found.end = found.end, options_of(listed), listed.close + 1
        elif word == "PARTITION" and listed is not None:
            found.partition, found.end = True, listed.close + 1
        elif words_of(tokens[found.end : found.end + 2]) == ["BY", "NAME"]:
            found.end += 2
        elif found.columns is None and (columns := _columns(parenthesized(tokens, found.end))) is not None:
            found.columns, found.end = columns
        else:
            break
    return found


def _columns(listed: Parenthesized | None) -> tuple[list[str], int] | None:
    """Returns the names of a list of columns, and the number of the token behind it; None for a query."""
    if listed is None or any(len(item) != 1 for item in listed.items):
        return None
    return [item[0].text for item in listed.items], listed.close + 1


def _refuse_parameters(options: Sequence[Token]) -> None:
    """Refuses parameters without a value: those with one are not there any more, if Spark's grammar found them."""
    if any(token.token_type in (TokenType.PLACEHOLDER, TokenType.COLON) for token in options):
        raise Unsupported(
            "an option of a stream is a parameter here, which has no value, or is in a statement that Spark's grammar "
            "lacks: write the value",
            code="bad-options",
        )


def _check_stream(table: NamedTable, clauses: _Clauses, *, overwrites: bool) -> None:
    if strange := [name for name in clauses.options if name not in _STREAM_OPTIONS]:
        raise Unsupported(
            f"INSERT INTO of a stream has no option {', '.join(strange)}; it has {', '.join(_STREAM_OPTIONS)}",
            code="unknown-option",
        )
    if "checkpoint" not in clauses.options:
        raise InvalidRequest(
            f"{', '.join(clauses.options)} is an option of a stream, which needs a folder for its progress: write "
            f"INSERT INTO {table.name} WITH ('checkpoint' = 'folder', …) SELECT … FROM STREAM …",
            code="no-checkpoint",
        )
    if overwrites:
        raise Unsupported(
            "INSERT OVERWRITE starts no stream: write INSERT INTO, and 'output_mode' = 'complete' if each batch shall "
            "replace the whole table",
            code="output-mode",
        )
    if clauses.partition:
        raise Unsupported(
            "INSERT INTO of a stream has no PARTITION: select the values of these columns in its query",
            code="stream-partition",
        )


def _call(table: NamedTable, clauses: _Clauses, query: str) -> str:
    given = {"query": query, **clauses.options}
    if clauses.columns is not None:
        given["columns"] = json.dumps(clauses.columns, ensure_ascii=False)
    return table.call("start_stream", {name: literal(value) for name, value in given.items()})
