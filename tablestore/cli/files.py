"""Reads rows for ``write`` from a file or standard input. Errors name the line."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import typer

from filestore.decoding import is_undecodable
from filestore.model.rowkind import KIND_COLUMN
from log.connector.formats.csv_files import CsvStyle, read_csv_file
from log.connector.formats.json.files import read_file
from log.connector.formats.json.values import Rules

__all__ = ["csv_style", "read_rows"]

_KINDS = ".parquet, .csv, .tsv, .json, .ndjson"
_DELIMITED = (".csv", ".tsv")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_RULES = Rules(unknown=False, entries=True, days=False, zones=False)
"""``scan`` prints a MAP as entries. People write what else topics take for a value and mean another one."""


def read_rows(
    file: Path, schema: pa.Schema, csv: CsvStyle | None = None, *, empty: pa.Table | None = None
) -> pl.DataFrame | pa.Table:
    """Reads the rows of a file; ``-`` is JSON from standard input.

    Args:
        file: The file.
        schema: The table's columns.
        csv: How a file of CSV is written, if the user has said so.
        empty: Is returned for JSON without any text, as ``scan`` prints no rows. Without it that is an error: no rows
            are an array, ``[]``.

    Raises:
        typer.BadParameter: the file cannot be read.
    """
    standard_input = str(file) == "-"
    kind = ".json" if standard_input else _kind(file)
    if csv is not None and kind not in _DELIMITED:
        raise typer.BadParameter(f"{file} is no CSV", param_hint="--delimiter, --encoding, --null")
    try:
        if not standard_input:
            file.open("rb").close()  # its errors are clearer than those of polars
        match kind:
            case ".parquet":
                return pl.read_parquet(file)
            case ".csv" | ".tsv":
                style = csv or CsvStyle()
                if kind == ".tsv" and style.delimiter is None:
                    style = replace(style, delimiter="\t")
                return read_csv_file(_content(file), _with_kind(schema), _RULES, style)
            case ".json" | ".ndjson" | ".jsonl":
                text = sys.stdin.buffer.read() if standard_input else _content(file)
                return empty if empty is not None and not text.strip() else _read_json(text, schema)
    except BaseException as error:
        if isinstance(error, OSError):
            raise _bad(file, error.strerror or str(error)) from error
        if isinstance(error, ValueError) or is_undecodable(error):
            raise _bad(file, str(error).partition("\n")[0]) from error
        raise
    raise typer.BadParameter(
        f"{file}: the name ends with none of {_KINDS}, nor with .gz, .zst or .bz2 behind it", param_hint="FILE"
    )


def csv_style(delimiter: str | None, null: str | None, encoding: str | None) -> CsvStyle | None:
    """Returns the style that options describe; None if none is given."""
    if delimiter is None and null is None and encoding is None:
        return None
    delimiter = "\t" if delimiter == "\\t" else delimiter
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise typer.BadParameter(
            f"{delimiter!r} is not one character that may be between fields", param_hint="--delimiter"
        )
    return CsvStyle(delimiter, null, encoding)


def _kind(file: Path) -> str:
    """Returns the ending of a file's name; of a text that is compressed the one before."""
    inner = Path(file.stem).suffix.lower()
    return inner if file.suffix.lower() in _COMPRESSED and inner != ".parquet" else file.suffix.lower()


def _content(file: Path) -> bytes:
    compression = _COMPRESSED.get(file.suffix.lower())
    with pa.input_stream(str(file), compression=compression) as stream:
        return bytes(stream.read())


def _bad(file: Path, why: str) -> typer.BadParameter:
    name = "standard input" if str(file) == "-" else str(file)
    return typer.BadParameter(f"{name} cannot be read: {why}", param_hint="FILE")


def _with_kind(schema: pa.Schema) -> dict[str, pa.Field]:
    return {field.name: field for field in [*schema, pa.field(KIND_COLUMN, pa.string())]}


def _read_json(text: bytes, schema: pa.Schema) -> pa.Table:
    fields = _with_kind(schema)
    rows = read_file(text, pa.schema(list(fields.values())), _RULES)
    # a column that no object has is one that the rows lack, and not one of nulls
    given = [name for name, f in fields.items() if not f.nullable or rows[name].null_count < rows.num_rows]
    return rows.select(given) if given else rows
