"""The command ``show``: prints the rows of a system table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from filestore.errors import InvalidRequest
from tablestore.cli import completing
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Columns, Format, OutputFormat, Token
from tablestore.cli.opening import open_table
from tablestore.cli.output import note
from tablestore.cli.rows import ROWS_SHOWN, print_rows
from tablestore.system.names import SYSTEM_TABLES, split_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from tablestore.system.scan import SystemScan

__all__ = ["show"]

_Version = Annotated[int | None, typer.Option("--version", min=0, help="Read that version.")]


def show(  # noqa: PLR0913  # a command's options are its arguments
    name: Annotated[
        str,
        typer.Argument(
            metavar="DB.TABLE$SYSTEM", help="Quote it, since shells replace $.", autocompletion=completing.tables
        ),
    ],
    columns: Columns = None,
    version: _Version = None,
    from_version: Annotated[
        int | None, typer.Option("--from-version", min=0, help="For audit_log and changes: begin after that version.")
    ] = None,
    to_version: Annotated[
        int | None, typer.Option("--to-version", min=0, help="For audit_log and changes: end with that version.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, help=f"Default: {ROWS_SHOWN} as a table, all as JSON.")
    ] = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Print a system table: snapshots, schemas, options, tags, partitions, buckets, files, audit_log, changes.

    [dim]tablestore show 'shop.orders$files'
    tablestore show 'shop.orders$changes' --from-version 3 --to-version 7[/dim]
    """
    from tablestore.cli.text import chosen  # loads Arrow and polars

    table_name, system = split_name(name)
    if system is None:
        raise InvalidRequest(
            f"{name} is not a system table: write {name}$NAME, with one of {', '.join(SYSTEM_TABLES)}; `tablestore "
            "scan` prints the rows of a table",
            code="bad-name",
        )
    if limit is None and output is Format.TABLE:
        limit = ROWS_SHOWN
    with open_table(table_name, catalog, token) as table:
        rows = table.system(system, version, from_version=from_version, to_version=to_version)
        more = print_rows(_selected(rows, chosen(rows.schema.names, columns)), output, limit)
    if more and limit:
        note(f"these are the first {limit} rows; --limit prints more")


def _selected(rows: SystemScan, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return (batch.select(list(columns)) for batch in rows.to_batches())
