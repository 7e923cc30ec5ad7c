"""Rewrites the statements about materialized views, which Spark knows in its pipelines only. Pure: text to text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest, Unsupported
from tablestore.spark.sql.names import NamedTable, Names, literal, named_table
from tablestore.spark.sql.parenthesized import options_of, parenthesized, texts

__all__ = ["materialized_view"]

_NAME = 3


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
    table = named_table(tokens, begin, names)
    if table is None:
        return statement
    if word == "CREATE":
        return _create(statement, tokens, table, names, if_not_exists=begin > _NAME)
    if word in ("REFRESH", "DROP") and table.end < len(tokens):
        raise InvalidRequest(
            f"{word} MATERIALIZED VIEW takes a name and nothing else, not {tokens[table.end].text!r}", code="bad-view"
        )
    if word == "REFRESH":
        return f"CALL {table.call('refresh')})"
    if word == "DROP":
        return f"CALL {table.call('drop_materialized_view')}{', if_exists => true' if begin > _NAME else ''})"
    return statement


def _create(statement: str, tokens: Sequence[Token], table: NamedTable, names: Names, *, if_not_exists: bool) -> str:
    options: dict[str, str] = {}
    comment = None
    number = table.end
    while number < len(tokens) and tokens[number].token_type is not TokenType.ALIAS:
        clause, listed = tokens[number].text.upper(), parenthesized(tokens, number + 1)
        if clause in ("TBLPROPERTIES", "WITH") and listed is not None:
            options |= options_of(listed)
            number = listed.close + 1
        elif clause == "COMMENT" and (words := list(takewhile(_is_string, tokens[number + 1 :]))):
            if len(texts(words)) > 1:
                raise InvalidRequest("COMMENT of a materialized view takes one text", code="bad-view")
            comment = texts(words)[0]
            number += 1 + len(words)
        elif clause.startswith("PRIMARY KEY") or clause == "(":
            raise Unsupported(
                "CREATE MATERIALIZED VIEW names no columns and no key: the columns are those of its query, and the key "
                "is that of the query's left table",
                code="view-query",
            )
        else:
            raise Unsupported(f"CREATE MATERIALIZED VIEW has no clause {tokens[number].text!r}", code="view-query")
    if number + 1 >= len(tokens):
        raise InvalidRequest("CREATE MATERIALIZED VIEW lacks AS and a query", code="bad-view")
    query = statement[tokens[number + 1].start : tokens[-1].end + 1]
    database = names.database if names.catalog == table.catalog else None
    given = {"query": query, "database": database or None, "comment": comment}
    arguments = [f"{name} => {literal(text)}" for name, text in given.items() if text is not None]
    if options:
        arguments.append(f"options => {literal(json.dumps(options, ensure_ascii=False))}")
    if if_not_exists:
        arguments.append("if_not_exists => true")
    return f"CALL {', '.join([table.call('create_materialized_view'), *arguments])})"


def _is_string(token: Token) -> bool:
    return token.token_type is TokenType.STRING


def _behind(tokens: Sequence[Token], begin: int, words: Sequence[str]) -> int:
    """Returns the number of the token behind those words if they are there; else `begin`."""
    found = [token.text.upper() for token in tokens[begin : begin + len(words)]]
    return begin + len(words) if found == list(words) else begin
