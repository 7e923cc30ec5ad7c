"""sqlglot's Spark dialect with Flink's metadata columns: ``METADATA [FROM 'key'] [VIRTUAL]`` (FLIP-107).

They are constraints of a column, so METADATA and VIRTUAL are keywords only after a column's type: elsewhere they are
names. ``BYTES``, Flink's name for BINARY, is supported as well, since every example of the key ``headers`` has it.

Each type keeps its original words: sqlglot's types are those of many databases, and names with different meanings
(VARCHAR2 and STRING, INT8 here and in PostgreSQL) become the same type.
"""

from __future__ import annotations

from typing import Any

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.parser import Parser

from filestore.errors import InvalidRequest

__all__ = ["WRITTEN", "ColumnListDialect", "MetadataConstraint"]

WRITTEN = "written"
"""The key in a type's ``meta`` under which its words are, in upper case."""

_FORM = "write it as in `at TIMESTAMP METADATA FROM 'timestamp' VIRTUAL`"


class MetadataConstraint(exp.ColumnConstraintKind, exp.Expression):
    """``METADATA [FROM 'key'] [VIRTUAL]``: `this` is the key as a literal or None, `virtual` a boolean."""

    arg_types = {"this": False, "virtual": True}  # noqa: RUF012


def _metadata(parser: Parser) -> MetadataConstraint:
    key = None
    if parser._match(TokenType.FROM):
        key = parser._parse_string()
        if key is None:
            raise InvalidRequest(
                f"METADATA FROM is followed by {parser._curr.text!r} and not by a key in quotes: {_FORM}",
                code="bad-column-list",
            )
    return MetadataConstraint(this=key, virtual=bool(parser._match_text_seq("VIRTUAL")))


def _stray_virtual(parser: Parser) -> MetadataConstraint:
    raise InvalidRequest(f"VIRTUAL is not directly after METADATA: {_FORM}", code="bad-column-list")


class ColumnListDialect(Spark):
    """Spark's dialect with the additions above."""

    class Tokenizer(Spark.Tokenizer):
        """Splits a text into tokens."""

        KEYWORDS = {**Spark.Tokenizer.KEYWORDS, "BYTES": TokenType.BINARY}  # noqa: RUF012

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        """Parses tokens to expressions."""

        def _parse_types(self, *arguments: Any, **named: Any) -> exp.Expression | None:
            """Parses as sqlglot does, and keeps the original words."""
            start = self._index
            kind: exp.Expression | None = super()._parse_types(*arguments, **named)
            if isinstance(kind, exp.DataType):
                words = (word for token in self._tokens[start : self._index] for word in token.text.upper().split())
                kind.meta[WRITTEN] = tuple(words)
            return kind

        CONSTRAINT_PARSERS = {  # noqa: RUF012
            **Spark.Parser.CONSTRAINT_PARSERS,
            "METADATA": _metadata,
            "VIRTUAL": _stray_virtual,
        }
