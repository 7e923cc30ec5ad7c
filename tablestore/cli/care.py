"""The commands ``doctor``, ``new-log`` and ``compact``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tablestore.cli import completing
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Format, OutputFormat, TableName, Token
from tablestore.cli.opening import open_store, open_table
from tablestore.cli.output import complain, done, note, print_json, print_lines, print_table
from tablestore.cli.progress import counted, observed
from tablestore.cli.settings import options_of

if TYPE_CHECKING:
    from filestore.doctor import Report
    from tablestore.doctor import Examined

__all__ = ["compact", "doctor", "new_log"]


def doctor(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="DB[.TABLE]",
            help="A table, or all of a database; else of all databases.",
            autocompletion=completing.names,
        ),
    ] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """Check every invariant of tables on their stored bytes, and change nothing. Exit code 1 if one is broken."""
    with open_store(catalog, token) as store:
        if name is not None and "." in name:
            report = store.examine(name, observe=observed)
            if output is Format.JSON:
                print_json(_as_dict(name, report))
            else:
                _print_report(name, report)
            healthy = report.healthy
        else:
            healthy = _print_all(counted(store.examine_all(name), _examined), output)
    if not healthy:
        raise typer.Exit(1)


def _examined(number: int, newest: Examined) -> str:
    return f"{number} {'table' if number == 1 else 'tables'} examined, the last one {newest.name}"


def _print_all(found: Iterable[Examined], output: Format) -> bool:
    """Prints the report of each table as soon as it is there; returns whether all are healthy."""
    of_tables: list[Examined] = []
    for one in found:
        of_tables.append(one)
        if one.error is not None:
            complain(one.error, of=one.name)
        elif one.report is not None and output is Format.TABLE:
            _print_report(one.name, one.report)
    if output is Format.JSON:
        print_json(*(_as_dict(one.name, one.report) for one in of_tables if one.report is not None))
    unexamined = sum(one.error is not None for one in of_tables)
    wrong = sum(not one.healthy for one in of_tables) - unexamined
    if not of_tables:
        note("there are no tables")
        return True
    parts = [f"{wrong} with problems"] * bool(wrong) + [f"{unexamined} not examined"] * bool(unexamined)
    note(f"{len(of_tables)} table{'s' * (len(of_tables) != 1)}: {', '.join(parts) or 'all healthy'}")
    return not parts


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
    if report.version < 0:
        print_lines([f"{name} cannot be read: {state}{rest}"])
    else:
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
    output: OutputFormat = Format.TABLE,
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
        done(output, f"{name} has its log: nothing was changed", table=name, version=None)
        return
    text = (
        f"version {begun.version}: a new log of {name} begins. Readers of changes that had not read version "
        f"{begun.version - 1} fail with log-gap: begin them again with --scan full, or with --on-log-gap rescan"
    )
    done(output, text, table=name, version=begun.version)


def compact(
    name: TableName,
    full: Annotated[bool, typer.Option("--full", help="Merge every bucket into one run.")] = False,
    partitions: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="COLUMN=VALUE,…", help="Only these partitions; as in `partitions drop`."),
    ] = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Merge the sorted runs of buckets that have many. Readers and writers can continue meanwhile."""
    from tablestore.writing.overwrite import parse_spec  # here, since it loads polars, and `--help` should not wait

    with open_table(name, catalog, token) as table:
        before = len(table.files())
        specs = [parse_spec(text) for text in partitions] if partitions else None
        snapshot = table.compact(full=full, partitions=specs, observe=observed)
        after = len(table.files())
    version = None if snapshot is None else snapshot.version
    text = f"version {version}: {before} files before, {after} now"
    if version is None:
        text = f"{name} needs no compaction ({before} files)"
    done(output, text, table=name, version=version, files_before=before, files=after)
