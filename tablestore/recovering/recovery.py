"""What a crash left in the log, and how the next writer mends it (log/PROTOCOL.md, "Recovery").

Transactions that a snapshot names are committed; those that none names, and whose writer is dead, are aborted. The
snapshot decided both already: this only lets the log's own readers know.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from filestore.ambient import Ambient
from filestore.delta.conflict import ALREADY_REPUBLISHED
from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest
from filestore.model.log_range import LogTransaction
from filestore.table import FileStore
from log.open_transaction import OpenTransaction
from log.store import LogConfig, LogStore
from log.systems import open_log
from log.transaction_ids import parse_transaction_id
from tablestore.own_log import require_own_log
from tablestore.recovering.lease import abandoned, forget, holds_lease
from tablestore.recovering.republish import republish

__all__ = ["Recovered", "Recovery"]

logger = logging.getLogger(__name__)

_LOOK_AGAIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was mended: ids of log transactions.

    Attributes:
        ended: Of committed versions, now surely ended.
        aborted: Of dead writers, which no version names.
        republished: Lost by the log, and published again.
        mended: Of dead writers, in an eventual log whose readers have them: their keys were told again.
        completed: Ended before, but still held open by a broker that had not heard of it.
        foreign: Open transactions of other programs in the table's topic. Readers with ``read_committed`` wait for
            them, and only their programs, or an operator, can end them.
    """

    ended: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    republished: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    foreign: tuple[OpenTransaction, ...] = ()


class Recovery:
    """Ends log transactions of one table, and remembers those that it has seen end.

    Args:
        files: The table.
        log: Its log; None for a table without one, for which there is nothing to do.
        ambient: Clock and ids, for the log.
    """

    def __init__(self, files: FileStore, log: LogConfig | None, ambient: Ambient) -> None:
        self._files = files
        self._config = log
        self._ambient = ambient
        self._ended: set[str] = set()
        self._swept = False
        self._left: tuple[frozenset[str], int] = (frozenset(), 0)

    @property
    def ended(self) -> frozenset[str]:
        """Transactions that need no more care: the next commit drops them from the table's list."""
        return frozenset(self._ended)

    def before_write(self, state: TableState) -> Recovered:
        """Rolls committed transactions forward and aborts those of dead writers.

        The log is asked for the latter once, and again whenever a writer has left its lease behind.

        Raises:
            Unavailable: the log does not answer: a write would not get through either.
            Corrupt: ``log-replaced``.
        """
        if self._config is None:
            return Recovered()
        listed = state.open_transactions
        self._ended &= {t.id for t in listed}
        waiting = [t for t in listed if t.id not in self._ended]
        dead = self._worth_a_look(abandoned(self._files.location))
        if self._swept and not waiting and not dead:
            return Recovered()
        aborted: list[str] = []
        completed: list[str] = []
        with open_log(self._config, self._ambient) as log:
            if not self._swept:
                require_own_log(log, state)
            lost = self._commit(log, waiting, late=True)
            if dead or not self._swept:
                aborted = log.abort_unnamed(self._is_dead)
                completed = self._complete(log)
                self._swept = True
                if dead:
                    self._forget(log, dead)
        for transaction_id in lost:
            self._publish_again(self._config, transaction_id)
        ended = tuple(t.id for t in waiting if t.id in self._ended)
        return Recovered(ended, tuple(aborted), lost, completed=tuple(completed))

    def foreign(self) -> tuple[OpenTransaction, ...]:
        """Open transactions of other programs, for which readers of the log wait.

        Raises:
            Unavailable: the log does not answer.
        """
        if self._config is None:
            return ()
        table_id, where = self._config.table_id, self._config.topic or self._config.location
        with open_log(self._config, self._ambient) as log:
            found = tuple(t for t in log.open_transactions() if not t.is_of(table_id))
        for transaction in found:
            logger.warning("%s", transaction.described(table_id, where))
        return found

    def look_again(self) -> None:
        """Something could not be tidied up: the next `before_write` asks the log again."""
        self._swept = False
        self._left = frozenset(), 0

    def _worth_a_look(self, dead: Sequence[str]) -> Sequence[str]:
        """None of them, if they are known and the log was asked not long ago: a broker may hold back for hours."""
        known, at_ms = self._left
        soon = self._ambient.now_ms() - at_ms < _LOOK_AGAIN_MS
        return () if soon and known.issuperset(dead) else dead

    def _forget(self, log: LogStore, dead: Sequence[str]) -> None:
        """IMPORTANT: only once nothing is held back: else their files remind the next writer to look again."""
        if log.stable_offsets() == log.end_offsets():
            forget(self._files.location, dead)
        else:
            self._left = frozenset(dead), self._ambient.now_ms()

    def commit(self, transactions: Sequence[LogTransaction]) -> None:
        """Ends the transactions of a snapshot that stands."""
        if self._config is not None and transactions:
            with open_log(self._config, self._ambient) as log:
                self._commit(log, transactions)

    def abort(self, transactions: Iterable[LogTransaction]) -> None:
        """Ends transactions that no snapshot names or ever will."""
        given_up = list(transactions)
        if self._config is not None and given_up:
            with open_log(self._config, self._ambient) as log:
                log.end(given_up, commit=False)

    def abort_strays(self, commit_id: str, named: Iterable[LogTransaction]) -> None:
        """Aborts what other attempts of a commit's tasks have left: all that the commit does not name.

        Spark may let a copy of a task run on after the commit. What that one leaves is aborted here after the next
        write: the lease of its commit has ended, so it counts as dead.
        """
        if self._config is None:
            return
        names = {t.id for t in named}
        with open_log(self._config, self._ambient) as log:
            log.abort_unnamed(
                lambda id_: id_ not in names if parse_transaction_id(id_)[1] == commit_id else self._is_dead(id_)
            )

    def _commit(self, log: LogStore, transactions: Sequence[LogTransaction], *, late: bool = False) -> tuple[str, ...]:
        """Ends them; gives those that the log has lost, which stay on the table's list."""
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
        """Foreign readers wait until somebody may do it; to write goes on without."""
        try:
            completed = log.end_hanging()
        except InvalidRequest as error:
            logger.warning("readers with read_committed wait for a transaction that has ended: %s", error)
            return []
        for transaction_id in completed:
            logger.warning("log transaction %s had ended, and a broker had not heard of it: now it has", transaction_id)
        return completed

    def _publish_again(self, log: LogConfig, transaction_id: str) -> None:
        try:
            republish(self._files, log, transaction_id)
        except Conflict as error:
            if error.code != ALREADY_REPUBLISHED:
                raise

    def _is_dead(self, transaction_id: str) -> bool:
        """IMPORTANT: the lease first, the history second. A dead writer commits nothing more, a living one may."""
        _, commit_id, _ = parse_transaction_id(transaction_id)
        if holds_lease(self._files.location, commit_id):
            return False
        return all(t.id != transaction_id for t in self._files.state().open_transactions)
