"""Finds the tables of ours that a statement names, and writes names and texts into statements. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest
from filestore.model.names import quoted

__all__ = [
    "NamedTable",
    "Names",
    "argument_table",
    "call",
    "is_word",
    "literal",
    "name_begin",
    "name_parts",
    "named_table",
    "table_ending",
    "words_of",
]


@dataclass(frozen=True, slots=True)
class Names:
    """The catalogs of a session, by which names in statements are resolved.

    Attributes:
        catalogs: The catalogs of table stores in this session.
        catalog: The current catalog.
        database: The current database; empty if there is none.
        others: The other catalogs, and the database of global temporary views.
        views: The temporary views, which come before tables of the current database.
    """

    catalogs: frozenset[str]
    catalog: str
    database: str
    others: frozenset[str] = frozenset()
    views: frozenset[str] = frozenset()

    @property
    def without_views(self) -> Names:
        """The names where no temporary view is meant: of what is created, or of a system table."""
        return replace(self, views=frozenset())

    def is_of_others(self, first: str) -> bool:
        """Returns whether a name with several parts that begins with this one is never of the current catalog."""
        return first in self.catalogs or first.lower() in {name.lower() for name in self.others}

    def is_view(self, name: str) -> bool:
        """Returns whether a name is that of a temporary view; in any case, since ours would be an assumption."""
        return name.lower() in {view.lower() for view in self.views}


_FORMATS = frozenset({"avro", "binaryfile", "csv", "delta", "jdbc", "json", "orc", "parquet", "text", "xml"})
"""The first parts that Spark takes for the format of a file or a folder, as in ``delta.`a/folder```."""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table of ours that a statement names.

    Attributes:
        catalog: Its catalog.
        name: ``database.table``.
        begin: The number of the first token of its name.
        end: The number of the token behind its name.
    """

    catalog: str
    name: str
    begin: int
    end: int

    def call(self, procedure: str, arguments: Mapping[str, str] | None = None) -> str:
        """Returns a call with this table as its first argument; as `call`."""
        return call(self.catalog, procedure, {"table": literal(self.name), **(arguments or {})})


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
    """Reads a name; returns None if it is none, or cannot be proven to be one of ours."""
    parts, end = name_parts(tokens, begin)
    if _is_clause(tokens[begin:end], tokens[end : end + 1]):
        return None
    if len(parts) == 3 and parts[0] in names.catalogs:
        return NamedTable(parts[0], f"{parts[1]}.{parts[2]}", begin, end)
    if names.catalog not in names.catalogs:
        return None
    if len(parts) == 2 and not names.is_of_others(parts[0]) and parts[0].lower() not in _FORMATS:
        return NamedTable(names.catalog, f"{parts[0]}.{parts[1]}", begin, end)
    if len(parts) == 1 and names.database and not names.is_view(parts[0]):
        return NamedTable(names.catalog, f"{names.database}.{parts[0]}", begin, end)
    return None


def name_begin(tokens: Sequence[Token], end: int) -> int:
    """Returns the number of the first token of the name that ends before a token."""
    begin = end - 1
    while begin > 1 and tokens[begin - 1].token_type is TokenType.DOT:
        begin -= 2
    return begin


def table_ending(tokens: Sequence[Token], end: int, names: Names) -> NamedTable | None:
    """Returns the table of ours whose name ends before a token, and that something precedes; None if there is none."""
    begin = name_begin(tokens, end)
    table = named_table(tokens, begin, names) if begin > 0 else None
    return table if table is not None and table.end == end else None


def _is_clause(name: Sequence[Token], behind: Sequence[Token]) -> bool:
    """Returns whether this is Spark's ``IDENTIFIER(…)``, whose name is the value of an expression."""
    is_open = [token.token_type for token in behind] == [TokenType.L_PAREN]
    return is_open and len(name) == 1 and is_word(name[0], ("IDENTIFIER",))


def words_of(tokens: Sequence[Token]) -> list[str]:
    """Returns the texts of tokens in upper case, in which words of the grammar are compared."""
    return [token.text.upper() for token in tokens]


def is_word(token: Token, words: Container[str]) -> bool:
    """Returns whether a token is one of the words of the grammar, and no text and no quoted name."""
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() in words


def call(catalog: str, procedure: str, arguments: Mapping[str, str]) -> str:
    """Returns the ``CALL`` of a procedure.

    Args:
        catalog: The catalog of the procedure.
        procedure: Its name.
        arguments: The values of arguments by their names, as SQL spells them.
    """
    given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
    return f"CALL {quoted(catalog)}.sys.{procedure}({given})"


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
