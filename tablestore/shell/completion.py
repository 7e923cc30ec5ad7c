"""Completes words of a statement: with keywords, databases, tables and columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["COMMANDS", "DELIMITERS", "Names", "completions"]

COMMANDS = ("\\?", "\\d", "\\dn", "\\q", "\\restart", "\\timing", "\\x")
DELIMITERS = " \t\n;,()<>=!+-*/%'\""
"""The characters that separate words; a period does not, since ``shop.or`` becomes ``shop.orders``."""

_KEYWORDS = tuple(
    """
    ALTER AND AS ASC BETWEEN BY CALL CASE CAST CATALOG COLUMN COMMENT COUNT CREATE DATABASE DATABASES DELETE DESC
    DESCRIBE DISTINCT DROP ELSE END EXISTS EXPLAIN FALSE FROM FULL GROUP HAVING IF IN INNER INSERT INTO IS JOIN KEY LEFT
    LIKE LIMIT MATCHED MAX MERGE MIN NOT NULL ON OPTIONS OR ORDER OUTER OVERWRITE PARTITION PARTITIONED PARTITIONS
    PRIMARY RENAME REPLACE RIGHT SELECT SET SHOW STREAM SUM TABLE TABLES TBLPROPERTIES THEN TO TRUE TRUNCATE UNION
    UPDATE USE USING VALUES VERSION VIEW VIEWS WHEN WHERE WITH
    """.split()  # noqa: SIM905  # a list of them would fill a page
)
_WORD = re.compile(r"[\w.`$]+")
_ALIAS = re.compile(r"\s+(?:AS\s+)?(\w+)", re.IGNORECASE)
_PLAIN = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a catalog.

    Attributes:
        catalog: Its name in statements.
        database: The current database.
        tables: The tables and views of each database.
        columns: Returns the columns of a table; it is asked only about those that the statement names.
    """

    catalog: str
    database: str | None
    tables: Mapping[str, Sequence[str]]
    columns: Callable[[str], Sequence[str]]


def completions(word: str, text: str, names: Names) -> list[str]:
    """Returns the words that the beginning of a word may become, in order.

    Args:
        word: The beginning of the word.
        text: The whole statement so far, for the tables that it names.
        names: The names of the catalog.
    """
    if word.startswith("\\"):
        return [command for command in COMMANDS if command.startswith(word)]
    qualified = [
        f"{prefix}{_written(database)}.{_written(table)}"
        for prefix in ("", f"{names.catalog}.")
        for database, tables in names.tables.items()
        for table in tables
    ]
    if "." in word:
        fields = [
            f"{name}.{_written(column)}"
            for name, table in _qualifiers(text, names).items()
            if word.lower().startswith(f"{name.lower()}.")
            for column in names.columns(table)
        ]
        return _beginning(word, [*fields, *qualified])
    here = [_written(table) for table in names.tables.get(names.database or "", ())]
    columns = [_written(column) for table in _named(text, names) for column in names.columns(table)]
    keywords = [keyword.lower() if word.islower() else keyword for keyword in _KEYWORDS]
    databases = [_written(database) for database in (*names.tables, names.catalog)]
    return _beginning(word, [*columns, *here, *databases, *keywords])


def _beginning(word: str, candidates: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(c for c in candidates if c.lower().startswith(word.lower())))


def _named(text: str, names: Names) -> list[str]:
    """The tables that a text names, as ``database.table``."""
    return list(dict.fromkeys(table for table, _ in _found(text, names)))


def _qualifiers(text: str, names: Names) -> dict[str, str]:
    """The names and aliases with which columns may be qualified in a text, and the tables that are meant."""
    keywords = {keyword.lower() for keyword in _KEYWORDS}
    found = {}
    for table, end in _found(text, names):
        found[table.split(".", 1)[1]] = table
        alias = _ALIAS.match(text, end)
        if alias is not None and alias[1].lower() not in keywords:
            found[alias[1]] = table
    return found


def _found(text: str, names: Names) -> list[tuple[str, int]]:
    """Each table that a text names, and where its name ends there."""
    known = {f"{database}.{table}" for database, tables in names.tables.items() for table in tables}
    found = []
    for word in _WORD.finditer(text):
        name = word[0].replace("`", "").removeprefix(f"{names.catalog}.")
        table = name if "." in name else f"{names.database}.{name}"
        if table in known:
            found.append((table, word.end()))
    return found


def _written(name: str) -> str:
    """A name as a statement has it."""
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"
