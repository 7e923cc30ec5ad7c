"""Refuses temporal joins of Flink's SQL that a statement of Spark cannot do. Pure.

Spark has ``FOR SYSTEM_TIME AS OF <time>`` itself: the version at one time for the whole statement, for which
``current_timestamp()`` means the newest one. Flink has there a column of the other side, so that each row has a time of
its own; `SparkStore.lookup_join` does that.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import Unsupported
from tablestore.spark.sql.names import Names, name_parts, named_table

__all__ = ["refuse_temporal_joins"]

_COLUMNS = (TokenType.VAR, TokenType.IDENTIFIER)


def refuse_temporal_joins(tokens: Sequence[Token], names: Names, *, streaming: bool = False) -> None:
    """Checks each ``FOR SYSTEM_TIME AS OF`` behind a table of ours.

    Args:
        tokens: The statement.
        names: The catalogs of the session.
        streaming: Whether it is the query of a stream, which would keep the version of its start.

    Raises:
        Unsupported: ``temporal-join``.
    """
    for number, token in enumerate(tokens):
        if token.text.upper() != "SYSTEM_TIME" or [t.text.upper() for t in tokens[number + 1 : number + 3]] != [
            "AS",
            "OF",
        ]:
            continue
        table = _table_before(tokens, number, names)
        if table is None:
            continue
        parts, end = name_parts(tokens, number + 3)
        is_call = end < len(tokens) and tokens[end].token_type is TokenType.L_PAREN
        if number + 3 < len(tokens) and tokens[number + 3].token_type in _COLUMNS and not is_call:
            raise Unsupported(
                f"FOR SYSTEM_TIME AS OF {'.'.join(parts)} gives each row a time of its own, and a statement reads one "
                f"version of {table}: use lake.lookup_join(df, {table!r}, at={parts[-1]!r}) in Python, or FOR "
                "SYSTEM_TIME AS OF current_timestamp() for the newest version",
                code="temporal-join",
            )
        if streaming:
            raise Unsupported(
                f"a stream of SQL would keep the version that {table} has now: use lake.lookup_join(stream, {table!r}) "
                "in Python, which reads the newest version in each micro-batch",
                code="temporal-join",
            )


def _table_before(tokens: Sequence[Token], number: int, names: Names) -> str | None:
    """Returns the table of ours whose name ends before ``[FOR] SYSTEM_TIME``."""
    end = number - 1 if number and tokens[number - 1].text.upper() == "FOR" else number
    for begin in (end - 5, end - 3, end - 1):  # the longest name that ends there
        if begin < 0 or (begin and tokens[begin - 1].token_type is TokenType.DOT):
            continue
        table = named_table(tokens, begin, names)
        if table is not None and table.end == end:
            return table.name
    return None
