"""The commands ``scan``, ``get`` and ``write``."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tablestore.cli.arguments import (
    DEFAULT_WAREHOUSE,
    Catalog,
    Columns,
    Delimiter,
    Encoding,
    Format,
    InputFormat,
    Null,
    OutputFormat,
    TableName,
    TimestampFormat,
    Token,
    moment,
)
from tablestore.cli.opening import open_any_table, open_table
from tablestore.cli.output import done, note, print_lines
from tablestore.cli.progress import doing, observed

if TYPE_CHECKING:
    import pyarrow as pa

    from tablestore import Snapshot
    from tablestore.kafka_table import KafkaScan
    from tablestore.reading.scan import Scan

__all__ = ["ROWS_SHOWN", "get", "print_rows", "report", "scan", "write"]

ROWS_SHOWN = 20

_File = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Export the rows to a file, whose name ends with .parquet, .arrow, .csv, .tsv, .json or .ndjson, and text "
        "also with .gz, .zst or .bz2.",
    ),
]


def scan(  # noqa: PLR0913  # a command's options are its arguments
    name: TableName,
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="CONDITION", help="SQL: \"amount > 10 AND day = 'x'\".")
    ] = None,
    columns: Columns = None,
    version: Annotated[int | None, typer.Option("--version", min=0, help="Read that version.")] = None,
    timestamp: Annotated[
        datetime | None,
        typer.Option(
            "--timestamp",
            parser=moment,
            metavar="TIME",
            help="Read the version at that time.",
        ),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Read the version with this tag.")] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Also read changes of a log with log.consistency = eventual that no version has."),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, help=f"Default: {ROWS_SHOWN} as a table, all as JSON."),
    ] = None,
    file: _File = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Print a table's rows, of the newest or an earlier version, or export them; for a Kafka topic its changes."""
    from tablestore.cli.text import chosen  # loads Arrow and polars
    from tablestore.table import Table

    if file is None and limit is None and output is Format.TABLE:
        limit = ROWS_SHOWN
    now = version is None and timestamp is None and tag is None and not fresh
    with (open_any_table if now else open_table)(name, catalog, token) as table:
        wanted = None if columns is None else chosen(table.schema.names, columns)
        if isinstance(table, Table):
            if timestamp is not None and version is None and tag is None:
                version, timestamp = table.version_at(timestamp), None
                note(f"version {version} was the newest at that time")
            found: Scan | KafkaScan = table.scan(wanted, where, version, fresh, timestamp=timestamp, tag=tag)
        else:
            found = table.scan(wanted, where)
        if file is not None:
            _export(found, file, limit, output)
            return
        more = print_rows(found.to_batches(), output, limit)
    if more and limit:
        note(f"these are the first {limit} rows; --limit prints more")


def _export(found: Scan | KafkaScan, file: Path, limit: int | None, output: Format) -> None:
    from filestore.ambient import system_ambient
    from tablestore.cli.export import export  # loads Arrow and polars

    batches = found.to_batches() if limit is None else _first(found.to_batches(), limit)
    written = export(batches, found.schema, file, system_ambient())
    text = f"{file}: {written:,} {'row' if written == 1 else 'rows'}"
    done(output, text, file=str(file), rows=written)


def _first(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return


def print_rows(batches: Iterable[pa.RecordBatch], output: Format, limit: int | None) -> bool:
    """Prints at most that number of rows; returns whether there are more."""
    import pyarrow as pa  # as those below, which load polars, too

    from filestore.sorting.runs import gathered
    from tablestore.cli.text import Aligned, json_lines

    aligned, left = Aligned(), limit
    parts = (pa.Table.from_batches([batch]) for batch in batches)
    for group in gathered(parts, rows=ROWS_SHOWN + 1):  # so many rows are aligned with each other
        rows = pa.concat_tables(group)
        shown = rows if left is None else rows.slice(0, left)
        print_lines(json_lines(shown) if output is Format.JSON else aligned.lines(shown))
        if left is not None:
            if rows.num_rows > left:
                return True
            left -= rows.num_rows
    return False


def get(
    name: TableName,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY…",
            help="Keys; of a key with several columns the values in its order, as a line of CSV: eu,7 or '\"a,b\",7'.",
        ),
    ],
    columns: Columns = None,
    version: Annotated[int | None, typer.Option("--version", min=0, help="Read that version.")] = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Print the rows of keys, in the order of the arguments.

    It reads only files that may contain the keys, and does not scan the table.
    """
    from tablestore.cli.text import Aligned, chosen, json_lines  # loads Arrow and polars

    with open_table(name, catalog, token) as table:
        wanted = None if columns is None else chosen(table.schema.names, columns)
        parts = len(table.definition.primary_key)
        asked = [(key,) for key in keys] if parts == 1 else [tuple(next(csv.reader([key]), ())) for key in keys]
        found = table.get(asked, wanted, version).to_arrow()
    if found.num_rows:
        print_lines(json_lines(found) if output is Format.JSON else Aligned().lines(found))
    if missing := len(set(asked)) - found.num_rows:
        note(f"{missing} of {len(set(asked))} keys have no row")


def write(  # noqa: PLR0913  # a command's options are its arguments
    name: TableName,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Ends with .parquet, .csv, .tsv, .json or .ndjson, and text also with .gz, .zst or .bz2; - is "
            "standard input, whatever it is.",
        ),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the whole table by the rows.")] = False,
    overwrite_partitions: Annotated[
        bool, typer.Option("--overwrite-partitions", help="Replace the partitions that the rows have.")
    ] = False,
    input_format: InputFormat = None,
    delimiter: Delimiter = None,
    null: Null = None,
    encoding: Encoding = None,
    timestamp_format: TimestampFormat = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Write a file's rows in one commit: as upserts, if the table has a primary key. To a Kafka topic: as messages.

    Columns are matched by name. A column [bold]_kind[/bold] has the kind of each row (+I, -U, +U, -D). JSON is one
    object on each line, or one array; what scan prints as JSON is read back as the same rows.
    """
    if overwrite and overwrite_partitions:
        raise typer.BadParameter("pass only one of them", param_hint="--overwrite, --overwrite-partitions")
    from tablestore.cli.files import bad_files, csv_style_of, row_files  # loads polars
    from tablestore.table import Table

    style = csv_style_of(delimiter, null, encoding, timestamp_format)
    replaces = overwrite or overwrite_partitions
    with (
        bad_files(),
        row_files([file], style, input_format) as (given,),
        (open_table if replaces else open_any_table)(name, catalog, token) as table,
    ):
        if not replaces and given.kind.is_json and given.is_blank():  # as scan prints no rows
            done(output, "there are no rows: nothing was written", table=name, version=None)
            return
        rows = given.rows(table.schema)
        doing(f"writing the rows of {given.name}")
        if isinstance(table, Table):
            replaced = "dynamic" if overwrite_partitions else overwrite
            report(output, name, table.write(rows, overwrite=replaced, observe=observed))
        else:
            messages = table.write(rows)
            done(output, f"{messages:,} messages", table=name, messages=messages)


def report(output: Format, name: str, snapshot: Snapshot) -> None:
    """Prints the version that a write has committed, and how many rows it changed."""
    counts = ", ".join(f"{k.replace('_', ' ')}: {v:,}" for k, v in snapshot.metrics.items() if v)
    text = f"version {snapshot.version}" + (f" ({counts})" if counts else "")
    done(output, text, table=name, version=snapshot.version, **snapshot.metrics)
