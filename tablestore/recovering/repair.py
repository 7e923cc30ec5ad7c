"""The repair of an eventual log: a commit without rows that corrects the keys of strays (PROTOCOL.md section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed
from filestore.commit.proposal import LogChanges, Premises, Proposal
from filestore.commit.protocol import CommitAttempt, attempt_each
from filestore.delta.state import TableState
from filestore.model.definition import TableDefinition
from filestore.model.snapshot import Operation
from filestore.table import FileStore
from log.table.config import LogConfig
from log.table.session import LogSession
from tablestore.recovering.lease import lease
from tablestore.recovering.order import LogOrder
from tablestore.recovering.recovery import Recovery

__all__ = ["LogRepair"]


class LogRepair:
    """Repairs the log of one table; does nothing for a transactional log or without a log.

    Args:
        filestore: The table.
        log: Returns its log for a definition.
        recovery: Ends the log transactions of the repair.

    Attributes:
        strays: Transactions of dead writers that were the reason for the repair.
    """

    def __init__(
        self, filestore: FileStore, log: Callable[[TableDefinition], LogConfig | None], recovery: Recovery
    ) -> None:
        self._filestore = filestore
        self._log_of = log
        self._recovery = recovery
        self.strays: set[str] = set()

    @contextmanager
    def begin(self, base: TableState) -> Iterator[_Attempt]:
        """Begins an attempt under a lease of its own (`filestore.commit.protocol.Begin`)."""
        self.strays = set()
        config = self._log_of(base.definition)
        if config is None or not config.eventual:
            yield _Attempt(self, base, None, self._filestore, self._recovery)
            return
        with LogSession(config.behind(base.log.offsets), self._filestore.ambient) as log:
            attempt = _Attempt(self, base, log, self._filestore, self._recovery)
            with lease(self._filestore, base, attempt.commit_id, again=True):
                yield attempt


class _Attempt(CommitAttempt):
    """One attempt of a repair. After a failure its records are strays, which the next repair corrects."""

    def __init__(
        self, repair: LogRepair, base: TableState, log: LogSession | None, filestore: FileStore, recovery: Recovery
    ) -> None:
        self.base = base
        self.commit_id = filestore.ambient.new_id()
        self._repair = repair
        self._recovery = recovery
        self._log = log
        self._order = LogOrder(filestore, log, base, self.commit_id)

    def prepare(self) -> Proposal | None:
        if self._log is None:
            return None
        changes = LogChanges(ended=self._recovery.ended)
        premises = Premises(changes_no_row=True)
        empty = Proposal(Operation.WRITE, self.commit_id, self.base.version, log=changes, premises=premises)
        proposal = self._order.completed(empty, self.base)
        passed = any(at > self.base.log.repaired.get(bucket, 0) for bucket, at in proposal.log.repaired.items())
        if not proposal.log.transactions and not (self._order.strays and passed):
            return None
        self._repair.strays = self._order.strays
        return proposal

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        return self._order.completed(proposal, state)

    def finish(self, committed: Committed) -> None:
        snapshot = committed.snapshot
        ended = attempt_each(
            f"after version {snapshot.version}",
            lambda: self._recovery.commit_transactions(snapshot.transactions, self._log),
        )
        if not ended:
            self._recovery.search_again()
