"""Finds the tables of ours that a statement names, and writes names and texts into statements. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest

__all__ = ["NamedTable", "Names", "argument_table", "literal", "name_parts", "named_table", "quoted"]


@dataclass(frozen=True, slots=True)
class Names:
    """The catalogs of a session, by which names in statements are resolved.

    Attributes:
        catalogs: The catalogs of table stores in this session.
        catalog: The current catalog.
        database: The current database; empty if there is none.
    """

    catalogs: frozenset[str]
    catalog: str
    database: str


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table of ours that a statement names.

    Attributes:
        catalog: Its catalog.
        name: ``database.table``.
        end: The number of the token behind its name.
    """

    catalog: str
    name: str
    end: int

    def call(self, procedure: str) -> str:
        """The beginning of a call with this table as argument."""
        return f"{quoted(self.catalog)}.sys.{procedure}(table => {literal(self.name)}"


def quoted(name: str) -> str:
    """Returns a name in backticks."""
    return f"`{name.replace('`', '``')}`"


def name_parts(tokens: Sequence[Token], begin: int) -> tuple[list[str], int]:
    """Reads a name; returns its parts and the number of the token behind it."""
    parts: list[str] = []
    end = begin
    while end < len(tokens):
        parts.append(tokens[end].text)
        end += 1
        if end + 1 >= len(tokens) or tokens[end].token_type is not TokenType.DOT:
            break
        end += 1
    return parts, end


def named_table(tokens: Sequence[Token], begin: int, names: Names) -> NamedTable | None:
    """Reads a name; returns None if it is none, or not one of ours."""
    parts, end = name_parts(tokens, begin)
    if len(parts) == 3 and parts[0] in names.catalogs:
        return NamedTable(parts[0], f"{parts[1]}.{parts[2]}", end)
    if names.catalog not in names.catalogs:
        return None
    if len(parts) == 2:
        return NamedTable(names.catalog, f"{parts[0]}.{parts[1]}", end)
    if len(parts) == 1 and names.database:
        return NamedTable(names.catalog, f"{names.database}.{parts[0]}", end)
    return None


def literal(text: str) -> str:
    """Returns a text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def argument_table(text: str, catalog: str, current: tuple[str, str]) -> str:
    """Returns ``database.table`` for the name in an argument of ``CALL catalog.sys.…``.

    Args:
        text: The name. It may begin with the catalog, or leave out the database if that is the current one.
        catalog: The catalog of the procedure.
        current: The current catalog and the current database, which may be empty.

    Raises:
        InvalidRequest: ``other-catalog``: the name begins with another catalog.
    """
    parts = [part.strip("`") for part in text.split(".")]
    if len(parts) == 3 and parts[0] != catalog:
        raise InvalidRequest(
            f"{text!r} is of the catalog {parts[0]}, and the procedure of {catalog}: CALL {parts[0]}.sys.… if that is "
            "a catalog of Tablestore, or write database.table",
            code="other-catalog",
        )
    if len(parts) == 1 and current[0] == catalog and current[1]:
        return f"{current[1]}.{parts[0]}"
    return ".".join(parts[-2:] if len(parts) == 3 else parts)
