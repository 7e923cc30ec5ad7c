"""The one commit loop: it writes the next version unless it exists, or else rebases (FORMAT.md section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import chain

from filestore import layout
from filestore.ambient import Ambient
from filestore.commit.conflict import Clear, Done, Rebase, judge
from filestore.commit.held import held, needs_its_catalog
from filestore.commit.new_files import check_new_files, explained, fenced_files
from filestore.commit.plan import plan_actions
from filestore.commit.proposal import Proposal
from filestore.delta.entry import encode
from filestore.delta.log import Commit, DeltaLog
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, CommitUnknown, Conflict, NotFound, TableStoreError, Unavailable
from filestore.model.snapshot import Operation, Snapshot
from filestore.storage.refusals import NO_ANSWER

__all__ = ["Committed", "Rebaser", "base_expired", "commit_version", "log_begun"]

Rebaser = Callable[[Proposal, TableState, Rebase], Proposal]
"""Adapts a proposal to the given state, in which some slots changed. It may be called several times."""

_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.005, 5.0

_CARRY_OVER = frozenset({Operation.COMPACT, Operation.ALTER})
"""Operations whose rebase carries over what others committed, so that it has more to do the longer they wait.

They try again at once: with pauses they would lose every race beside a writer that never pauses.
"""


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a proposal: its snapshot, and the state of its version or a later one.

    `fresh` is False if it had been committed before, by an attempt whose reply was lost or by another process.
    `races` is how many versions others took first.
    """

    snapshot: Snapshot
    state: TableState
    fresh: bool
    races: int = 0


def commit_version(log: DeltaLog, base: TableState, proposal: Proposal, rebase: Rebaser, ambient: Ambient) -> Committed:
    """Commits a proposal that was prepared on `base`.

    Raises:
        Conflict: it cannot be rebased, or lost more races than ``commit.max-retries``. Nothing was committed.
        NotFound: the table was dropped, and perhaps created again, since `base` was read.
        Unavailable: storage failed; nothing was committed.
        Unsupported: ``catalog-commits``: the catalog's database holds the table's commits, and this process has none.
        CommitUnknown: storage failed and the outcome is unknown: look for ``proposal.commit_id`` in the history.
    """
    if base.catalog_commits and not held(log.storage):
        raise needs_its_catalog(log.location)
    state, later = base, _later_in_same_table(log, base)
    fenced: dict[str, int] = {}
    for attempt in range(base.definition.options["commit.max-retries"] + 1):
        started = ambient.now_ms()
        between = list(later)
        newest = reduce(lambda known, entry: known.next(entry.version, entry.actions), between, state)
        fenced |= fenced_files(between)
        match judge(proposal, newest, between):
            case Done(version):
                return _already(log, newest, version, proposal, between)
            case Rebase() as changed:
                check_new_files(proposal, fenced)
                with explained(log, newest.version):
                    proposal = rebase(proposal, newest, changed)
            case Clear():
                pass
        check_new_files(proposal, fenced)
        state = newest
        written = _try_version(log, state, proposal, ambient)
        if written is not None:
            _require_predecessor(log, written, proposal)
            return Committed(written.snapshot(), state.next(written.version, written.actions), True, attempt)
        if proposal.operation not in _CARRY_OVER:
            ambient.sleep(ambient.chance() * _longest_pause(attempt, (ambient.now_ms() - started) / 1000))
        later = log.read_entries_after(state.version)
    raise Conflict(
        f"commit {proposal.commit_id} lost the race for a version {attempt + 1} times: retry, or raise "
        "commit.max-retries",
        code="too-many-races",
    )


def _longest_pause(attempt: int, attempt_s: float) -> float:
    """Returns how many seconds to wait at most before the next attempt.

    It is a multiple of the time of an attempt: with shorter pauses competing writers would only disturb each other.
    """
    first = min(max(_FIRST_BACKOFF_S, attempt_s), _MAX_BACKOFF_S)
    return min(_MAX_BACKOFF_S, first * (1 << min(attempt, 10)))


def _later_in_same_table(log: DeltaLog, base: TableState) -> Iterable[Commit]:
    """Returns the entries after the base. Refuses a base of another table, into whose log nothing must be written.

    Both are read side by side, so the base's entry may be read first. If the base expires between the two reads, its
    successor may be missing although it was written once: `_require_predecessor` takes back what is written then.
    """
    entry, successor = log.read_next(base.version)
    _require_same_table(log, base, entry)
    return () if successor is None else chain([successor], log.read_entries_after(successor.version))


