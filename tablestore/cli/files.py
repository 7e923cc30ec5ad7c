"""Reads rows for ``write`` from a file or standard input. Errors name the line."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import typer

from filestore.decoding import is_undecodable

__all__ = ["read_rows"]

_KINDS = ".parquet, .csv, .json, .ndjson"


def read_rows(file: Path, schema: pa.Schema) -> pl.DataFrame | pa.Table:
    """Reads the rows of a file; ``-`` is JSON from standard input.

    Args:
        file: The file.
        schema: The table's columns, for an array without rows.

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
                return _read_csv(file)
            case ".json" | ".ndjson" | ".jsonl":
                return _read_json(file.read_bytes(), schema)
            case "" if standard_input:
                return _read_json(sys.stdin.buffer.read(), schema)
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


def _read_csv(file: Path) -> pl.DataFrame:
    try:
        # read as texts: the table's types decide how they are parsed, and not the first lines
        return pl.read_csv(file, infer_schema=False)
    except pl.exceptions.NoDataError as error:
        raise ValueError("it is empty: the first line has the names of the columns") from error
    except pl.exceptions.PolarsError as error:
        raise ValueError(_csv_problem(file.read_bytes()) or str(error).partition("\n")[0]) from error


def _csv_problem(text: bytes) -> str | None:
    """The first line with more fields than the header has columns. It loops over lines, but only after an error."""
    lines = csv.reader(text.decode(errors="replace").splitlines(keepends=True))
    header = next(lines, [])
    for fields in lines:
        if len(fields) > len(header):
            return f"line {lines.line_num} has {len(fields)} fields, and the header names {len(header)} columns"
    return None


def _read_json(text: bytes, schema: pa.Schema) -> pl.DataFrame | pa.Table:
    whole = text.strip()
    if not whole:
        raise ValueError("it is empty: write one JSON object on each line, or one array of them")
    array = whole.startswith(b"[")
    if array and not whole[1:-1].strip():
        return schema.empty_table()
    try:
        if array:
            return pl.read_json(whole, infer_schema_length=None)
        return pl.read_ndjson(whole, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        problem = None if array else _json_problem(text)
        raise ValueError(problem or "it is neither one JSON object on each line nor one array of objects") from error


def _json_problem(text: bytes) -> str | None:
    """The first line that is not a JSON object. It loops over lines, but only after an error."""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found = json.loads(line) if line.strip() else {}
        except ValueError:
            return f"line {number} is not a JSON object: {line.decode(errors='replace')[:80]!r}"
        if not isinstance(found, dict):
            return f"line {number} is not a JSON object: {line.decode(errors='replace')[:80]!r}"
    return None
