"""Rewrites statements that Spark's grammar lacks into statements that it has. Pure: text to text.

    SELECT … FROM shop.orders$files                  the name in backticks
    CREATE TABLE … WITH ('bucket' = '4')             TBLPROPERTIES (FLIP-188)
    CREATE TABLE … (… METADATA FROM 'timestamp')     a property with the list of columns (FLIP-107)
    CREATE TABLE … (… WATERMARK FOR at AS at)        the properties watermark.column and watermark.delay (Flink)
    OPTIMIZE shop.orders, VACUUM, RESTORE, DESCRIBE… CALL lake.sys.…(…): the list in `tablestore.spark.sql.commands`
    INSERT INTO … WITH ('checkpoint' = …) SELECT …   CALL lake.sys.start_stream(…)
    CREATE MATERIALIZED VIEW shop.v AS SELECT …      CALL lake.sys.create_materialized_view(…)
    REFRESH MATERIALIZED VIEW shop.v [FULL]          CALL lake.sys.refresh(…)
    EXPLAIN CREATE MATERIALIZED VIEW … AS SELECT …   CALL lake.sys.explain_materialized_view(…)
    DROP MATERIALIZED VIEW shop.v                    CALL lake.sys.drop_materialized_view(…)
    SELECT … FROM shop.orders /*+ OPTIONS(…) */      shop.orders WITH (…) (Flink)
    BEGIN …; …; END                                  the same for each of its statements
    EXPLAIN …                                        the same for what is explained
    SELECT … FROM shop.orders@v3                     shop.orders VERSION AS OF 3 (Delta)
    SELECT … FROM table_changes('shop.orders', 2, 5)  shop.orders CHANGES FROM VERSION 2 TO VERSION 5 (Delta)

    FROM o JOIN shop.d FOR SYSTEM_TIME AS OF o.ts     FROM o JOIN shop.d WITH ('system_time' = 'o.ts')

A statement about a table of another catalog stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlglot
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import Unsupported
from filestore.model.names import quoted
from tablestore.spark.sql.column_list import column_list
from tablestore.spark.sql.commands import command
from tablestore.spark.sql.hints import with_options
from tablestore.spark.sql.insertion import insertion
from tablestore.spark.sql.materialized import explained, materialized_view
from tablestore.spark.sql.names import Names, literal, named_table, words_of
from tablestore.spark.sql.parenthesized import parenthesized
from tablestore.spark.sql.patterns import tokens_of
from tablestore.spark.sql.requests import PROVIDERS, wrong_provider
from tablestore.spark.sql.script import script
from tablestore.spark.sql.suffixes import system_tables, versions
from tablestore.spark.sql.system_time import temporal_joins

__all__ = ["COLUMNS", "rewritten"]

COLUMNS = "tablestore.columns"
"""The property under which a list of columns is that Spark's grammar lacks words for."""


def rewritten(statement: str, names: Names) -> str:
    """Returns the statement as Spark parses it.

    Raises:
        Unsupported: a clause that is understood and cannot be done.
    """
    try:
        tokens = sqlglot.tokenize(statement, dialect="spark")
        first = tokens[0].text.upper() if len(tokens) > 1 else ""
        if first == "EXPLAIN":
            return _explain(statement, tokens, names)
        if first == "BEGIN":
            return script(statement, tokens, names, rewritten, _anywhere)
        statement = _of_tables(statement, names)
        tokens = sqlglot.tokenize(statement, dialect="spark")
    except TokenError:
        return statement  # Spark says what is wrong with it
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    return system_tables(_whole(statement, tokens, names), names)


def _anywhere(statement: str, names: Names) -> str:
    """Rewrites what may stand anywhere in a statement."""
    return system_tables(_of_tables(statement, names), names)


def _of_tables(statement: str, names: Names) -> str:
    """Rewrites clauses of tables that are read."""
    return temporal_joins(_table_changes(versions(with_options(statement, names), names), names), names)


def _whole(statement: str, tokens: Sequence[Token], names: Names) -> str:
    """Rewrites a statement by its first words."""
    if (call := command(tokens_of(statement), names)) is not None:
        return call
    words = words_of(tokens[:5])
    if words[1:3] == ["MATERIALIZED", "VIEW"] or words[3:5] == ["MATERIALIZED", "VIEW"]:
        return materialized_view(statement, tokens, names)
    if words[:1] == ["CREATE"] and "TABLE" in words:
        return _create(statement, tokens, names)
    if words[:2] in (["INSERT", "INTO"], ["INSERT", "OVERWRITE"]):
        return insertion(statement, tokens, names, lambda query: _query_of_stream(query, names))
    return statement


_MODES = frozenset({"EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL"})
"""The words that may follow EXPLAIN."""


def _explain(statement: str, tokens: Sequence[Token], names: Names) -> str:
    """Rewrites what is explained; sqlglot reads it as one token."""
    begin = statement.index(tokens[1].text, tokens[0].end + 1)
    words = sqlglot.tokenize(tokens[1].text, dialect="spark")
    if len(words) > 1 and words[0].text.upper() in _MODES:
        begin += words[1].start
    inner = statement[begin:]
    return explained(inner, names) or statement[:begin] + rewritten(inner, names)


