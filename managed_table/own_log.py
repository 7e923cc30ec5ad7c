"""Checks that a log is the one for which a table's offsets are valid (log/table/PROTOCOL.md section 1)."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.delta.state import TableState
from filestore.errors import Corrupt, NotFound
from filestore.model.log_range import ends_before
from filestore.table import FileStore
from log.table.config import log_behind
from log.table.store import LogStore, gap

__all__ = ["OwnRecords", "require_own_log", "require_same_log"]


def require_same_log(log: LogStore, state: TableState) -> None:
    """Refuses a log that was deleted and created again: in it the table's offsets belong to other records.

    Raises:
        Corrupt: ``log-replaced``: the table's offsets are not valid for this log.
    """
    wanted, found = state.log.identity, log.identity()
    if wanted and found != wanted:
        raise Corrupt(
            f"the log of table {state.table_id} is {found}, but its offsets are those of {wanted}: restore that log, "
            "or begin a new one at the newest version with `tablestore new-log` (Table.new_log)",
            code="log-replaced",
        )


def require_own_log(log: LogStore, state: TableState) -> None:
    """Refuses a log that is another one, or that has lost its end: new records would get offsets of lost ones.

    REQUIRES: `state` was read before the call, so that a sound log ends at or behind what it covers.

    Raises:
        Corrupt: ``log-replaced``: as `require_same_log`; ``log-behind``: the log is older than the version.
    """
    require_same_log(log, state)
    if behind := ends_before(log.end_offsets(), state.log):
        bucket, (end, needed) = min(behind.items())
        raise log_behind(state.table_id, bucket, end, needed)


@dataclass(frozen=True, slots=True)
class OwnRecords:
    """The records that a table's log has: those of versions behind the one with which it began. Readers ask here.

    Attributes:
        state: The newest version that is known.
        where: The table.
    """

    state: TableState
    where: str

    @classmethod
    def known(cls, store: FileStore) -> OwnRecords:
        """Returns the records by the newest version that was read, without another look."""
        return cls(store.known, store.location)

    @classmethod
    def newest(cls, store: FileStore) -> OwnRecords:
        """Returns the records by the newest version."""
        return cls(store.state(), store.location)

    @property
    def first(self) -> int:
        """The version behind which records are there."""
        return self.state.log.begins

    def has(self, version: int) -> bool:
        """Returns whether the records of a version are in the log that the table has, and not in one that was lost."""
        return version > self.first

    def require(self, version: int) -> None:
        """Refuses a version whose records were in a log that was lost.

        Raises:
            NotFound: ``log-gap``.
        """
        if not self.has(version):
            raise gap(
                self.where,
                f"it begins with version {self.first}, since an earlier one was lost, and with it the records of "
                f"version {version}",
            )

    def compare(self, log: LogStore) -> None:
        """Refuses a log as `require_own_log` does; but what it has lost at its end is a gap.

        Raises:
            Corrupt: ``log-replaced``.
            NotFound: ``log-gap``.
        """
        try:
            require_own_log(log, self.state)
        except Corrupt as error:
            if error.code != "log-behind":
                raise
            raise NotFound(f"{error.message}: until then its changes cannot be read", code="log-gap") from error
