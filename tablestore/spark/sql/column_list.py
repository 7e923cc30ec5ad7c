"""The list of columns of CREATE TABLE, with clauses that Spark's grammar lacks. Pure: text to values.

at TIMESTAMP METADATA FROM 'timestamp'           FLIP-107
WATERMARK FOR at AS at - INTERVAL '5' SECOND     Flink's watermark: the options watermark.column and watermark.delay
cost AS price * quantity                         Flink's computed column, which tables do not have
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest, Unsupported

__all__ = ["ColumnList", "column_list"]

_MILLISECONDS = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "WEEK": 604_800_000,
}
_OPTION_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
"""The units of an option's duration, of which the longest is taken that gives a whole number."""


@dataclass(frozen=True, slots=True)
class ColumnList:
    """The columns of a CREATE TABLE.

    Attributes:
        open: The number of the token ``(`` before them.
        close: The number of the token ``)`` behind them.
        text: What is between the two, without the watermark.
        metadata: Whether a column is a METADATA column.
        watermark: The options that stand for the watermark; empty without one.
    """

    open: int
    close: int
    text: str
    metadata: bool
    watermark: Mapping[str, str]


def column_list(statement: str, tokens: Sequence[Token], begin: int) -> ColumnList | None:
    """Returns the list of columns that begins at a token; None if there is none.

    Raises:
        InvalidRequest: ``bad-watermark``: the clause is not of the form that is understood, or it is there twice.
        Unsupported: ``computed-column``.
    """
    if begin >= len(tokens) or tokens[begin].text != "(":
        return None
    depth, metadata, first = 0, False, True
    marks: list[tuple[int, int]] = []
    for number in range(begin, len(tokens)):
        token = tokens[number]
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            if marks and marks[-1][1] < 0:
                marks[-1] = (marks[-1][0], number)
            return _found(statement, tokens, (begin, number), metadata, marks)
        if depth != 1 or token.token_type is TokenType.STRING:
            continue
        if first and [_word(statement, word) for word in tokens[number : number + 2]] == ["WATERMARK", "FOR"]:
            marks.append((number, -1))
        in_mark = bool(marks) and marks[-1][1] < 0
        if token.text == "," and in_mark:
            marks[-1] = (marks[-1][0], number)
        elif not in_mark:
            metadata |= not first and _word(statement, token) == "METADATA"
            if not first and token.token_type is TokenType.ALIAS and tokens[number - 2].text in ("(", ","):
                raise _computed(tokens[number - 1].text)
        first = token.text in ("(", ",")
    return None  # it is never closed, as Spark will say


def _word(statement: str, token: Token) -> str:
    """Returns a word of the grammar in upper case; nothing for a name in quotes."""
    return "" if statement[token.start] in "`'\"" else token.text.upper()


def _found(
    statement: str, tokens: Sequence[Token], place: tuple[int, int], metadata: bool, marks: Sequence[tuple[int, int]]
) -> ColumnList:
    begin, end = tokens[place[0]].end + 1, tokens[place[1]].start
    if not marks:
        return ColumnList(*place, statement[begin:end], metadata, {})
    if len(marks) > 1:
        raise InvalidRequest("a table has one WATERMARK: leave the others out", code="bad-watermark")
    start, behind = marks[0]
    watermark = _watermark(statement, tokens[start:behind])
    before, after = statement[begin : tokens[start].start].rstrip(), statement[tokens[behind].start : end]
    text = before.removesuffix(",").rstrip() + after if before else after.removeprefix(",").lstrip()
    return ColumnList(*place, text, metadata, watermark)


def _watermark(statement: str, clause: Sequence[Token]) -> Mapping[str, str]:
    """Returns the options that ``WATERMARK FOR at AS at - INTERVAL '5' SECOND`` stands for."""
    words = [token.text for token in clause]
    column, rest = words[2] if len(words) > 2 else "", words[3:]
    if [word.upper() for word in rest[:1]] == ["AS"] and rest[1:2] == [column]:
        match rest[2:]:
            case []:
                return {"watermark.column": column}
            case ["-", interval, amount, unit] if interval.upper() == "INTERVAL":
                return {"watermark.column": column, "watermark.delay": _delay(amount, unit.upper())}
    written = statement[clause[0].start : clause[-1].end + 1]
    raise InvalidRequest(
        f"{written} is not understood: write a column and how late its rows may be, as in "
        "WATERMARK FOR at AS at - INTERVAL '5' SECOND",
        code="bad-watermark",
    )


def _delay(amount: str, unit: str) -> str:
    """Returns an interval as the value of ``watermark.delay``."""
    factor = _MILLISECONDS.get(unit.removesuffix("S"), 0)
    milliseconds = Decimal(amount) * factor if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", amount) else Decimal("0.1")
    if not factor or milliseconds != int(milliseconds):
        raise InvalidRequest(
            f"INTERVAL '{amount}' {unit} is no delay of a watermark: write a number of whole milliseconds, and one of "
            f"{', '.join(_MILLISECONDS)}",
            code="bad-watermark",
        )
    name, size = next((name, size) for name, size in _OPTION_UNITS if int(milliseconds) % size == 0)
    return f"{int(milliseconds) // size} {name}"


def _computed(column: str) -> Unsupported:
    return Unsupported(
        f"column {column} is computed, and a table only has columns that are stored: leave it out, and compute it in a "
        "view (CREATE VIEW … AS SELECT *, … ) or in the INSERT",
        code="computed-column",
    )
