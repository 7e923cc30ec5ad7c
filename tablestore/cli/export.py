"""Writes rows to a file, for ``scan --output``: its name says the format. Memory is bounded by some batches.

The file is written beside its place and renamed at the end, so it is there as a whole or not at all, and one that was
there before stays until then. Each value is exact, or the export is refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from filestore.ambient import Ambient
from filestore.errors import Unsupported
from filestore.sorting.runs import gathered
from log.connector.formats.csv import CsvFormat
from tablestore.cli.progress import doing
from tablestore.cli.text import json_lines
from tablestore.incoming.files.kinds import COMPRESSIONS

__all__ = ["export"]

_KINDS = ".parquet, .arrow, .csv, .tsv, .json, .ndjson"
_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
"""The largest part that is in memory, which is a row group of Parquet."""

Write = Callable[[pa.Table], None]


def export(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: Path, ambient: Ambient) -> int:
    """Writes rows; returns how many.

    Args:
        batches: The rows.
        schema: Their columns.
        file: The file, which is replaced if there is one.
        ambient: Makes the name under which it is written at first.

    Raises:
        typer.BadParameter: the name says no format, or the file cannot be written.
        Unsupported: ``export-type``: the format does not hold a column's type.
    """
    opened = _format_of(file, schema)
    written = 0
    file = file.resolve()  # a link stays one
    beside = file.with_name(f".{file.name}.{ambient.new_id()}.tmp")
    try:
        try:
            with opened(beside) as write:
                parts = (pa.Table.from_batches([batch]) for batch in batches)
                for group in gathered(parts, _GROUP_BYTES, _GROUP_ROWS):  # each becomes a row group
                    rows = pa.concat_tables(group)
                    write(rows)
                    written += rows.num_rows
                    doing(f"{written:,} rows written")
            with suppress(FileNotFoundError):
                shutil.copymode(file, beside)
            beside.replace(file)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise typer.BadParameter(
            f"{file} cannot be written: {error.strerror or error}", param_hint="--output"
        ) from error
    return written


def _format_of(file: Path, schema: pa.Schema) -> Callable[[Path], AbstractContextManager[Write]]:
    """Returns what opens a file and yields what writes rows to it."""
    last = file.suffix.lower()
    compression = COMPRESSIONS.get(last)
    kind = Path(file.stem).suffix.lower() if compression else last
    match kind:
        case ".parquet" if compression is None:
            return lambda path: _parquet(path, schema)
        case ".arrow" if compression is None:
            return lambda path: _arrow(path, schema)
        case ".csv" | ".tsv":
            _require_flat(schema)
            delimiter = "," if kind == ".csv" else "\t"
            return lambda path: _text(path, compression, *_csv(schema, delimiter))
        case ".json" | ".ndjson" | ".jsonl":
            return lambda path: _text(path, compression, b"", _json)
    raise typer.BadParameter(
        f"{file}: the name ends with none of {_KINDS}, nor, for text, with .gz, .zst or .bz2 behind it",
        param_hint="--output",
    )


def _require_flat(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise Unsupported(
                f"column {field.name!r} has lists, structs or maps, which readers of CSV do not know: export to "
                "Parquet, Arrow or JSON, or leave the column out with --columns",
                code="export-type",
            )


@contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Iterator[Write]:
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield writer.write_table


@contextmanager
def _arrow(path: Path, schema: pa.Schema) -> Iterator[Write]:
    with pa.ipc.new_file(path, schema) as writer:
        yield writer.write_table


@contextmanager
def _text(
    path: Path, compression: str | None, header: bytes, lines: Callable[[pa.Table], list[bytes]]
) -> Iterator[Write]:
    with pa.output_stream(str(path), compression=compression) as stream:
        stream.write(header)
        yield lambda rows: stream.write(b"".join(line + b"\n" for line in lines(rows)))


def _csv(schema: pa.Schema, delimiter: str) -> tuple[bytes, Callable[[pa.Table], list[bytes]]]:
    """The header, and what makes lines of rows: nulls are nothing, and empty texts are quoted."""
    numbers = [f"{number}" for number in range(len(schema))]  # a column of kinds has another meaning there
    titles = pa.schema([pa.field(number, pa.string()) for number in numbers])
    named = pa.Table.from_arrays([pa.array([name]) for name in schema.names], schema=titles)
    header = CsvFormat(titles, delimiter).encode(named)[0] or b""
    form = CsvFormat(pa.schema([field.with_name(n) for n, field in zip(numbers, schema, strict=True)]), delimiter)
    return header + b"\n", lambda rows: [line or b"" for line in form.encode(rows.rename_columns(numbers))]


def _json(rows: pa.Table) -> list[bytes]:
    return [line.encode() for line in json_lines(rows)]
