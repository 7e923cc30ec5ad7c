"""The metadata and sizes of a table as plain values, which ``tablestore describe`` prints."""

from __future__ import annotations

from typing import Any

from filestore.delta.state import TableState
from filestore.secrets import shown
from managed_table.identity import TableIdentity

__all__ = ["detail_of"]


def detail_of(table: TableIdentity, state: TableState) -> dict[str, Any]:
    """A version of a table; ``log_topic`` is None without Kafka. Passwords and the like are not shown."""
    definition = state.definition
    log = table.log_config(definition)
    return {
        "name": table.identifier,
        "table_id": state.table_id,
        "location": table.location,
        "format": "delta",
        "schema": definition.schema.to_sql(),
        "primary_key": list(definition.primary_key),
        "partition_by": list(definition.partition_by),
        "options": shown(definition.options.as_dict()),
        "comment": definition.comment,
        "version": state.version,
        "files": len(state.files),
        "bytes": state.totals.size,
        "rows": state.totals.live_rows,
        "pending_runs": len(state.pending),
        "log_topic": None if log is None else log.topic,
        "log_offsets": state.log.offsets,
    }
