"""The few SQL literals that FORMAT.md's tables use, as Arrow arrays of one value."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from filestore.model.sql import parse_type

__all__ = ["column", "split_top"]


def split_top(text: str) -> list[str]:
    """Splits at commas outside of parentheses and quotes."""
    return re.findall(r"(?:'[^']*'|\([^)]*\)|[^,'(])+", text.replace(", ", ","))


def column(sql_type: str, literal: str) -> pa.Array:
    """One literal of a type."""
    kind = parse_type(sql_type)
    return pa.array([_value(literal.strip(), decimal=pa.types.is_decimal(kind))], kind)


def _value(literal: str, *, decimal: bool) -> Any:
    prefix, quoted, text = re.fullmatch(r"([A-Z_]*)('?)(.*?)'?", literal, re.DOTALL).groups()  # type: ignore[union-attr]
    if not quoted:
        plain = {"NULL": None, "true": True, "false": False}
        if literal in plain:
            return plain[literal]
        return Decimal(literal) if decimal else int(literal)
    if prefix == "X":
        return bytes.fromhex(text)
    if prefix == "DATE":
        return date.fromisoformat(text)
    return datetime.fromisoformat(text) if prefix.startswith("TIMESTAMP") else text
