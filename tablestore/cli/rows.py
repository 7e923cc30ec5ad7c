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
    Format,
    OutputFormat,
    TableName,
    Token,
    moment,
)
from tablestore.cli.opening import open_any_table, open_table
from tablestore.cli.output import note, print_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from tablestore import Snapshot

__all__ = ["ROWS_SHOWN", "get", "print_rows", "scan", "write"]

ROWS_SHOWN = 20


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
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Print a table's rows, of the newest or an earlier version; for a Kafka topic its changes."""
    from tablestore.cli.text import chosen  # loads Arrow and polars
    from tablestore.table import Table

    if limit is None and output is Format.TABLE:
        limit = ROWS_SHOWN
    now = version is None and timestamp is None and tag is None and not fresh
    with (open_any_table if now else open_table)(name, catalog, token) as table:
        wanted = None if columns is None else chosen(table.schema.names, columns)
        if isinstance(table, Table):
            if timestamp is not None and version is None and tag is None:
                version, timestamp = table.version_at(timestamp), None
                note(f"version {version} was the newest at that time")
            batches = table.scan(wanted, where, version, fresh, timestamp=timestamp, tag=tag).to_batches()
        else:
            batches = table.scan(wanted, where).to_batches()
        more = print_rows(batches, output, limit)
    if more and limit:
        note(f"these are the first {limit} rows; --limit prints more")


def print_rows(batches: Iterable[pa.RecordBatch], output: Format, limit: int | None) -> bool:
    """Prints at most that number of rows; returns whether there are more."""
    from tablestore.cli.text import Aligned, json_lines

    aligned, left = Aligned(), limit
    for batch in _gathered(batches, ROWS_SHOWN):
        part = batch if left is None else batch.slice(0, left)
        print_lines(json_lines(part) if output is Format.JSON else aligned.lines(part))
        if left is not None:
            if batch.num_rows > left:
                return True
            left -= batch.num_rows
    return False


def _gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Joins small batches, so that the rows of a screen are aligned with each other."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(b.num_rows for b in waiting) > rows:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


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
            help="Ends with .parquet, .csv, .tsv, .json or .ndjson, and text also with .gz, .zst or .bz2; - is JSON "
            "from standard input.",
        ),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the whole table by the rows.")] = False,
    overwrite_partitions: Annotated[
        bool, typer.Option("--overwrite-partitions", help="Replace the partitions that the rows have.")
    ] = False,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", metavar="CHAR", help="Between the fields of CSV; default: by the first line."),
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="How CSV spells nulls; default: as nothing.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Of CSV, such as latin-1; default: UTF-8, or by its first bytes.")
    ] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Write a file's rows in one commit: as upserts, if the table has a primary key. To a Kafka topic: as messages.

    Columns are matched by name. A column [bold]_kind[/bold] has the kind of each row (+I, -U, +U, -D). JSON is one
    object on each line, or one array; what scan prints as JSON is read back as the same rows.
    """
    if overwrite and overwrite_partitions:
        raise typer.BadParameter("pass only one of them", param_hint="--overwrite, --overwrite-partitions")
    from tablestore.cli.files import csv_style, read_rows  # loads polars

    style = csv_style(delimiter, null, encoding)
    if not (overwrite or overwrite_partitions):
        with open_any_table(name, catalog, token) as table:
            nothing = table.schema.empty_table()
            rows = read_rows(file, table.schema, style, empty=nothing)
            if rows is nothing:
                note("there are no rows: nothing was written")
                return
            written = table.write(rows)
    else:
        with open_table(name, catalog, token) as managed:
            rows = read_rows(file, managed.schema, style)
            written = managed.write(rows, overwrite="dynamic" if overwrite_partitions else overwrite)
    if isinstance(written, int):
        note(f"{written:,} messages")
    else:
        _report(written)


def _report(snapshot: Snapshot) -> None:
    counts = ", ".join(f"{k.replace('_', ' ')}: {v:,}" for k, v in snapshot.metrics.items() if v)
    note(f"version {snapshot.version}" + (f" ({counts})" if counts else ""))
