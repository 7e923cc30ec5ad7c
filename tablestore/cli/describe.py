"""``describe``, ``snapshots``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tablestore.cli.arguments import DEFAULT_WAREHOUSE, AsJson, Catalog, TableName, Token
from tablestore.cli.opening import open_table
from tablestore.cli.output import print_json, print_table

if TYPE_CHECKING:
    from tablestore import Snapshot

__all__ = ["describe", "snapshots"]


def describe(
    name: TableName, catalog: Catalog = DEFAULT_WAREHOUSE, token: Token = None, as_json: AsJson = False
) -> None:
    """Show what a table is and holds: columns, key, options, version, rows, files, log offsets."""
    with open_table(name, catalog, token) as table:
        detail = table.detail()
        if as_json:
            print_json(detail)
        else:
            detail["schema"] = detail["schema"].replace(", `", "\n`")
            print_table(["property", "value"], [(k.replace("_", " "), _shown(v)) for k, v in detail.items()])


def snapshots(
    name: TableName,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Only so many, the newest ones.")] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show a table's history, newest first: each version with the log offsets that it covers."""
    with open_table(name, catalog, token) as table:
        history = table.snapshots(limit)
    if as_json:
        print_json([_as_dict(s) for s in history])
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
        case Mapping():
            return ", ".join(f"{k}: {v}" for k, v in value.items())
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)
