"""How far a table's log is, by bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from filestore.delta.state import TableState
from filestore.table import FileStore
from log.open_transaction import OpenTransaction
from log.store import LogConfig
from log.systems import open_log
from tablestore.own_log import require_own_log

__all__ = ["BucketLog", "log_status"]


@dataclass(frozen=True, slots=True)
class BucketLog:
    """Where one bucket's log stands. All are offsets.

    Attributes:
        start: The first that is still kept.
        covered: The end of what the newest version covers.
        stable: How far foreign readers with ``read_committed`` get: where the first open transaction begins.
        end: What the next record gets.
        waits_for: The open transactions that foreign readers wait for, the first one first: of writers of the table, or
            of other programs, which no recovery ends.
    """

    start: int
    covered: int
    stable: int
    end: int
    waits_for: tuple[OpenTransaction, ...] = ()

    @property
    def held_back(self) -> int:
        """How many offsets foreign readers wait for: an open transaction lies before them."""
        return self.end - self.stable


def log_status(config: LogConfig, files: FileStore, state: TableState) -> Mapping[int, BucketLog]:
    """Where the log of a version stands, by bucket."""
    with open_log(config, files.ambient) as log:
        require_own_log(log, state)
        starts, stable, ends = log.start_offsets(), log.stable_offsets(), log.end_offsets()
        opened = log.open_transactions() if stable != ends else []
    covered = state.log_offsets
    return {
        b: BucketLog(starts[b], covered.get(b, 0), stable[b], ends[b], tuple(t for t in opened if t.bucket == b))
        for b in range(config.buckets)
    }
