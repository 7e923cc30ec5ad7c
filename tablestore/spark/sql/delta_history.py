"""The versions of a table with the columns of Delta's ``DESCRIBE HISTORY``, which scripts select by their names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from filestore.model.snapshot import Snapshot

__all__ = ["COLUMNS", "delta_history"]

_TYPES = {
    "version": "BIGINT",
    "timestamp": "TIMESTAMP",
    "userId": "STRING",
    "userName": "STRING",
    "operation": "STRING",
    "operationParameters": "MAP<STRING, STRING>",
    "job": "STRUCT<jobId: STRING, jobName: STRING, jobRunId: STRING, runId: STRING, jobOwnerId: STRING, "
    "triggerType: STRING>",
    "notebook": "STRUCT<notebookId: STRING>",
    "clusterId": "STRING",
    "readVersion": "BIGINT",
    "isolationLevel": "STRING",
    "isBlindAppend": "BOOLEAN",
    "operationMetrics": "MAP<STRING, STRING>",
    "userMetadata": "STRING",
    "engineInfo": "STRING",
    "commit_id": "STRING",
}

COLUMNS = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
"""The columns of Delta, and the id of the commit."""


def delta_history(snapshot: Snapshot) -> Sequence[Any]:
    """Returns the values of the columns for a version. What a commit does not say is null, as where Delta reads it."""
    known = {
        "version": snapshot.version,
        "timestamp": (snapshot.timestamp - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1),
        "operation": str(snapshot.operation),
        "operationParameters": dict(snapshot.parameters),
        "readVersion": snapshot.read_version,
        "isBlindAppend": False,
        "operationMetrics": {name: str(value) for name, value in snapshot.metrics.items()},
        "engineInfo": "tablestore",
        "commit_id": snapshot.commit_id,
    }
    return [known.get(name) for name in _TYPES]
