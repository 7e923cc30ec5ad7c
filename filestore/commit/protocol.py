"""Commits every operation: prepare → commit → rebase, or begin again → finish or discard (FORMAT.md section 6).

An operation begins a `CommitAttempt` on the newest version. This module calls its methods in this order:

1. `prepare` writes files and log records that no reader sees yet, and returns a `Proposal`.
2. The loop in `filestore.commit.loop` tries to write the proposal as the next version. Whenever another commit comes
   first, `rebase` adapts the proposal to it, or raises a `Conflict`.
3. `finish` follows a commit that holds. `discard` follows a failure after which surely nothing was committed; it
   removes everything that the attempt has written.

A conflict that says so (`Conflict.again`) begins the operation again on the newest version. Of an unknown outcome
(`CommitUnknown`) nothing is removed, because a version may name it. Once the commit holds, errors are logged, even if
the end of the attempt's context raises them. No other module decides any of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Protocol

from filestore.ambient import Ambient
from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed, Rebaser
from filestore.commit.proposal import Proposal
from filestore.delta.state import TableState
from filestore.errors import CommitUnknown, Conflict, TableStoreError, Unavailable

__all__ = ["Begin", "CommitAttempt", "Observer", "Versions", "attempt_each", "commit_operation", "metadata_only"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 2.0


class CommitAttempt:
    """One attempt to commit an operation: the work on one version, and what becomes of it.

    An attempt that writes nothing before its commit needs only `prepare`.

    Attributes:
        base: The version on which the proposal is prepared; it may be later than the one on which the attempt began.
    """

    base: TableState

    def prepare(self) -> Proposal | None:
        """Does the work of the operation and returns what to commit; None if there is nothing to do.

        `discard` follows an error, so an attempt remembers what it writes as it writes it.
        """
        raise NotImplementedError

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        """Adapts the proposal to the version `state`; called again for each further version that others commit.

        Raises:
            Conflict: it cannot be adapted.
        """
        return proposal

    def finish(self, committed: Committed) -> None:
        """Removes what the commit does not name, and ends log transactions. Errors are logged: the commit holds."""

    def discard(self, *, again: bool) -> None:
        """Removes everything that the attempt has written: no version names it, or ever will.

        Args:
            again: The operation begins again, and may keep what the next attempt can use. If no attempt begins any
                more, because a store does not answer or the process is interrupted, this is called once more, with
                False.
        """


Begin = Callable[[TableState], AbstractContextManager[CommitAttempt]]
"""Begins an attempt on a version; the context holds what the attempt needs until its end, such as a lease."""


class Versions(Protocol):
    """The part of a table that this protocol needs (`filestore.table.FileStore`)."""

    @property
    def ambient(self) -> Ambient:
        """Clock and chance, for the pauses between attempts."""

    def state(self) -> TableState:
        """Returns the newest version."""

    def preparing(self, base: TableState) -> AbstractContextManager[None]:
        """Turns the loss of files of an expired version into the conflict ``base-expired``."""

    def commit_version(self, base: TableState, proposal: Proposal, rebase: Rebaser) -> Committed:
        """Writes the proposal as the next version (`filestore.commit.loop`)."""


class Observer:
    """An observer is notified of the progress and the outcome of an operation. This one does nothing."""

    def began_again(self, conflict: Conflict) -> None:
        """Is called when the operation begins again because of a conflict."""

    def lost_races(self, races: int) -> None:
        """Is called when the operation was committed; others took that many versions first."""

    def failed(self) -> None:
        """Is called when the operation has failed: nothing was committed, and its last attempt and lease have ended."""


def commit_operation(
    versions: Versions, begin: Begin, base: TableState | None = None, observer: Observer | None = None
) -> Committed | None:
    """Runs an operation until it is committed, has nothing to do, or fails.

    Args:
        versions: The table.
        begin: Begins an attempt.
        base: The version of the first attempt, for callers that have just read it; the newest one if None.
        observer: Is notified of what happens.

    Returns:
        The commit, perhaps one that another process made with the same app version; None if there was nothing to do.

    Raises:
        Conflict: the operation cannot begin again, or has done so ``commit.max-retries`` times. Nothing was committed.
        NotFound: the table was dropped, and perhaps made again, meanwhile.
        Unavailable: a store did not answer. Nothing was committed.
        CommitUnknown: a store failed in the middle of the commit, so that the outcome is unknown.
    """
    observer = observer or Observer()
    base = base or versions.state()
    begins_left = base.definition.options["commit.max-retries"]
    attempts = _Attempts(versions, begin)
    try:
        for number in range(begins_left + 1):
            last = number == begins_left
            try:
                committed = attempts.run(base, last=last)
            except Conflict as error:
                if not _begins_again(error, last=last):
                    error.again = False  # an operation around this one must not multiply the attempts
                    raise
                observer.began_again(error)
            else:
                if committed is not None:
                    observer.lost_races(committed.races)
                return committed
            _pause(versions.ambient, number)
            base = versions.state()
    except CommitUnknown:
        raise
    except TableStoreError:
        attempts.give_up()
        observer.failed()
        raise
    except BaseException:
        attempts.give_up()
        raise
    raise AssertionError("the last attempt returns or raises")


class _Attempts:
    """The attempts of one operation, one after the other."""

    def __init__(self, versions: Versions, begin: Begin) -> None:
        self._versions = versions
        self._begin = begin
        self._left: CommitAttempt | None = None

    def run(self, base: TableState, *, last: bool) -> Committed | None:
        """Runs one attempt. Its context ends before an error is raised, or before the commit is returned."""
        with ExitStack() as held:
            attempt = self._begun(held, base)
            proposal = self._prepared(attempt, last=last)
            if proposal is None:
                return None
            try:
                committed = self._versions.commit_version(attempt.base, proposal, attempt.rebase)
            except CommitUnknown:
                raise  # a version may name the files and the log records: they stay
            except TableStoreError as error:
                self._discard(attempt, error, last=last)
                raise
            # An interrupt from outside, such as Ctrl-C, leaves the outcome unknown, too: `discard` is for our errors.
            ours = committed.snapshot.commit_id == proposal.commit_id
            attempt_each(
                f"after version {committed.snapshot.version}",
                # if it is not ours, another attempt has committed the same app version
                lambda: attempt.finish(committed) if ours else attempt.discard(again=False),
                held.close,
            )
            return committed

    def give_up(self) -> None:
        """Removes what the last attempt has kept for one that did not begin."""
        left, self._left = self._left, None
        if left is not None:
            attempt_each("of a failed attempt", lambda: left.discard(again=False))

    def _begun(self, held: ExitStack, base: TableState) -> CommitAttempt:
        try:
            attempt = held.enter_context(self._begin(base))
        except CommitUnknown as error:  # of a commit before this one, such as that of a republished transaction
            raise _unchanged(error) from error
        self._left = None
        return attempt

    def _prepared(self, attempt: CommitAttempt, *, last: bool) -> Proposal | None:
        """Prepares an attempt. Nothing can be committed yet, so every failure discards it, even an interrupt."""
        try:
            with self._versions.preparing(attempt.base):
                return attempt.prepare()
        except CommitUnknown as error:  # of a commit on which this operation builds, such as a fold
            self._discard(attempt, error, last=last)
            raise _unchanged(error) from error
        except BaseException as error:
            self._discard(attempt, error, last=last)
            raise

    def _discard(self, attempt: CommitAttempt, error: BaseException, *, last: bool) -> None:
        again = _begins_again(error, last=last)
        attempt_each("of a failed attempt", lambda: attempt.discard(again=again))
        self._left = attempt if again else None


def _unchanged(error: CommitUnknown) -> Unavailable:
    return Unavailable(f"{error.message}; the operation that needed this commit changed nothing and can be repeated")


def _begins_again(error: BaseException, *, last: bool) -> bool:
    return isinstance(error, Conflict) and error.again and not last


def _pause(ambient: Ambient, number: int) -> None:
    ambient.sleep(ambient.chance() * min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * (1 << min(number, 10))))


def attempt_each(when: str, *steps: Callable[[], None]) -> bool:
    """Runs every step of a clean-up, even if steps before it have failed.

    A step's error is logged and not raised, because it must not hide the outcome of the operation.

    Returns:
        Whether all steps have succeeded.
    """
    succeeded = True
    for step in steps:
        try:
            step()
        except TableStoreError as error:
            succeeded = False
            logger.warning("the clean-up %s is left to the next writer or to `orphans`: %s", when, error)
    return succeeded


@dataclass(frozen=True)
class _MetadataOnly(CommitAttempt):
    """An attempt that writes no file and no log record before its commit."""

    base: TableState
    propose: Callable[[TableState], Proposal | None]

    def prepare(self) -> Proposal | None:
        return self.propose(self.base)


def metadata_only(propose: Callable[[TableState], Proposal | None]) -> Begin:
    """Returns the operation of a proposal that depends on metadata only; it writes nothing before its commit."""
    return lambda base: nullcontext(_MetadataOnly(base, propose))
