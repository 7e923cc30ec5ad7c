"""The commands ``describe`` and ``snapshots``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from filestore.errors import TableStoreError
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Format, OutputFormat, TableName, Token
from tablestore.cli.opening import open_store, open_table
from tablestore.cli.output import print_json, print_table

if TYPE_CHECKING:
    from tablestore import Snapshot, Store, Table
    from tablestore.logcare.status import BucketLog

__all__ = ["describe", "snapshots"]


def describe(
    name: TableName, catalog: Catalog = DEFAULT_WAREHOUSE, token: Token = None, output: OutputFormat = Format.TABLE
) -> None:
    """Show a table's columns, key, options, version, rows, files, and its log or topic.

    For the log of each bucket: the first offset that is kept, the end of what the version covers, the offset up to
    which other consumers with read_committed can read (stable), and the end; `held_back` is the number of offsets that
    these wait for, and "log waits for" has the open transaction that they wait for, since when, and what ends it.
    """
    from tablestore import Table  # loads Arrow, which --help does not need

    with open_store(catalog, token) as store:
        table = store.any_table(name)
        detail = table.detail()
        if isinstance(table, Table):
            detail |= _log(table)
            if table.definition.is_view:
                detail |= _view(store, name)
        if output is Format.JSON:
            print_json(detail)
        else:
            detail["schema"] = detail["schema"].replace(", `", "\n`")
            if inputs := detail.get("view", {}).get("inputs"):
                detail["view"] |= {"inputs": ", ".join(inputs)}
            print_table(["property", "value"], [(k.replace("_", " "), _shown(v)) for k, v in detail.items()])


def snapshots(
    name: TableName,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Only so many of the newest ones.")] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """Show a table's history, newest first: each version with the log offsets that it covers."""
    with open_table(name, catalog, token) as table:
        history = table.snapshots(limit)
    if output is Format.JSON:
        print_json(*(_as_dict(s) for s in history))
        return
    print_table(
        ["version", "committed (UTC)", "operation", "written", "deleted", "log offsets"],
        [
            (
                s.version,
                f"{s.timestamp:%Y-%m-%d %H:%M:%S}",
                s.operation,
                s.metrics.get("rows_written", ""),
                s.metrics.get("rows_deleted", ""),
                _shown(s.log_offsets),
            )
            for s in history
        ],
        right=["version", "written", "deleted"],
    )


def _log(table: Table) -> dict[str, Any]:
    """Returns the state of the log by bucket, and what its readers wait for; the error, if the log does not answer."""
    try:
        status = table.log_status()
    except TableStoreError as error:
        return {"log": {"error": str(error)}}
    buckets = {str(bucket): _standing(found) for bucket, found in status.items()}
    config, table_id = table.opened.log_config(), table.opened.identity.table_id
    where = "" if config is None else config.topic or config.location
    waits = [opened.described(table_id, where) for found in status.values() for opened in found.waits_for]
    return {"log": buckets, **({"log_waits_for": waits} if waits else {})}


def _view(store: Store, name: str) -> dict[str, Any]:
    """Returns how a view is refreshed, the versions of which it is the result, and how many later ones there are."""
    from tablestore.views.opening import open_view  # loads sqlglot

    try:
        view = open_view(store, name)
        inputs = [
            f"{table} {'not read yet' if lag.version is None else f'at version {lag.version}'} ({lag.behind} newer)"
            for table, lag in view.lag().items()
        ]
        how = view.explain()[0]
        return {"view": {"inputs": inputs, "refreshed": how.partition(" is refreshed ")[2] or how}}
    except TableStoreError as error:
        return {"view": {"error": str(error)}}


def _standing(found: BucketLog) -> dict[str, int]:
    offsets = {"start": found.start, "covered": found.covered, "stable": found.stable, "end": found.end}
    return offsets | {"held_back": found.held_back}


def _as_dict(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": snapshot.version,
        "timestamp": snapshot.timestamp.isoformat(),
        "operation": snapshot.operation,
        "commit_id": snapshot.commit_id,
        "log_offsets": dict(snapshot.log_offsets),
        "metrics": dict(snapshot.metrics),
    }


def _shown(value: object) -> str:
    if value is None or value == [] or value == {}:
        return "-"
    match value:
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case Mapping() if any(isinstance(inner, Mapping) for inner in value.values()):
            return "\n".join(f"{k}: {', '.join(f'{n} {v:,}' for n, v in inner.items())}" for k, inner in value.items())
        case Mapping():
            return ", ".join(f"{k}: {v}" for k, v in value.items())
        case list():
            return ("\n" if any(" " in str(one) for one in value) else ", ").join(map(str, value))
        case _:
            return str(value)
