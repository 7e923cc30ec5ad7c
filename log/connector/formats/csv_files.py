"""Reads the rows of a file of CSV by the reader of topics; its first line has the columns' names."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from log.connector.formats.csv import CsvFormat, check_csv_type
from log.connector.formats.json.values import Rules

__all__ = ["read_csv_file"]


def read_csv_file(content: bytes, fields: Mapping[str, pa.Field], rules: Rules) -> pa.Table:
    """Returns the rows of a file, with the columns that it has, in its order.

    Args:
        content: The file's bytes.
        fields: The columns by name; another column of the file is one of texts.
        rules: What stands for a value.

    Raises:
        ValueError: it is no such file, or a value does not fit; the text says where.
    """
    lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    names = next(lines, [])
    if not names:
        raise ValueError("it is empty: the first line has the names of the columns")
    schema = pa.schema([fields.get(name, pa.field(name, pa.string())) for name in names])
    for field in schema:
        if found := check_csv_type(field.type):
            raise ValueError(f"column {field.name!r} has {found}: write it as JSON or Parquet")
    style = CsvFormat(schema, rules=rules)
    try:
        texts = style.parsed(content, names, skip=lines.line_num)
    except pa.ArrowInvalid as error:
        raise ValueError(_problem(content) or str(error).partition("\n")[0]) from error
    bad: dict[int, str] = {}
    rows = style.typed(texts, np.arange(1, texts.num_rows + 1), bad)
    if bad:
        raise ValueError(f"row {min(bad)}: {bad[min(bad)]}")
    return rows


def _problem(content: bytes) -> str | None:
    """Returns which is the first line with other fields than the header. It loops over lines, but after an error."""
    lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    try:
        header = next(lines)
        for fields in lines:
            if fields and len(fields) != len(header):
                return f"line {lines.line_num} has {len(fields)} fields, and the header names {len(header)} columns"
    except csv.Error:  # such as a field that is larger than the module takes
        return None
    return None
