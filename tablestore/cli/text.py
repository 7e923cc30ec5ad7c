"""Formats rows as lines: aligned columns for people, JSON for programs. It works on columns, not on single values."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.lazily import pl
from filestore.model.text import none_named
from log.json_rows import encode_rows
from tablestore.cli.settings import names_of

__all__ = ["Aligned", "cells", "chosen", "json_lines", "numbers", "titles"]

_GAP = "  "
_WIDEST = 32
_NULL = "null"


def json_lines(rows: pa.Table) -> list[str]:
    """Formats each row as a JSON object, in the format of the log (log/table/PROTOCOL.md, section 3.2)."""
    return encode_rows(rows).to_list()


def cells(rows: pa.Table) -> list[list[str]]:
    """The texts of the values, column by column; the columns have different names."""
    return [_text(rows, name).to_list() for name in rows.column_names]


def titles(names: Sequence[str]) -> list[str]:
    """The names of columns as the head of a table has them, in one line."""
    return [name.replace("\n", "\\n") for name in names]


def numbers(rows: pa.Table) -> list[str]:
    """The names of the columns of numbers, which people expect to be aligned right."""
    return [field.name for field in rows.schema if _is_number(field.type)]


def chosen(available: Sequence[str], columns: str | None) -> list[str]:
    """Splits a text such as ``a,b`` into column names; None means all columns.

    Raises:
        InvalidRequest: ``unknown-column``, or as `names_of`.
    """
    if columns is None:
        return list(available)
    names = names_of(columns)
    if unknown := [name for name in names if name not in available]:
        raise InvalidRequest(none_named("column", unknown[0], available), code="unknown-column")
    return names


class Aligned:
    """Formats lines whose columns are aligned over all batches; a wider value widens its column from there on.

    Values are never truncated: one that is wider than `_WIDEST` moves the rest of its line to the right.
    """

    def __init__(self) -> None:
        self._widths: dict[str, int] = {}

    def lines(self, rows: pa.Table) -> list[str]:
        """The lines of the rows, after a header if they are the first ones."""
        texts = pl.DataFrame({name: _text(rows, name) for name in rows.column_names})
        first = not self._widths
        self._widths = {n: max(_width(texts[n]), self._widths.get(n, 0)) for n in texts.columns}
        padded = [self._padded(name, rows.schema.field(name).type) for name in texts.columns]
        lines = texts.select(pl.concat_str(padded, separator=_GAP).str.strip_chars_end()).to_series()
        return [*([self._header(rows.schema)] if first else []), *lines.to_list()]

    def _padded(self, name: str, kind: pa.DataType) -> pl.Expr:
        width = self._widths[name]
        return pl.col(name).str.pad_start(width) if _is_number(kind) else pl.col(name).str.pad_end(width)

    def _header(self, schema: pa.Schema) -> str:
        widths = [self._widths[f.name] for f in schema]
        shown = (
            title.rjust(width) if _is_number(f.type) else title.ljust(width)
            for title, width, f in zip(titles(schema.names), widths, schema, strict=True)
        )
        return _GAP.join(shown).rstrip()


def _width(texts: pl.Series) -> int:
    longest = texts.str.len_chars().max()
    return max(len(titles([texts.name])[0]), min(_WIDEST, longest if isinstance(longest, int) else 0))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _text(rows: pa.Table, name: str) -> pl.Series:
    kind = rows.schema.field(name).type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        # the JSON of a row that has only this column, without the object around it
        around = len(json.dumps({name: 0}, ensure_ascii=False, separators=(",", ":"))) - 2
        texts = encode_rows(rows.select([name])).str.slice(around).str.head(-1)
    elif pa.types.is_timestamp(kind):
        format_ = "%Y-%m-%d %H:%M:%S%.f" + ("Z" if kind.tz else "")
        texts = pl.Series(name, rows.column(name)).dt.strftime(format_).fill_null(_NULL)
    else:
        texts = pl.Series(name, rows.column(name)).cast(pl.String).fill_null(_NULL)
    return texts.str.replace_all("\n", "\\n", literal=True)
