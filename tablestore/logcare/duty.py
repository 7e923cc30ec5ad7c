"""The compactor's duty `log`: it recovers logs after dead writers, even if no other writer runs."""

from __future__ import annotations

from functools import partial

from compaction.duties import Duty, LeaseCheck
from filestore.delta.state import TableState
from filestore.metrics.meter import NO_METER
from managed_table.opened import OpenedTable
from tablestore.logcare.metrics import measure_log
from tablestore.logcare.status import log_status
from tablestore.recovering.recovery import Recovered
from tablestore.writing.writer import TableWriter

__all__ = ["LOG", "LOG_ONCE"]


def _due(state: TableState, now_ms: int) -> bool:
    """Returns whether the table has a log; only the log itself knows whether there is anything to recover."""
    return bool(state.definition.options["log.system"] != "none")


def _recover(table: OpenedTable, check_lease: LeaseCheck, *, wait: bool) -> str | None:
    """Recovers the log, then sets the gauges of its offsets."""
    check_lease()
    done = _summary(TableWriter(table.filestore, table.log_config, table.ambient).recover(wait=wait))
    if table.meter is not NO_METER:
        measure_log(table.meter, table.identity.identifier, log_status(table))
    return done


def _summary(found: Recovered) -> str | None:
    counts = {
        "aborted": found.aborted,
        "published again": found.republished,
        "repaired": found.repaired,
        "completed": found.completed,
    }
    parts = [f"{len(ids)} {what}" for what, ids in counts.items() if ids]
    return f"log transactions of dead writers: {', '.join(parts)}" if parts else None


LOG = Duty("log", 60.0, _due, partial(_recover, wait=False))
"""The duty of a running compactor: it does not wait to see which writers live, but compares with its next round."""

LOG_ONCE = Duty("log", 60.0, _due, partial(_recover, wait=True))
"""The duty of a compactor that has no next round."""
