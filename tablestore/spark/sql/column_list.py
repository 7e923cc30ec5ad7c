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
from filestore.model.option_values import duration_text
from tablestore.spark.sql.parenthesized import outside_parentheses, parenthesized

__all__ = ["ColumnList", "column_list"]

_MILLISECONDS = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "WEEK": 604_800_000,
}


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
    found = parenthesized(tokens, begin)
    if found is None:
        return None
    marks = [item for item in found.items if _is_watermark(statement, item)]
    columns = [item for item in found.items if not _is_watermark(statement, item)]
    if computed := [item for item in columns if len(item) > 1 and item[1].token_type is TokenType.ALIAS]:
        raise _computed(computed[0][0].text)
    if len(marks) > 1:
        raise InvalidRequest("a table has one WATERMARK: leave the others out", code="bad-watermark")
    text = statement[tokens[begin].end + 1 : tokens[found.close].start]
    if marks:
        text = ", ".join(_source(statement, item) for item in columns)
    outside = (token for item in columns for token in outside_parentheses(item[1:]))
    metadata = any(_word(statement, token) == "METADATA" for token in outside)
    return ColumnList(begin, found.close, text, metadata, _watermark(statement, marks[0]) if marks else {})


def _is_watermark(statement: str, item: Sequence[Token]) -> bool:
    return [_word(statement, token) for token in item[:2]] == ["WATERMARK", "FOR"]


def _word(statement: str, token: Token) -> str:
    """Returns a word of the grammar in upper case; nothing for a name in quotes."""
    return "" if statement[token.start] in "`'\"" else token.text.upper()


def _source(statement: str, tokens: Sequence[Token]) -> str:
    """Returns tokens as they are written."""
    return statement[tokens[0].start : tokens[-1].end + 1] if tokens else ""


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
    raise InvalidRequest(
        f"{_source(statement, clause)} is not understood: write a column and how late its rows may be, as in "
        "WATERMARK FOR at AS at - INTERVAL '5' SECOND",
        code="bad-watermark",
    )


def _delay(amount: str, unit: str) -> str:
    """Returns an interval as the value of ``watermark.delay``."""
    factor = _MILLISECONDS.get(unit.removesuffix("S"), 0)
    milliseconds = Decimal(amount) * factor if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", amount) else None
    if not factor or milliseconds is None or milliseconds % 1:
        raise InvalidRequest(
            f"INTERVAL '{amount}' {unit} is no delay of a watermark: write a number of whole milliseconds, and one of "
            f"{', '.join(_MILLISECONDS)}",
            code="bad-watermark",
        )
    return duration_text(int(milliseconds))


def _computed(column: str) -> Unsupported:
    return Unsupported(
        f"column {column} is computed, and a table only has columns that are stored: leave it out, and compute it in a "
        "view (CREATE VIEW … AS SELECT *, … ) or in the INSERT",
        code="computed-column",
    )
