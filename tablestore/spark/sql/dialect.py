"""Rewrites statements that Spark's grammar lacks into statements that it has. Pure: text to text.

    SELECT … FROM shop.orders$files                  the name in backticks
    CREATE TABLE … WITH ('bucket' = '4')             TBLPROPERTIES (FLIP-188)
    CREATE TABLE … (… METADATA FROM 'timestamp')     a property with the list of columns (FLIP-107)
    CREATE TABLE … (… WATERMARK FOR at AS at)        the properties watermark.column and watermark.delay (Flink)
    ALTER TABLE shop.orders [PARTITION …] COMPACT    CALL lake.sys.compact(…) (FLIP-188)
    INSERT INTO … WITH ('checkpoint' = …) SELECT …   CALL lake.sys.start_stream(…)
    DESCRIBE DETAIL shop.orders [PARTITION …]        CALL lake.sys.describe_detail(…) (FLIP-188)
    DESCRIBE HISTORY shop.orders                     CALL lake.sys.describe_history(…)
    CREATE MATERIALIZED VIEW shop.v AS SELECT …      CALL lake.sys.create_materialized_view(…)
    REFRESH MATERIALIZED VIEW shop.v [FULL]          CALL lake.sys.refresh(…)
    EXPLAIN CREATE MATERIALIZED VIEW … AS SELECT …   CALL lake.sys.explain_materialized_view(…)
    DROP MATERIALIZED VIEW shop.v                    CALL lake.sys.drop_materialized_view(…)
    SHOW TABLE EXTENDED IN shop LIKE '*'             CALL lake.sys.show_tables(…), which has views, too
    SELECT … FROM shop.orders /*+ OPTIONS(…) */      shop.orders WITH (…) (Flink)
    BEGIN …; …; END                                  the same for each of its statements
    EXPLAIN …                                        the same for what is explained
    SELECT … FROM table_changes('shop.orders', 2, 5)  shop.orders CHANGES FROM VERSION 2 TO VERSION 5 (Delta)

    FROM o JOIN shop.d FOR SYSTEM_TIME AS OF o.ts     FROM o JOIN shop.d WITH ('system_time' = 'o.ts')

A statement about a table of another catalog stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import sqlglot
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import Unsupported
from tablestore.spark.sql.column_list import column_list
from tablestore.spark.sql.hints import with_options
from tablestore.spark.sql.insertion import insertion
from tablestore.spark.sql.materialized import explained, materialized_view
from tablestore.spark.sql.names import Names, literal, name_parts, named_table, quoted
from tablestore.spark.sql.parenthesized import parenthesized, texts
from tablestore.spark.sql.requests import PROVIDERS, wrong_provider
from tablestore.spark.sql.script import script
from tablestore.spark.sql.system_time import temporal_joins

__all__ = ["COLUMNS", "rewritten"]

COLUMNS = "tablestore.columns"
"""The property under which a list of columns is that Spark's grammar lacks words for."""

_WORD = re.compile(r"\w+")
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


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
    return _system_tables(_whole(statement, tokens, names))


def _anywhere(statement: str, names: Names) -> str:
    """Rewrites what may stand anywhere in a statement."""
    return _system_tables(_of_tables(statement, names))


def _of_tables(statement: str, names: Names) -> str:
    """Rewrites clauses of tables that are read."""
    return temporal_joins(_table_changes(with_options(statement, names), names), names)


def _whole(statement: str, tokens: Sequence[Token], names: Names) -> str:
    """Rewrites a statement by its first words."""
    words = [token.text.upper() for token in tokens[:5]]
    if words[1:3] == ["MATERIALIZED", "VIEW"] or words[3:5] == ["MATERIALIZED", "VIEW"]:
        return materialized_view(statement, tokens, names)
    if words[:2] == ["ALTER", "TABLE"]:
        return _alter(statement, tokens, names)
    if words[:1] == ["CREATE"] and "TABLE" in words:
        return _create(statement, tokens, names)
    if words[:2] in (["INSERT", "INTO"], ["INSERT", "OVERWRITE"]):
        return insertion(statement, tokens, names, lambda query: _query_of_stream(query, names))
    if words[:1] in (["DESCRIBE"], ["DESC"]) and words[1:2] in (["DETAIL"], ["HISTORY"]):
        return _describe(statement, tokens, names, words[1].lower())
    if words[:1] == ["SHOW"]:
        return _show(statement, tokens, names)
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
    return _system_tables(temporal_joins(query, names, streaming=True))


def _system_tables(statement: str) -> str:
    """Puts each name ``t$files`` into backticks."""
    tokens = sqlglot.tokenize(statement, dialect="spark")
    parts: list[str] = []
    done = 0
    for table, dollar, system in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if dollar.text != "$" or dollar.start != table.end + 1 or system.start != dollar.end + 1:
            continue
        if not _WORD.fullmatch(system.text):  # such as ${…}, which Spark puts a variable's value for
            continue
        if table.token_type not in _NAMES or statement[table.start] == "`":
            continue
        parts += [statement[done : table.start], f"`{table.text}${system.text}`"]
        done = system.end + 1
    return "".join([*parts, statement[done:]])


