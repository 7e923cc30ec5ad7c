"""The commands ``partitions list``, ``partitions drop`` and ``partitions expire``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Format, OutputFormat, TableName, Token, Yes
from tablestore.cli.opening import open_table
from tablestore.cli.output import confirm, done, print_json, print_table
from tablestore.cli.questions import about_partitions

if TYPE_CHECKING:
    from tablestore import Snapshot

__all__ = ["drop", "expire", "list_partitions"]

_Specs = Annotated[
    list[str],
    typer.Argument(metavar="COLUMN=VALUE,…", help="Values of some or all partition columns; or a JSON object."),
]


def list_partitions(
    name: TableName, catalog: Catalog = DEFAULT_WAREHOUSE, token: Token = None, output: OutputFormat = Format.TABLE
) -> None:
    """List a table's partitions with their rows, pending changes, files, bytes, and when they expire."""
    with open_table(name, catalog, token) as table:
        found = table.system("partitions").to_arrow().to_pylist(maps_as_pydicts="strict")
    if output is Format.JSON:
        print_json(*found)
        return
    print_table(
        ["partition", "rows", "pending", "files", "bytes", "last update (UTC)", "expires (UTC)"],
        [
            (
                ",".join(f"{name}={value}" for name, value in row["partition"].items()) or "-",
                f"{row['live_record_count']:,}",
                f"{row['pending_record_count']:,}",
                row["file_count"],
                f"{row['file_size_in_bytes']:,}",
                f"{row['last_update_time']:%Y-%m-%d %H:%M:%S}",
                f"{row['expiration_time']:%Y-%m-%d %H:%M:%S}" if row["expiration_time"] else "-",
            )
            for row in found
        ],
        right=["rows", "pending", "files", "bytes"],
    )


def drop(
    name: TableName,
    partitions: _Specs,
    yes: Yes = False,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Drop partitions with all their rows; values of only some columns drop every partition that has them.

    [dim]tablestore partitions drop shop.orders day=2026-01-31 region=eu,day=2026-02-01[/dim]
    """
    from filestore.rows.partitions import partition_set  # both load Arrow
    from tablestore.writing.overwrite import parse_spec

    with open_table(name, catalog, token) as table:
        specs = [parse_spec(text) for text in partitions]
        if not yes:
            confirm(about_partitions(name, table, partitions, partition_set(specs, table.definition)))
        _report(output, name, table.drop_partitions(specs), "there were no rows")


def expire(
    name: TableName, catalog: Catalog = DEFAULT_WAREHOUSE, token: Token = None, output: OutputFormat = Format.TABLE
) -> None:
    """Drop the partitions that are older than the table's partition.expiration-time."""
    with open_table(name, catalog, token) as table:
        _report(output, name, table.expire_partitions(), "no partition has expired")


def _report(output: Format, name: str, snapshot: Snapshot | None, nothing: str) -> None:
    if snapshot is None:
        done(output, f"{name}: {nothing}", table=name, version=None, rows_removed=0, files_removed=0)
        return
    rows, files = snapshot.metrics["rows_removed"], snapshot.metrics["files_removed"]
    text = f"version {snapshot.version}: {rows:,} rows in {files:,} files dropped"
    done(output, text, table=name, version=snapshot.version, rows_removed=rows, files_removed=files)
