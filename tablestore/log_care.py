"""What a table's log needs besides writers: a janitor's call, and how far the log is, per bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from filestore.delta.state import TableState
from filestore.table import FileStore
from log.store import LogConfig
from log.systems import open_log
from tablestore.own_log import require_own_log
from tablestore.recovery import Recovered
from tablestore.transaction import TableWriter

__all__ = ["BucketLog", "LogCare", "log_status"]


@dataclass(frozen=True, slots=True)
class BucketLog:
    """Where one bucket's log stands. All are offsets.

    Attributes:
        start: The first that is still kept.
        covered: The end of what the newest version covers.
        stable: How far foreign readers with ``read_committed`` get: where the first open transaction begins.
        end: What the next record gets.
    """

    start: int
    covered: int
    stable: int
    end: int

    @property
    def held_back(self) -> int:
        """How many offsets foreign readers wait for: an open transaction lies before them."""
        return self.end - self.stable


def log_status(config: LogConfig, files: FileStore, state: TableState) -> Mapping[int, BucketLog]:
    """Where the log of a version stands, by bucket."""
    with open_log(config, files.ambient) as log:
        require_own_log(log, state)
        starts, stable, ends = log.start_offsets(), log.stable_offsets(), log.end_offsets()
    covered = state.log_offsets
    return {b: BucketLog(starts[b], covered.get(b, 0), stable[b], ends[b]) for b in range(config.buckets)}


class LogCare:
    """What `tablestore.Table` offers of it."""

    filestore: FileStore
    _writer: TableWriter

    def recover(self) -> Recovered:
        """Ends what dead writers left in the log, as the next write would: committed or aborted, as the versions say.

        What the log itself has lost of a version is published again. Safe to repeat, and beside writers at work.

        Raises:
            Unavailable: log or storage did not answer.
        """
        return self._writer.recover()

    def log_status(self) -> Mapping[int, BucketLog]:
        """Where the log stands, by bucket; nothing for a table without one.

        Raises:
            Unavailable: the log does not answer.
            Corrupt: ``log-replaced``: it is not the table's any more.
        """
        config = self._writer.log
        return {} if config is None else log_status(config, self.filestore, self.filestore.state())