def _table_changes(statement: str, names: Names) -> str:
    """Writes each call of Delta's function with a table of ours as Spark's own clause."""
    tokens = sqlglot.tokenize(statement, dialect="spark")
    parts: list[str] = []
    done = 0
    for number, token in enumerate(tokens[:-1]):
        if token.text.upper() != "TABLE_CHANGES" or tokens[number + 1].text != "(":
            continue
        close = next((i for i in range(number + 2, len(tokens)) if tokens[i].token_type is TokenType.R_PAREN), None)
        found = None if close is None else _changes(tokens[number + 2 : close], names)
        if found is not None and close is not None:
            parts += [statement[done : token.start], found]
            done = tokens[close].end + 1
    return "".join([*parts, statement[done:]])


def _changes(arguments: Sequence[Token], names: Names) -> str | None:
    """The clause for ``name, start[, end]``; None if these are no literals, or the table is not one of ours."""
    given, commas = arguments[::2], arguments[1::2]
    if (
        len(given) not in (2, 3)
        or len(commas) != len(given) - 1
        or any(c.token_type is not TokenType.COMMA for c in commas)
    ):
        return None
    words = sqlglot.tokenize(given[0].text, dialect="spark") if given[0].token_type is TokenType.STRING else []
    table = named_table(words, 0, names) if words else None
    kinds = {token.token_type for token in given[1:]}
    if table is None or table.end != len(words) or not kinds <= {TokenType.NUMBER, TokenType.STRING}:
        return None
    if len(kinds) > 1:
        raise Unsupported(
            f"table_changes of {table.name} takes two versions or two times, and not one of each", code="bad-versions"
        )
    is_version = kinds == {TokenType.NUMBER}
    bounds = [f"VERSION {t.text}" if is_version else f"TIMESTAMP {literal(t.text)}" for t in given[1:]]
    name = ".".join(map(quoted, (table.catalog, *table.name.split("."))))
    return f"{name} CHANGES FROM {' TO '.join(bounds)}"


def _create(statement: str, tokens: Sequence[Token], names: Names) -> str:
    begin = next(i for i, token in enumerate(tokens) if token.text.upper() == "TABLE") + 1
    if [token.text.upper() for token in tokens[begin : begin + 3]] == ["IF", "NOT", "EXISTS"]:
        begin += 3
    if (table := named_table(tokens, begin, names)) is None:
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


def _alter(statement: str, tokens: Sequence[Token], names: Names) -> str:
    table = named_table(tokens, 2, names)
    if table is None or tokens[-1].token_type is not TokenType.VAR or tokens[-1].text.upper() != "COMPACT":
        return statement
    partition = _partition(tokens[table.end : -1])
    if partition is None:
        return statement
    return f"CALL {table.call('compact')}, full => true{partition})"


def _describe(statement: str, tokens: Sequence[Token], names: Names, what: str) -> str:
    extended = len(tokens) > 2 and tokens[2].text.upper() == "EXTENDED"
    table = named_table(tokens, 3 if extended else 2, names)
    if table is None or (extended and what == "history"):
        return statement
    partition = _partition(tokens[table.end :])
    if partition is None or (partition and what == "history"):
        raise Unsupported(
            f"DESCRIBE {what.upper()} takes a table{' and a PARTITION (…)' if what == 'detail' else ''}, and nothing "
            f"else; the partitions are in its system table {table.name}$partitions",
            code="describe-partition",
        )
    return f"CALL {table.call(f'describe_{what}')}{partition})"


def _partition(tokens: Sequence[Token]) -> str | None:
    """The argument for ``PARTITION (day = '2026-01-31', …)``; empty without tokens, None for other tokens."""
    if not tokens:
        return ""
    listed = parenthesized(tokens, 1)
    if tokens[0].text.upper() != "PARTITION" or listed is None or listed.close + 1 < len(tokens):
        return None
    spec: dict[str, str | None] = {}
    for item in listed.items:
        name, equals, value = item[:1], item[1:2], item[2:]
        if len(value) > 1 and value[0].text.upper() in ("DATE", "TIMESTAMP"):
            value = value[1:]
        negative = len(value) > 1 and value[0].text == "-"
        words = texts(value[1:] if negative else value)
        if [token.text for token in equals] != ["="] or len(words) != 1:
            return None
        is_null = words[0].upper() == "NULL" and value[0].token_type is not TokenType.STRING
        spec[name[0].text] = None if is_null else "-" * negative + words[0]
    return f", partition => {literal(json.dumps(spec, ensure_ascii=False))}" if spec else None


def _show(statement: str, tokens: Sequence[Token], names: Names) -> str:
    # sqlglot reads what follows SHOW as one token
    rest = sqlglot.tokenize(tokens[1].text, dialect="spark") if len(tokens) == 2 else []
    if [token.text.upper() for token in rest[:2]] != ["TABLE", "EXTENDED"]:
        return statement
    end, catalog, database = 2, names.catalog, names.database
    if rest[2:] and rest[2].text.upper() in ("IN", "FROM"):
        parts, end = name_parts(rest, 3)
        if len(parts) > 2 or (len(parts) == 1 and parts[0] in names.catalogs):
            return statement
        catalog, database = parts if len(parts) == 2 else (names.catalog, parts[0])
    if rest[end:] and rest[end].text.upper() == "LIKE":
        end += 1
    pattern = [token.text for token in rest[end:] if token.token_type is TokenType.STRING]
    if catalog not in names.catalogs or not database or len(rest) != end + 1 or not pattern:
        return statement
    arguments = f"database => {literal(database)}, pattern => {literal(pattern[0])}"
    return f"CALL {quoted(catalog)}.sys.show_tables({arguments})"
