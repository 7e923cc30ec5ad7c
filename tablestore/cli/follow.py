"""The command ``follow``: prints a table's changes as they arrive, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

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
from tablestore.cli.opening import open_any_table
from tablestore.cli.output import note, print_lines
from tablestore.cli.signals import ending
from tablestore.incoming.moments import milliseconds_from

if TYPE_CHECKING:
    import pyarrow as pa

    from tablestore.following.follow import Following
    from tablestore.following.starting import ScanFrom
    from tablestore.kafka_table import KafkaTable
    from tablestore.table import Table

__all__ = ["follow", "interruptible"]

_KIND = "_kind"
_NO_VERSIONS = {"version": None, "tag": None, "on_log_gap": "fail", "until": None}
"""Options that need versions, which a Kafka topic does not have, with their defaults."""


class _From(StrEnum):
    FULL = "full"
    LATEST = "latest"
    TIMESTAMP = "from-timestamp"


class _Mode(StrEnum):
    UPSERT = "upsert"
    CHANGELOG = "changelog"


class _OnLogGap(StrEnum):
    FAIL = "fail"
    RESCAN = "rescan"


_MaxRows = Annotated[
    int | None, typer.Option("--max-rows", metavar="N", min=1, help="The largest number of rows to print at once.")
]


def follow(  # noqa: PLR0913  # a command's options are its arguments
    name: TableName,
    scan: Annotated[
        _From | None,
        typer.Option(
            "--scan",
            help="All rows and then changes; changes from now on; or changes since --timestamp. Default: by the other "
            "options, else the table's log.scan, else full.",
        ),
    ] = None,
    timestamp: Annotated[
        datetime | None,
        typer.Option("--timestamp", parser=moment, metavar="TIME", help="Changes since this time. ISO 8601, UTC."),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", metavar="VERSION", min=0, help="Changes after this version.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Changes after the version with this tag.")] = None,
    mode: Annotated[
        _Mode,
        typer.Option("--mode", help="Each row as it is now; or each update as the row before (-U) and after it (+U)."),
    ] = _Mode.UPSERT,
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", metavar="ID", help="Continue where the last reader with this id stopped."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="FOLDER",
            help="For a Kafka topic with --mode changelog: a folder with the rows so far; continue where it stopped.",
        ),
    ] = None,
    on_log_gap: Annotated[
        _OnLogGap, typer.Option("--on-log-gap", help="If changes are gone: fail, or rescan the newest version.")
    ] = _OnLogGap.FAIL,
    until: Annotated[
        int | None, typer.Option("--until", metavar="VERSION", min=0, help="Stop after this version.")
    ] = None,
    max_rows: _MaxRows = None,
    columns: Columns = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Print a table's changes as they arrive, each with its kind: +I, -U, +U or -D. Ctrl-C stops it."""
    if scan is _From.TIMESTAMP and timestamp is None:
        raise typer.BadParameter("--scan from-timestamp needs --timestamp", param_hint="--timestamp")
    asked = {"version": version, "tag": tag, "on_log_gap": str(on_log_gap)}
    with interruptible() as stopped, open_any_table(name, catalog, token) as table:
        from tablestore.cli.text import chosen  # loads Arrow and polars

        wanted = [_KIND, *chosen(table.schema.names, columns)]
        asked |= {"mode": str(mode), "consumer": consumer, "max_rows_per_batch": max_rows}
        changes = _changes(table, scan, timestamp, asked, state, until, stopped)
        note(f"following {name}; Ctrl-C stops it")
        with closing(changes):
            _print_changes(changes, wanted, output, stopped)


def _changes(
    table: Table | KafkaTable,
    scan: _From | None,
    timestamp: datetime | None,
    asked: Mapping[str, Any],
    state: str | None,
    until: int | None,
    stopped: threading.Event,
) -> Following | Generator[pa.RecordBatch]:
    from tablestore.table import Table

    if isinstance(table, Table):
        if state is not None:
            raise typer.BadParameter("a managed table stores a reader's progress: --consumer", param_hint="--state")
        stop = stopped if until is None else until
        begin = cast("ScanFrom | None", None if scan is None else str(scan))
        return table.follow(begin, timestamp=timestamp, stop=stop, **asked)
    for name, default in _NO_VERSIONS.items():
        if {**asked, "until": until}[name] != default:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter("a Kafka topic has no versions: leave it out", param_hint=option)
    how = {name: asked[name] for name in ("mode", "consumer", "max_rows_per_batch")}
    return table.follow(options=_startup(scan, timestamp), state=state, stop=stopped, **how)


def _startup(scan: _From | None, timestamp: datetime | None) -> dict[str, str]:
    """Converts the start to the options of a Kafka topic."""
    if timestamp is not None:
        if scan not in (None, _From.TIMESTAMP):
            raise typer.BadParameter(f"--scan {scan} cannot be combined with it", param_hint="--timestamp")
        millis = str(milliseconds_from(timestamp))
        return {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": millis}
    if scan is None:
        return {}
    return {"scan.startup.mode": "latest-offset" if scan is _From.LATEST else "earliest-offset"}


def _print_changes(
    changes: Iterator[pa.RecordBatch], columns: list[str], output: Format, stopped: threading.Event
) -> None:
    import pyarrow as pa

    from tablestore.cli.text import Aligned, json_lines
    from tablestore.following.gaps import truncates

    aligned = Aligned()
    for batch in changes:
        if stopped.is_set():
            return
        if truncates(batch):
            note("changes are gone: the rows so far are invalid, and all rows follow")
        rows = pa.Table.from_batches([batch]).select(columns)
        if rows.num_rows:
            print_lines(json_lines(rows) if output is Format.JSON else aligned.lines(rows))


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C sets, so that the current output is completed; a second Ctrl-C does not wait."""
    stopped = threading.Event()
    with ending(stopped, (signal.SIGINT,)):
        yield stopped
