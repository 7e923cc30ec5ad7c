"""Rewrites the statements about materialized views, which Spark knows in its pipelines only. Pure: text to text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest, Unsupported
from tablestore.spark.sql.names import NamedTable, Names, literal, named_table, words_of
from tablestore.spark.sql.parenthesized import options_of, parenthesized, texts
from tablestore.spark.sql.patterns import tokens_of

__all__ = ["explained", "materialized_view"]

_NAME = 3


def explained(statement: str, names: Names) -> str | None:
    """Rewrites ``EXPLAIN`` of a statement that creates or refreshes a materialized view of ours; None for others."""
    tokens = tokens_of(statement)
    if words_of(tokens[1:3]) != ["MATERIALIZED", "VIEW"]:
        return None
    if tokens[0].text.upper() == "REFRESH":
        table = named_table(tokens, _NAME, names.without_views)
        if table is None:
            return None
        _require_end(tokens, table.end, "EXPLAIN REFRESH MATERIALIZED VIEW takes a name and nothing else")
        return table.call("explain_materialized_view")
    created = materialized_view(statement, tokens, names)
    if created == statement:
        return None
    return created.replace(".sys.create_materialized_view(", ".sys.explain_materialized_view(", 1)


def materialized_view(statement: str, tokens: Sequence[Token], names: Names) -> str:
    """Rewrites ``CREATE``, ``REFRESH`` and ``DROP MATERIALIZED VIEW`` of a view of ours.

    Raises:
        Unsupported: a clause that is understood and cannot be done.
        InvalidRequest: ``bad-view``: a clause that is not.
    """
    word = tokens[0].text.upper()
    if tokens[1].text.upper() == "OR":
        raise Unsupported("a materialized view cannot be replaced: drop it, and create it again", code="view-query")
    begin = _behind(tokens, _NAME, ["IF", "NOT", "EXISTS"] if word == "CREATE" else ["IF", "EXISTS"])
    table = named_table(tokens, begin, names.without_views)
    if table is None:
        return statement
    if word == "CREATE":
        return _create(statement, tokens, table, names, if_not_exists=begin > _NAME)
    if word == "REFRESH":
        end = _behind(tokens, table.end, ["FULL"])
        _require_end(tokens, end, "REFRESH MATERIALIZED VIEW takes a name and perhaps FULL")
        return table.call("refresh", {"rebuild": "true"} if end > table.end else {})
    if word == "DROP":
        _require_end(tokens, table.end, "DROP MATERIALIZED VIEW takes a name and nothing else")
        return table.call("drop_materialized_view", {"if_exists": "true"} if begin > _NAME else {})
    return statement


def _require_end(tokens: Sequence[Token], end: int, takes: str) -> None:
    if end < len(tokens):
        raise InvalidRequest(f"{takes}, not {tokens[end].text!r}", code="bad-view")


def _create(statement: str, tokens: Sequence[Token], table: NamedTable, names: Names, *, if_not_exists: bool) -> str:
    clauses, number = _clauses(tokens, table.end)
    if number + 1 >= len(tokens):
        raise InvalidRequest("CREATE MATERIALIZED VIEW lacks AS and a query", code="bad-view")
    query = statement[tokens[number + 1].start : tokens[-1].end + 1]
    database = names.database if names.catalog == table.catalog else None
    given = {"query": query, "database": database or None, "comment": clauses.comment}
    arguments = {name: literal(text) for name, text in given.items() if text is not None}
    if clauses.options:
        arguments["options"] = literal(json.dumps(clauses.options, ensure_ascii=False))
    if if_not_exists:
        arguments["if_not_exists"] = "true"
    if clauses.primary_key:
        arguments["primary_key"] = literal(json.dumps(clauses.primary_key, ensure_ascii=False))
    return table.call("create_materialized_view", arguments)


@dataclass
class _Clauses:
    """The clauses between the name of a view and its query."""

    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    primary_key: list[str] = field(default_factory=list)


def _clauses(tokens: Sequence[Token], number: int) -> tuple[_Clauses, int]:
    """Reads the clauses from a token on; returns them, and the number of the AS behind them."""
    found = _Clauses()
    while number < len(tokens) and tokens[number].token_type is not TokenType.ALIAS:
        clause, listed = tokens[number].text.upper(), parenthesized(tokens, number + 1)
        if clause in ("TBLPROPERTIES", "WITH") and listed is not None:
            found.options |= options_of(listed)
            number = listed.close + 1
        elif clause == "COMMENT" and (words := list(takewhile(_is_string, tokens[number + 1 :]))):
            if len(texts(words)) > 1:
                raise InvalidRequest("COMMENT of a materialized view takes one text", code="bad-view")
            found.comment = texts(words)[0]
            number += 1 + len(words)
        elif tokens[number].token_type is TokenType.PRIMARY_KEY and listed is not None:
            found.primary_key = [_column(item) for item in listed.items]
            number = listed.close + 1
        elif clause == "(":
            raise Unsupported(
                "CREATE MATERIALIZED VIEW names no columns: they are those of its query, so name them there with AS",
                code="view-query",
            )
        else:
            raise Unsupported(f"CREATE MATERIALIZED VIEW has no clause {tokens[number].text!r}", code="view-query")
    return found, number


def _column(item: Sequence[Token]) -> str:
    if len(item) != 1:
        raise InvalidRequest("PRIMARY KEY of a materialized view takes names of columns", code="bad-view")
    return item[0].text


def _is_string(token: Token) -> bool:
    return token.token_type is TokenType.STRING


def _behind(tokens: Sequence[Token], begin: int, words: Sequence[str]) -> int:
    """Returns the number of the token behind those words if they are there; else `begin`."""
    return begin + len(words) if words_of(tokens[begin : begin + len(words)]) == list(words) else begin
