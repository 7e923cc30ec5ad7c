"""Control records, which the log has instead of rows for some commits (PROTOCOL.md section 3.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from filestore.delta.actions import PARTITIONS_PARAMETER
from filestore.delta.log import Commit
from filestore.model.log_range import LogTransaction
from filestore.model.partition_set import PartitionSet
from filestore.model.snapshot import Operation
from log.table.store import LogStore

__all__ = ["control_message", "control_of", "log_control"]

_MOST_NAMED = 1000
"""The most partitions that a control record names, since Kafka accepts records of up to a megabyte."""


def control_message(operation: Operation, replaced: PartitionSet) -> dict[str, Any]:
    """Returns the control record of an overwrite or a drop (log/table/PROTOCOL.md section 3.1)."""
    message: dict[str, Any] = {"control": operation.value.lower()}
    if not replaced.whole_table and len(replaced.specs) <= _MOST_NAMED:
        message["partitions"] = replaced.to_json()
    return message


def control_of(entry: Commit, *, keyed: bool) -> dict[str, Any] | None:
    """Returns the control record of a commit whose rows are not in the log; None for other commits."""
    snapshot = entry.snapshot()
    if snapshot.operation is Operation.ROLLBACK and not keyed:
        return {"control": "overwrite"}
    if snapshot.operation.replaces_partitions:
        named = entry.actions[0]["commitInfo"]["operationParameters"].get(PARTITIONS_PARAMETER)
        message: dict[str, Any] = {"control": snapshot.operation.value.lower()}
        specs = [] if named is None else json.loads(named)
        return message | ({"partitions": specs} if 0 < len(specs) <= _MOST_NAMED else {})
    return None


def log_control(log: LogStore, transaction_id: str, buckets: int, message: Mapping[str, Any]) -> LogTransaction | None:
    """Prepares a control record in each bucket: it says which rows a reader of the log has to read again from files."""
    writer = log.begin(transaction_id)
    try:
        for bucket in range(buckets):
            writer.control(bucket, message)
        return writer.prepare()
    except BaseException:
        writer.abort()
        raise
