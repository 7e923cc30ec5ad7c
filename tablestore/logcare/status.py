"""Reads the offsets of a table's log, by bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from log.table.open_transaction import OpenTransaction
from log.table.systems import open_log
from managed_table.opened import OpenedTable
from managed_table.own_log import require_same_log

__all__ = ["BucketLog", "log_status"]


@dataclass(frozen=True, slots=True)
class BucketLog:
    """The offsets of one bucket's log.

    Attributes:
        start: The first offset that retention has kept.
        covered: The end of what the newest version covers.
        stable: The end for foreign readers with ``read_committed``, where the first open transaction begins.
        end: The offset that the next record gets.
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
        """The number of offsets that foreign readers cannot read yet, because an open transaction is before them."""
        return self.end - self.stable


def log_status(table: OpenedTable) -> Mapping[int, BucketLog]:
    """Returns the log's offsets beside the newest version, by bucket; nothing for a table without a log.

    Raises:
        Unavailable: the log does not answer.
        Corrupt: ``log-replaced``: the log was deleted and created again.
    """
    state = table.filestore.state()
    config = table.log_config(state.definition)
    if config is None:
        return {}
    with open_log(config, table.ambient) as log:
        require_same_log(log, state)
        starts, stable, ends = log.start_offsets(), log.stable_offsets(), log.end_offsets()
        opened = log.open_transactions() if stable != ends else []
    covered = state.log.offsets
    return {
        b: BucketLog(starts[b], covered.get(b, 0), stable[b], ends[b], tuple(t for t in opened if t.bucket == b))
        for b in range(state.definition.buckets)
    }