def _query_of_stream(query: str, names: Names) -> str:
    return system_tables(temporal_joins(query, names, streaming=True), names)


def _table_changes(statement: str, names: Names) -> str:
    """Writes each call of Delta's function with a table of ours as Spark's own clause."""
    tokens = sqlglot.tokenize(statement, dialect="spark")
    parts: list[str] = []
    done = 0
    for number, token in enumerate(tokens[:-1]):
        if token.text.upper() != "TABLE_CHANGES" or tokens[number + 1].text != "(":
            continue
        listed = parenthesized(tokens, number + 1)
        if listed is not None and (found := _changes(statement, listed.items, names)) is not None:
            parts += [statement[done : token.start], found]
            done = tokens[listed.close].end + 1
    return "".join([*parts, statement[done:]])


_VERSION = re.compile(r"\d+(?=L?$)", re.IGNORECASE)
_TIME = re.compile(r"(?:(?:TIMESTAMP(?:_LTZ|_NTZ)?|DATE)\s*)?(?:'[^']*'|\"[^\"]*\")", re.IGNORECASE)


def _changes(statement: str, arguments: Sequence[Sequence[Token]], names: Names) -> str | None:
    """The clause for ``name, start[, end]``; None if the table is not one of ours.

    Raises:
        Unsupported: ``bad-versions``: the bounds are no literals, or not of one kind.
    """
    if len(arguments) not in (2, 3) or [token.token_type for token in arguments[0]] != [TokenType.STRING]:
        return None
    words = sqlglot.tokenize(arguments[0][0].text, dialect="spark")
    table = named_table(words, 0, names) if words else None
    if table is None or table.end != len(words):
        return None
    given = [statement[bound[0].start : bound[-1].end + 1] if bound else "" for bound in arguments[1:]]
    versions_given = [found[0] for text in given if (found := _VERSION.match(text)) is not None]
    name = ".".join(map(quoted, (table.catalog, *table.name.split("."))))
    if len(versions_given) == len(given):
        return f"{name} CHANGES FROM {' TO '.join(f'VERSION {number}' for number in versions_given)}"
    if all(_TIME.fullmatch(text) for text in given):
        return f"{name} CHANGES FROM {' TO '.join(f'TIMESTAMP {text}' for text in given)}"
    raise Unsupported(
        f"table_changes of {table.name} takes two versions or two times, which are literals or parameters, and not "
        f"{' and '.join(given)}",
        code="bad-versions",
    )


def _create(statement: str, tokens: Sequence[Token], names: Names) -> str:
    begin = next(i for i, token in enumerate(tokens) if token.text.upper() == "TABLE") + 1
    if words_of(tokens[begin : begin + 3]) == ["IF", "NOT", "EXISTS"]:
        begin += 3
    if (table := named_table(tokens, begin, names.without_views)) is None:
        return statement
    columns = column_list(statement, tokens, table.end)
    _check_provider(tokens, table.end if columns is None else columns.close + 1)
    properties = _properties(tokens, begin)
    edits: list[tuple[int, int, str]] = []
    added: dict[str, str] = {}
    if columns is not None and (columns.metadata or columns.watermark):
        added = dict(columns.watermark) | ({COLUMNS: columns.text} if columns.metadata else {})
        listed = "" if columns.metadata else f"({columns.text})"
        edits.append((tokens[columns.open].start, tokens[columns.close].end + 1, listed))
    given = [f"'{name}' = {literal(value)}" for name, value in added.items()]
    if properties is not None:
        if added or tokens[properties].token_type is TokenType.WITH:
            opening = f"TBLPROPERTIES ({''.join(f'{text}, ' for text in given)}"
            edits.append((tokens[properties].start, tokens[properties + 1].end + 1, opening))
    elif columns is not None and added:
        place = tokens[_behind_provider(tokens, columns.close + 1) - 1].end + 1
        edits.append((place, place, f" TBLPROPERTIES ({', '.join(given)})"))
    for start, end, text in reversed(edits):
        statement = statement[:start] + text + statement[end:]
    return statement


def _check_provider(tokens: Sequence[Token], begin: int) -> None:
    """Refuses ``USING name`` of another format, which to Spark is the same as no USING at all."""
    for clause, name in zip(tokens[begin:], tokens[begin + 1 :], strict=False):
        if clause.token_type is TokenType.ALIAS:  # the query begins
            return
        if clause.text.upper() == "USING" and name.text.lower() not in PROVIDERS:
            raise wrong_provider(name.text)


def _behind_provider(tokens: Sequence[Token], number: int) -> int:
    """The number of the token behind ``USING name``, which precedes all other clauses; else the number itself."""
    if number + 1 < len(tokens) and tokens[number].text.upper() == "USING":
        return number + 2
    return number


def _properties(tokens: Sequence[Token], begin: int) -> int | None:
    """The number of the word before a statement's list of options: WITH (FLIP-188), or Spark's TBLPROPERTIES."""
    depth = 0
    for number in range(begin, len(tokens) - 1):
        token = tokens[number]
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.token_type in (TokenType.ALIAS, TokenType.SELECT):
            return None  # the query may have a WITH of its own
        is_list = token.token_type is TokenType.WITH or token.text.upper() == "TBLPROPERTIES"
        if depth == 0 and is_list and tokens[number + 1].text == "(":
            return number
    return None
