"""A table as ``DESCRIBE DETAIL`` shows it, with the names of FLIP-188."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from filestore import layout
from filestore.errors import NotFound
from filestore.model.files import DataFile, PendingRun
from filestore.model.names import listed
from filestore.rows.partitions import partition_set
from tablestore.table import Table

__all__ = ["described", "described_partition"]


def described(table: Table) -> Sequence[Sequence[str | None]]:
    """Returns names and values.

    ``log.*`` is there for a table with a log; ``change-tracking`` says whether it has one.
    """
    state = table.filestore.state()
    definition = state.definition
    log = table.opened.log_config(definition)
    logged: dict[str, str | None] = {"log.system": str(definition.options["log.system"])}
    if log is not None:
        logged |= {
            "log.consistency": str(definition.options["log.consistency"]),
            "log.retention-ms": None if log.retention_ms is None else str(log.retention_ms),
            "log.topic": log.topic,
            "log.bootstrap-servers": log.bootstrap_servers,
        }
    values: dict[str, str | None] = {
        "name": table.identifier,
        **logged,
        "file.path": table.location,
        "file.format": "parquet",
        "bucket": str(definition.buckets),
        "change-tracking": str(log is not None).lower(),
        "primary-key": listed(definition.primary_key, ", "),
        "partitioned-by": listed(definition.partition_by, ", "),
        "watermark": None if definition.watermark is None else str(definition.watermark),
        "version": str(state.version),
        "num-files": str(len(state.files)),
        "num-rows": str(state.totals.live_rows),
        "size-in-bytes": str(state.totals.size),
    }
    return list(values.items())


def described_partition(table: Table, spec: Mapping[str, Any]) -> Sequence[Sequence[str | None]]:
    """Returns names and values of one partition: where it is, when it changed, and its files.

    Raises:
        InvalidRequest: as `partition_set`.
        NotFound: ``partition-not-found``: no partition has these values, or several have.
    """
    state = table.filestore.state()
    chosen = partition_set([spec], state.definition)
    files, pending = list(state.files.within(chosen)), list(state.pending.within(chosen))
    held: list[DataFile | PendingRun] = [*files, *pending]
    found = {file.slot.partition for file in held}
    if len(found) != 1:
        raise NotFound(
            f"{len(found)} partitions have {', '.join(f'{n} = {v}' for n, v in spec.items())}: give one value for each "
            f"of {', '.join(state.definition.partition_by)}; SHOW PARTITIONS lists them",
            code="partition-not-found",
        )
    [partition] = found
    changed = max(file.modified_ms for file in held)
    return [
        ("name", table.identifier),
        ("partition", ", ".join(f"{name}={value}" for name, value in partition)),
        ("file.path", layout.join(table.location, layout.partition_folder(partition))),
        ("last-modified", datetime.fromtimestamp(changed / 1000, UTC).isoformat(" ", "milliseconds")),
        ("num-files", str(len(files))),
        ("num-rows", str(sum(file.live_rows for file in files))),
        ("size-in-bytes", str(sum(file.size for file in files))),
        ("num-pending-files", str(len(pending))),
    ]