def _require_same_table(log: DeltaLog, base: TableState, entry: Commit | None) -> None:
    if entry is None and log.is_table(base.table_id):
        raise base_expired(log, base.version)
    if entry is None or entry.timestamp_ms != base.timestamp_ms:
        raise NotFound(
            f"{log.name} is not the table that was read: it was dropped or made again; open it again",
            code="table-replaced",
        )


def base_expired(log: DeltaLog, version: int) -> Conflict:
    """Returns the error of a writer that took so long that the version on which it began has expired."""
    return Conflict(
        f"version {version} of {log.name} expired while a commit was prepared on it: nothing was committed; retry, "
        "and raise snapshot.time-retained if writes take that long",
        code="base-expired",
        again=True,
    )


def log_begun(version: int, base: int) -> Conflict:
    """Returns the error of a writer under which a new log has begun."""
    return Conflict(
        f"a new log began with version {version} while a commit was prepared on version {base}: retry",
        code="metadata-changed",
        again=True,
    )


def _require_predecessor(log: DeltaLog, written: Commit, proposal: Proposal) -> None:
    """Takes back an entry that was written where entries have expired, since no reader would ever read it.

    A writer that paused for long finds its number free again after an expiry. Entries are removed oldest first: if the
    number was free for that reason, the entry before it is gone, too. A number that was claimed is never free again.
    """
    if held(log.storage):
        return
    before = layout.join(log.location, layout.log_entry_path(written.version - 1))
    try:
        if log.storage.exists(before):
            return
    except Unavailable as error:
        raise CommitUnknown(
            f"storage failed after version {written.version} of {log.name} was written ({error.message}): look for "
            f"commit {proposal.commit_id} in the history before retrying"
        ) from error
    log.storage.delete(layout.join(log.location, layout.log_entry_path(written.version)))
    raise base_expired(log, written.version - 1)


def _try_version(log: DeltaLog, state: TableState, proposal: Proposal, ambient: Ambient) -> Commit | None:
    """Writes the next version; returns None if another writer took the number."""
    entry = Commit(state.version + 1, tuple(plan_actions(proposal, state, ambient.now_ms())))
    path = layout.join(log.location, layout.log_entry_path(entry.version))
    try:
        log.storage.write_new(path, encode(entry.actions))
    except TableStoreError as error:
        return _after_failure(log, entry, proposal, error)
    return entry


def _after_failure(log: DeltaLog, entry: Commit, proposal: Proposal, error: TableStoreError) -> Commit | None:
    """Finds out whether the entry was written although the store reported a failure.

    `AlreadyExists` can be the answer to our own request, if the store or a network file system sent it twice. An entry
    whose request had no answer can be written after this look, so its files have to stay. (Where a database holds the
    commits, an answer that is missing is that of a staged entry.)
    """
    try:
        there = log.read_entry(entry.version)
    except Unavailable as second:
        raise CommitUnknown(
            f"storage failed while version {entry.version} of {log.name} was written ({error.message}), and "
            f"cannot be read either: look for commit {proposal.commit_id} in the history before retrying"
        ) from second
    if there is None and isinstance(error, AlreadyExists):
        if held(log.storage):
            raise base_expired(log, entry.version - 1) from error  # its number is never free again
        return None  # an expiry has removed the entry meanwhile
    if there is None and error.code == NO_ANSWER and not held(log.storage):
        raise CommitUnknown(
            f"storage did not answer while version {entry.version} of {log.name} was written ({error.message}): it "
            f"may still arrive; look for commit {proposal.commit_id} in the history before retrying"
        ) from error
    if there is None:
        raise error
    return there if there.commit_id == proposal.commit_id else None


def _already(
    log: DeltaLog, state: TableState, version: int | None, proposal: Proposal, between: Iterable[Commit]
) -> Committed:
    # It is not read again: an error would say that nothing was committed, and the files of our own commit would go.
    found = next((entry for entry in between if entry.version == version), None) or _find(log, state, proposal)
    if found is None:
        raise NotFound(f"commit {proposal.commit_id} is done, but its log entry is gone", code="no-such-version")
    return Committed(found.snapshot(), state, fresh=False)


def _find(log: DeltaLog, state: TableState, proposal: Proposal) -> Commit | None:
    """Searches backwards for the first commit with the proposal's app version or a later one."""
    assert proposal.app is not None
    found: Commit | None = None
    oldest: Commit | None = None
    for version in range(state.version, -1, -1):
        entry = log.read_entry(version)
        if entry is None:
            return found or oldest  # the commit's own entry has expired: it was before the oldest one that is left
        oldest = entry
        own = [a["txn"]["version"] for a in entry.actions if a.get("txn", {}).get("appId") == proposal.app.app_id]
        if own and own[0] >= proposal.app.version:
            found = entry
        if own and own[0] <= proposal.app.version:
            return found
    return found
