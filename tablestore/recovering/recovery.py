"""Recovers a table's log after a crash. The next writer does so (log/table/PROTOCOL.md section 8).

It commits transactions that a snapshot names, and aborts those that no snapshot names and whose writer is dead. The
snapshots have decided both already: this only makes it visible to the log's own readers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from filestore.ambient import Ambient
from filestore.commit.fence import fence
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest
from filestore.model.log_range import LogTransaction
from filestore.table import FileStore
from log.table.open_transaction import OpenTransaction
from log.table.session import LogSession
from log.table.store import LogStore
from log.table.transaction_ids import parse_transaction_id
from tablestore.recovering.compared import require_log_of
from tablestore.recovering.republish import republish

__all__ = ["Recovered", "Recovery"]

logger = logging.getLogger(__name__)

_SEARCH_AGAIN_MS = 60_000
_COMPARE_AGAIN_MS = 10_000  # nobody restores a log between two writes that are closer together


@dataclass(frozen=True, slots=True)
class Recovered:
    """The ids of log transactions that were recovered.

    Attributes:
        ended: Those of committed versions, which have surely ended now.
        aborted: Those of dead writers, which no version names.
        republished: Those that the log has lost, and that were published again.
        repaired: Those of dead writers in an eventual log, whose readers have seen them: their keys were written again.
        completed: Those that had ended, but that a broker still held open.
        foreign: Open transactions of other programs in the table's topic. Readers with ``read_committed`` wait for
            them, and only their programs, or an operator, can end them.
    """

    ended: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    republished: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    foreign: tuple[OpenTransaction, ...] = ()


class Recovery:
    """Ends log transactions of one table, and remembers those that it has seen end.

    Args:
        filestore: The table.
        ambient: The clock.
    """

    def __init__(self, filestore: FileStore, ambient: Ambient) -> None:
        self._filestore = filestore
        self._ambient = ambient
        self._ended: set[str] = set()
        self._fenced: set[str] = set()
        self._swept = False
        self._log_identity: Mapping[str, str] = {}
        self._compared_ms = 0
        self._left: tuple[frozenset[str], int] = (frozenset(), 0)

    @property
    def ended(self) -> frozenset[str]:
        """Transactions that have surely ended: the next commit removes them from the table's list."""
        return frozenset(self._ended)

    def before_write(self, state: TableState, log: LogSession | None) -> Recovered:
        """Commits transactions that versions name, and aborts those of dead writers.

        It searches the log for the latter once, and again whenever a writer has left its lease. It compares the log
        with the version then, and if it has not done so for a while.

        Raises:
            Unavailable: the log does not answer, so that a write would not succeed either.
            Corrupt: ``log-replaced``, ``log-behind``.
            Conflict: ``metadata-changed``: a new log has begun since that version. Begin again.
        """
        if log is None:
            return Recovered()
        if state.log.identity != self._log_identity:
            self.search_again()  # another process has begun a new log
        listed = state.log.open
        self._ended &= {t.id for t in listed}
        waiting = [t for t in listed if t.id not in self._ended]
        dead = self._to_search_for(self._filestore.leases.abandoned())
        compares = not self._swept or self._ambient.now_ms() - self._compared_ms >= _COMPARE_AGAIN_MS
        if not compares and not waiting and not dead:
            return Recovered()
        aborted: list[str] = []
        completed: list[str] = []
        with log.lend() as opened:
            if compares:
                require_log_of(self._filestore, opened, state)
                self._log_identity, self._compared_ms = state.log.identity, self._ambient.now_ms()
            lost = self._commit(opened, waiting, late=True)
            if dead or not self._swept:
                aborted = opened.abort_unnamed(self._dead_among)
                completed = self._complete(opened)
                self._swept = True
                if dead:
                    self._remove_leases(opened, dead)
        for transaction_id in lost:
            republish(self._filestore, log.config, transaction_id)
        ended = tuple(t.id for t in waiting if t.id in self._ended)
        return Recovered(ended, tuple(aborted), lost, completed=tuple(completed))

    def foreign(self, log: LogSession | None) -> tuple[OpenTransaction, ...]:
        """Lists open transactions of other programs, for which readers of the log wait.

        Raises:
            Unavailable: the log does not answer.
        """
        if log is None:
            return ()
        table_id, where = log.config.table_id, log.config.topic or log.config.location
        with log.lend() as opened:
            found = tuple(t for t in opened.open_transactions() if not t.is_of(table_id))
        for transaction in found:
            logger.warning("%s", transaction.described(table_id, where))
        return found

    def search_again(self) -> None:
        """Makes the next `before_write` search the log again, after a clean-up that failed."""
        self._swept = False
        self._left = frozenset(), 0

    def _to_search_for(self, dead: Sequence[str]) -> Sequence[str]:
        """Returns dead commits to search for; none if it did so recently, as a broker may delay their end for hours."""
        known, at_ms = self._left
        soon = self._ambient.now_ms() - at_ms < _SEARCH_AGAIN_MS
        return () if soon and known.issuperset(dead) else dead

    def _remove_leases(self, log: LogStore, dead: Sequence[str]) -> None:
        """Fences dead commits that are not fenced yet, and removes their lease files.

        IMPORTANT: it does so only once no transaction is open: until then the files make the next writer search again.
        """
        if log.stable_offsets() == log.end_offsets():
            self._fence(set(dead) - self._fenced)  # its files may be removed as orphans once its lease is gone
            self._filestore.leases.remove(dead)
        else:
            self._left = frozenset(dead), self._ambient.now_ms()

    def commit_transactions(self, transactions: Sequence[LogTransaction], log: LogSession | None) -> None:
        """Commits the transactions of a committed snapshot."""
        if log is not None and transactions:
            with log.lend() as opened:
                self._commit(opened, transactions)

    def abort(self, transactions: Iterable[LogTransaction], log: LogSession | None) -> None:
        """Aborts transactions that no snapshot names, or ever will name."""
        unnamed = list(transactions)
        if log is not None and unnamed:
            with log.lend() as opened:
                opened.end(unnamed, commit=False)

    def abort_strays(self, commit_id: str, named: Iterable[LogTransaction], log: LogSession | None) -> None:
        """Aborts transactions of other attempts of a commit's tasks: all that the commit does not name.

        Spark may let a copy of a task continue after the commit. Its transaction is aborted here after the next write:
        the lease of its commit has ended, so it counts as dead. One that begins with the id of a named one is no
        attempt: it publishes the named one again.
        """
        if log is None:
            return
        names = tuple(t.id for t in named)

        def strays(open_ids: Sequence[str]) -> set[str]:
            own = {id_ for id_ in open_ids if parse_transaction_id(id_)[1] == commit_id}
            others = [id_ for id_ in open_ids if id_ not in own]
            again = {id_ for id_ in own if id_.startswith(tuple(f"{name}." for name in names))}
            return own - again - set(names) | self._dead_among(others)

        with log.lend() as opened:
            opened.abort_unnamed(strays)

    def _commit(self, log: LogStore, transactions: Sequence[LogTransaction], *, late: bool = False) -> tuple[str, ...]:
        """Commits transactions; returns those that the log has lost, which stay on the table's list."""
        if not transactions:
            return ()
        report = log.end(transactions, commit=True, late=late)
        self._ended.update(report.ended)
        for lost in report.lost:
            logger.warning(
                "log transaction %s of a committed snapshot was aborted by the log: readers of tablestore still see "
                "its records, other consumers do when the next writer or `recover` has published them again",
                lost,
            )
        return report.lost

    def _complete(self, log: LogStore) -> list[str]:
        """Ends hanging transactions, for which foreign readers wait. If it is not allowed to, writes still succeed."""
        try:
            completed = log.end_hanging()
        except InvalidRequest as error:
            logger.warning("readers with read_committed wait for a transaction that has ended: %s", error)
            return []
        for transaction_id in completed:
            logger.warning(
                "log transaction %s had ended, but a broker still held it open: it is ended there now", transaction_id
            )
        return completed

    def _dead_among(self, open_ids: Sequence[str]) -> set[str]:
        """Returns the open transactions that no version names, and that no version will.

        IMPORTANT: it checks the leases first, and the history second: a dead writer commits no more, a living one may.
        Where a writer without a lease may live all the same, a fence comes between, so that it commits no more either.
        The transactions were there before the fence, as `fence` requires.
        """
        commits = {id_: parse_transaction_id(id_)[1] for id_ in open_ids}
        dead = self._filestore.leases.dead_among(set(commits.values()))
        left = self._unnamed(id_ for id_, commit_id in commits.items() if commit_id in dead)
        if left and not self._filestore.leases.certain:
            self._fence({commits[id_] for id_ in left})
            left = self._unnamed(left)
        return left

    def _fence(self, commit_ids: set[str]) -> None:
        """Makes commits impossible whose writers are taken for dead, where such a writer may live."""
        if commit_ids and not self._filestore.leases.certain:
            fence(self._filestore, commit_ids)
            self._fenced |= commit_ids

    def _unnamed(self, transaction_ids: Iterable[str]) -> set[str]:
        """Reads the history, and returns those that it does not name.

        IMPORTANT: a version that a database has decided names them, too, even if nobody has published it yet.
        """
        ids = set(transaction_ids)
        return ids - {t.id for t in self._filestore.decided().log.open} if ids else ids
