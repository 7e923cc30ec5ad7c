"""Reads rows for ``write`` from a file or standard input. Errors name the line."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import typer

from filestore.decoding import is_undecodable
from filestore.model.rowkind import KIND_COLUMN
from log.connector.formats.csv_files import read_csv_file
from log.connector.formats.json.files import read_file
from log.connector.formats.json.values import Rules

__all__ = ["read_rows"]

_KINDS = ".parquet, .csv, .json, .ndjson"
_RULES = Rules(unknown=False, entries=True, days=False, zones=False)
"""``scan`` prints a MAP as entries. People write what else topics take for a value and mean another one."""


def read_rows(file: Path, schema: pa.Schema, *, empty: bool = False) -> pl.DataFrame | pa.Table:
    """Reads the rows of a file; ``-`` is JSON from standard input.

    Args:
        file: The file.
        schema: The table's columns.
        empty: Whether JSON may be empty, as what ``scan`` prints of no rows is. Otherwise no rows are an array, ``[]``.

    Raises:
        typer.BadParameter: the file cannot be read.
    """
    standard_input = str(file) == "-"
    try:
        if not standard_input:
            file.open("rb").close()  # its errors are clearer than those of polars
        match file.suffix.lower():
            case ".parquet":
                return pl.read_parquet(file)
            case ".csv":
                return read_csv_file(file.read_bytes(), _with_kind(schema), _RULES)
            case ".json" | ".ndjson" | ".jsonl":
                return _read_json(file.read_bytes(), schema, empty=empty)
            case "" if standard_input:
                return _read_json(sys.stdin.buffer.read(), schema, empty=empty)
    except BaseException as error:
        if isinstance(error, OSError):
            raise _bad(file, error.strerror or str(error)) from error
        if isinstance(error, ValueError) or is_undecodable(error):
            raise _bad(file, str(error).partition("\n")[0]) from error
        raise
    raise typer.BadParameter(f"{file}: the name ends with none of {_KINDS}", param_hint="FILE")


def _bad(file: Path, why: str) -> typer.BadParameter:
    name = "standard input" if str(file) == "-" else str(file)
    return typer.BadParameter(f"{name} cannot be read: {why}", param_hint="FILE")


def _with_kind(schema: pa.Schema) -> dict[str, pa.Field]:
    return {field.name: field for field in [*schema, pa.field(KIND_COLUMN, pa.string())]}


def _read_json(text: bytes, schema: pa.Schema, *, empty: bool) -> pa.Table:
    fields = _with_kind(schema)
    rows = read_file(text if text.strip() or not empty else b"[]", pa.schema(list(fields.values())), _RULES)
    # a column that no object has is one that the rows lack, and not one of nulls
    given = [name for name, f in fields.items() if not f.nullable or rows[name].null_count < rows.num_rows]
    return rows.select(given) if given else rows
