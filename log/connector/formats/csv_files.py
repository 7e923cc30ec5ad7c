"""Reads the rows of a file of CSV by the reader of topics; its first line has the columns' names."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from log.connector.formats.csv import CsvFormat, check_csv_type
from log.connector.formats.json.values import Rules

__all__ = ["CsvStyle", "read_csv_file"]

_DELIMITERS = ",;\t|"
_MARK = "\ufeff"
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """The way in which a file is written.

    Args:
        delimiter: Between fields: one character. None: the one of comma, semicolon, tab and bar by which the first line
            is names of columns.
        null: How nulls are written; None: as nothing.
        encoding: A name that Python knows. None: UTF-8, or UTF-16 with a byte order mark.
    """

    delimiter: str | None = None
    null: str | None = None
    encoding: str | None = None


def read_csv_file(
    content: bytes, fields: Mapping[str, pa.Field], rules: Rules, style: CsvStyle = CsvStyle()
) -> pa.Table:
    """Returns the rows of a file, with the columns that it has, in its order.

    Empty lines are no rows; only in a file of one column each is a null.

    Args:
        content: The file's bytes.
        fields: The columns by name; another column of the file is one of texts. A name in other upper and lower case
            is that column's, too.
        rules: What stands for a value.
        style: How the file is written.

    Raises:
        ValueError: it is no such file, or a value does not fit; the text says where.
    """
    text = _decoded(content, style.encoding)
    head = _head(text, style.delimiter, fields)
    names = head.columns(fields)
    schema = pa.schema([fields.get(name, pa.field(name, pa.string())) for name in names])
    for field in schema:
        if found := check_csv_type(field.type):
            raise ValueError(f"column {field.name!r} has {found}: write it as JSON or Parquet")
    form = CsvFormat(schema, head.delimiter, null_literal=style.null, rules=rules)
    try:
        texts = form.parsed(text.encode(), names, skip=head.lines)
    except pa.ArrowInvalid as error:
        raise ValueError(_problem(text, head.delimiter) or str(error).partition("\n")[0]) from error
    bad: dict[int, str] = {}
    rows = form.typed(texts, np.arange(1, texts.num_rows + 1), bad)
    if bad:
        raise ValueError(f"row {min(bad)}: {bad[min(bad)]}")
    return rows


def _decoded(content: bytes, encoding: str | None) -> str:
    name = encoding or ("utf-16" if content.startswith(_WIDE) else "utf-8")
    try:
        return content.decode(name).removeprefix(_MARK)
    except LookupError:
        raise ValueError(f"there is no encoding {name!r}: name one such as utf-8, latin-1 or cp1252") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        wrong = error.object[error.start]
        raise ValueError(
            f"line {line} is not {name} (byte 0x{wrong:02x}): name the file's encoding, such as latin-1 or cp1252"
        ) from None


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line that is not empty, cut by a delimiter, and how many lines there are up to its end."""

    delimiter: str
    names: list[str]
    lines: int

    def is_of(self, fields: Mapping[str, pa.Field]) -> bool:
        """Returns whether all names are those of columns."""
        known = {name.lower() for name in fields}
        return bool(self.names) and known.issuperset(name.lower() for name in self.names)

    def columns(self, fields: Mapping[str, pa.Field]) -> list[str]:
        """Returns the columns that the names are."""
        if not self.names:
            raise ValueError("it is empty: the first line has the names of the columns")
        spelled = {name.lower(): name for name in fields}
        found = [name if name in fields else spelled.get(name.lower(), name) for name in self.names]
        for name in found:
            if found.count(name) > 1:
                raise ValueError(f"its first line names the column {name!r} more than once")
        if len(found) == 1 and found[0] not in fields:
            for other in _DELIMITERS.replace(self.delimiter, ""):
                if other in found[0]:
                    raise ValueError(f"its first line names one column, {found[0]!r}: is the delimiter {other!r}?")
        return found


def _head(text: str, delimiter: str | None, fields: Mapping[str, pa.Field]) -> _Head:
    """Reads the first line by that delimiter; without one by the first that gives names of columns, else by a comma."""
    lines = io.StringIO(text, newline="")
    heads = (_cut(lines, one) for one in (_DELIMITERS if delimiter is None else ()))
    return next((head for head in heads if head.is_of(fields)), None) or _cut(lines, delimiter or ",")


def _cut(text: io.StringIO, delimiter: str) -> _Head:
    text.seek(0)
    lines = csv.reader(text, delimiter=delimiter)
    try:
        names = next((line for line in lines if line), [])
    except csv.Error as error:  # such as a field that is larger than the module takes
        raise ValueError(f"line {lines.line_num}: {error}") from None
    return _Head(delimiter, names, lines.line_num)


def _problem(text: str, delimiter: str) -> str | None:
    """Returns which is the first line with other fields than the header. It loops over lines, but after an error."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = next(line for line in lines if line)
        for fields in lines:
            if fields and len(fields) != len(header):
                return f"line {lines.line_num} has {len(fields)} fields, and the header names {len(header)} columns"
    except csv.Error:  # such as a field that is larger than the module takes
        return None
    return None
