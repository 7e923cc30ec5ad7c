"""A compactor's duty towards logs: what dead writers left in them is mended also when no writer comes."""

from __future__ import annotations

from catalog_service.client import TableInfo
from compaction.duties import Duty, StillMine
from filestore.delta.state import TableState
from filestore.metrics.meter import NO_METER, Meter
from filestore.table import FileStore
from tablestore.handle import TableHandle
from tablestore.logcare.metrics import measure_log
from tablestore.logcare.status import log_status
from tablestore.recovering.recovery import Recovered
from tablestore.writing.transaction import TableWriter

__all__ = ["LOG", "log_duty"]


def _due(state: TableState, now_ms: int) -> bool:
    """Only the log itself knows."""
    return bool(state.definition.options["log.system"] != "none")


def log_duty(meter: Meter) -> Duty:
    """The duty; it tells the meter where the logs stand then."""

    def mend(store: FileStore, still_mine: StillMine, info: TableInfo) -> str | None:
        where = info.database, info.name, info.table_id, store.location
        handle = TableHandle(*where, store.storage, store.ambient, meter)
        still_mine()
        said = _said(TableWriter(store, handle.log, store.ambient).recover())
        if meter is not NO_METER:
            state = store.state()
            measure_log(meter, handle.identifier, log_status(handle.required_log(state.definition), store, state))
        return said

    return Duty("log", 60.0, _due, mend)


def _said(found: Recovered) -> str | None:
    counts = {
        "aborted": found.aborted,
        "published again": found.republished,
        "told again": found.mended,
        "completed": found.completed,
    }
    told = [f"{len(ids)} {what}" for what, ids in counts.items() if ids]
    return f"log transactions of dead writers: {', '.join(told)}" if told else None


LOG = log_duty(NO_METER)
