"""The commands ``doctor``, ``new-log`` and ``compact``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Format, OutputFormat, TableName, Token
from tablestore.cli.opening import open_store, open_table
from tablestore.cli.output import note, print_json, print_lines, print_table
from tablestore.cli.settings import options_of

if TYPE_CHECKING:
    from filestore.doctor import Report

__all__ = ["compact", "doctor", "new_log"]


def doctor(
    name: TableName, catalog: Catalog = DEFAULT_WAREHOUSE, token: Token = None, output: OutputFormat = Format.TABLE
) -> None:
    """Check every invariant of a table on its stored bytes, and change nothing. Exit code 1 if one is broken."""
    with open_store(catalog, token) as store:
        report = store.examine(name)
    if output is Format.JSON:
        print_json(_as_dict(name, report))
    else:
        _print_report(name, report)
    if not report.healthy:
        raise typer.Exit(1)


def _print_report(name: str, report: Report) -> None:
    if report.findings:
        print_table(
            ["severity", "invariant", "what was found"], [(f.severity, f.code, f.message) for f in report.findings]
        )
        print_lines([""])
    problems = len(report.problems)
    state = "healthy" if report.healthy else f"{problems} problem{'s' if problems > 1 else ''}"
    others = len(report.findings) - problems
    rest = f", {others} other finding{'s' if others > 1 else ''}" if others else ""
    print_lines([f"{name} at version {report.version}: {state}{rest} ({report.files} files, {report.rows:,} rows)"])


def _as_dict(name: str, report: Report) -> dict[str, object]:
    return {
        "table": name,
        "location": report.location,
        "version": report.version,
        "files": report.files,
        "rows": report.rows,
        "healthy": report.healthy,
        "findings": [
            {"severity": f.severity, "invariant": f.code, "path": f.path, "message": f.message} for f in report.findings
        ],
    }


def new_log(
    name: TableName,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option log.* that changes; may be repeated."),
    ] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Begin a new log at the newest version, if a table's log was lost. Otherwise it changes nothing.

    [dim]tablestore new-log shop.orders
    tablestore new-log shop.orders --option log.kafka.bootstrap.servers=kafka2:9092[/dim]

    Rows and versions stay. Readers of changes that were behind have to read all rows once.
    """
    with open_table(name, catalog, token) as table:
        begun = table.new_log(options_of(options or []))
    if begun is None:
        note(f"{name} has its log: nothing was changed")
        return
    note(
        f"version {begun.version}: a new log of {name} begins. Readers of changes that had not read version "
        f"{begun.version - 1} fail with log-gap: begin them again with --scan full, or with --on-log-gap rescan"
    )


def compact(
    name: TableName,
    full: Annotated[bool, typer.Option("--full", help="Merge every bucket into one run.")] = False,
    partitions: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="COLUMN=VALUE,…", help="Only these partitions; as in `partitions drop`."),
    ] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Merge the sorted runs of buckets that have many. Readers and writers can continue meanwhile."""
    from tablestore.writing.overwrite import parse_spec  # here, since it loads polars, and `--help` should not wait

    with open_table(name, catalog, token) as table:
        before = len(table.files())
        specs = [parse_spec(text) for text in partitions] if partitions else None
        snapshot = table.compact(full=full, partitions=specs)
        after = len(table.files())
    if snapshot is None:
        note(f"{name} needs no compaction ({before} files)")
    else:
        note(f"version {snapshot.version}: {before} files before, {after} now")
