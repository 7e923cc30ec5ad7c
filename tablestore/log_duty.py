"""A compactor's duty towards logs: what dead writers left in them is mended also when no writer comes."""

from __future__ import annotations

from catalog_service.client import TableInfo
from compaction.duties import Duty, StillMine
from filestore.delta.state import TableState
from filestore.table import FileStore
from tablestore.handle import TableHandle
from tablestore.recovery import Recovered
from tablestore.transaction import TableWriter

__all__ = ["LOG"]


def _due(state: TableState, now_ms: int) -> bool:
    """Only the log itself knows."""
    return bool(state.definition.options["log.system"] != "none")


def _mend(store: FileStore, still_mine: StillMine, info: TableInfo) -> str | None:
    handle = TableHandle(info.database, info.name, info.table_id, store.location, store.storage, store.ambient)
    still_mine()
    return _said(TableWriter(store, handle.log, store.ambient).recover())


def _said(found: Recovered) -> str | None:
    counts = {
        "aborted": found.aborted,
        "published again": found.republished,
        "told again": found.mended,
    }
    told = [f"{len(ids)} {what}" for what, ids in counts.items() if ids]
    return f"log transactions of dead writers: {', '.join(told)}" if told else None


LOG = Duty("log", 60.0, _due, _mend)
