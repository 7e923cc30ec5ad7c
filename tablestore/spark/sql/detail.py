"""A table as ``DESCRIBE DETAIL`` shows it, with the names of FLIP-188."""

from __future__ import annotations

from collections.abc import Sequence

from tablestore.table import Table

__all__ = ["described"]


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
        "primary-key": ", ".join(definition.primary_key),
        "partitioned-by": ", ".join(definition.partition_by),
        "watermark": None if definition.watermark is None else str(definition.watermark),
        "version": str(state.version),
        "num-files": str(len(state.files)),
        "num-rows": str(sum(file.live_rows for file in state.files.values())),
        "size-in-bytes": str(sum(file.size for file in state.files.values())),
    }
    return list(values.items())
