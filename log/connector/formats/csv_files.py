"""Reads the rows of a file of CSV by the reader of topics; its first line has the columns' names."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Mapping, Sequence
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
    delimiter = style.delimiter or _delimiter(text, fields)
    header, lines = _header(text, delimiter)
    if not header:
        raise ValueError("it is empty: the first line has the names of the columns")
    names = _names(header, delimiter, fields)
    schema = pa.schema([fields.get(name, pa.field(name, pa.string())) for name in names])
    for field in schema:
        if found := check_csv_type(field.type):
            raise ValueError(f"column {field.name!r} has {found}: write it as JSON or Parquet")
    form = CsvFormat(schema, delimiter, null_literal=style.null, rules=rules)
    try:
        texts = form.parsed(text.encode(), schema.names, skip=lines)
    except pa.ArrowInvalid as error:
        raise ValueError(_problem(text, delimiter) or str(error).partition("\n")[0]) from error
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


def _header(text: str, delimiter: str) -> tuple[list[str], int]:
    """Returns the names in the first line that is not empty, and how many lines there are up to its end."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return next((line for line in lines if line), []), lines.line_num
    except csv.Error as error:  # such as a field that is larger than the module takes
        raise ValueError(f"line {lines.line_num}: {error}") from None


def _delimiter(text: str, fields: Mapping[str, pa.Field]) -> str:
    """Returns the delimiter by which the first line is names of columns; a comma if none does that."""
    known = {name.lower() for name in fields}
    for delimiter in _DELIMITERS:
        header, _ = _header(text, delimiter)
        if header and known.issuperset(name.lower() for name in header):
            return delimiter
    return ","


def _names(header: Sequence[str], delimiter: str, fields: Mapping[str, pa.Field]) -> list[str]:
    """Returns the columns of a header's names."""
    spelled = {name.lower(): name for name in fields}
    names = [name if name in fields else spelled.get(name.lower(), name) for name in header]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"its first line names the column {name!r} more than once")
    if len(names) == 1 and names[0] not in fields:
        for other in _DELIMITERS.replace(delimiter, ""):
            if other in names[0]:
                raise ValueError(f"its first line names one column, {names[0]!r}: is the delimiter {other!r}?")
    return names


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
