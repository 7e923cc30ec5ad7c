"""The one commit loop: write version + 1 if absent, else look at what came in between (FORMAT.md section 6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from filestore import layout
from filestore.ambient import Ambient
from filestore.delta.actions import (
    LOG_DOMAIN,
    LOG_OFFSET_APP,
    PARTITIONS_PARAMETER,
    POSITION_APP,
    RUN_DOMAIN,
    TOMBSTONES_DOMAIN,
    Action,
    add_action,
    cdc_action,
    domain_action,
    encode,
    metadata_action,
    no_domain_action,
    protocol_action,
    remove_action,
    run_action,
    tombstones_action,
    txn_action,
)
from filestore.delta.conflict import ALREADY_REPUBLISHED, BASE_EXPIRED, RUNS_CAME, Clear, Done, Proposal, Rebase, judge
from filestore.delta.log import Commit, DeltaLog
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, CommitUnknown, Conflict, NotFound, TableStoreError, Unavailable
from filestore.model.log_range import LogTransaction, advance
from filestore.model.snapshot import Snapshot

__all__ = ["Committed", "Rebaser", "base_expired", "commit", "commit_info", "plan_actions", "touches_nothing"]

Rebaser = Callable[[Proposal, TableState, Rebase], Proposal]
"""Works a proposal out again for the slots that changed, on the state given. May be called several times."""

_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.005, 5.0


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a proposal ended: the snapshot and the state after it (of its version or a later one).

    `fresh` is False when it had been committed before, by an attempt whose reply was lost or by another process.
    `races` is how many versions others took first.
    """

    snapshot: Snapshot
    state: TableState
    fresh: bool
    races: int = 0


def commit(log: DeltaLog, base: TableState, proposal: Proposal, rebase: Rebaser, ambient: Ambient) -> Committed:
    """Commits a proposal that was prepared on `base`.

    Raises:
        Conflict: it cannot be rebased, or lost more races than ``commit.max-retries``. Nothing was committed.
        NotFound: the table was dropped, and perhaps made again, since `base` was read.
        Unavailable: storage failed; nothing was committed.
        CommitUnknown: storage failed so that nobody can tell: look for ``proposal.commit_id`` in the history.
    """
    _require_same_table(log, base)
    state = base
    for attempt in range(base.definition.options["commit.max-retries"] + 1):
        started = ambient.now_ms()
        newest, between = _advance(log, state)
        match judge(proposal, newest, between):
            case Done(version):
                return _already(log, newest, version, proposal)
            case Rebase() as changed:
                proposal = rebase(proposal, newest, changed)
            case Clear():
                pass
        state = newest
        written = _try_version(log, state, proposal, ambient)
        if written is not None:
            _require_predecessor(log, written, proposal)
            return Committed(written.snapshot(), state.next(written.version, written.actions), True, attempt)
        ambient.sleep(ambient.chance() * _longest_pause(attempt, (ambient.now_ms() - started) / 1000))
    raise Conflict(
        f"commit {proposal.commit_id} lost the race for a version {attempt + 1} times: retry, or raise "
        "commit.max-retries",
        code="too-many-races",
    )


def touches_nothing(proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
    """The rebaser of a proposal without files, which no change of files concerns."""
    return proposal


def _longest_pause(attempt: int, attempt_s: float) -> float:
    """Seconds to wait at most before the next attempt: some multiple of what one takes, or writers only disturb."""
    first = min(max(_FIRST_BACKOFF_S, attempt_s), _MAX_BACKOFF_S)
    return min(_MAX_BACKOFF_S, first * (1 << min(attempt, 10)))


def _require_same_table(log: DeltaLog, base: TableState) -> None:
    """A writer that holds an old state must not put its next number into the log of another table."""
    entry = log.commit(base.version)
    if entry is None and log.is_table(base.table_id):
        raise base_expired(log, base.version)
    if entry is None or entry.timestamp_ms != base.timestamp_ms:
        raise NotFound(
            f"{log.location} is not the table that was read: it was dropped or made again; open it anew",
            code="table-replaced",
        )


def base_expired(log: DeltaLog, version: int) -> Conflict:
    """The error of a writer that took so long that the version it began with is gone."""
    return Conflict(
        f"version {version} of {log.location} expired while a commit was prepared on it: nothing was committed; retry, "
        "and raise snapshot.time-retained if writes take that long",
        code=BASE_EXPIRED,
    )


def _require_predecessor(log: DeltaLog, written: Commit, proposal: Proposal) -> None:
    """A writer that slept while entries expired finds its number free again, where no reader looks any more.

    Entries go oldest first: if the number was free for that reason, the one before it is gone, too.
    """
    before = layout.join(log.location, layout.log_entry_path(written.version - 1))
    try:
        if log.storage.exists(before):
            return
    except Unavailable as error:
        raise CommitUnknown(
            f"storage failed after version {written.version} of {log.location} was written ({error.message}): look for "
            f"commit {proposal.commit_id} in the history before retrying"
        ) from error
    log.storage.delete(layout.join(log.location, layout.log_entry_path(written.version)))
    raise base_expired(log, written.version - 1)


def _advance(log: DeltaLog, state: TableState) -> tuple[TableState, list[Commit]]:
    between = list(log.commits_after(state.version))
    for entry in between:
        state = state.next(entry.version, entry.actions)
    return state, between


def _try_version(log: DeltaLog, state: TableState, proposal: Proposal, ambient: Ambient) -> Commit | None:
    """Writes the next version; None if another writer took the number."""
    entry = Commit(state.version + 1, tuple(plan_actions(proposal, state, ambient.now_ms())))
    path = layout.join(log.location, layout.log_entry_path(entry.version))
    try:
        log.storage.write_new(path, encode(entry.actions))
    except AlreadyExists:
        return None  # by another writer, or by us if a retrying store lost its own reply: `judge` tells
    except TableStoreError as error:
        return _after_failure(log, entry, proposal, error)
    return entry


def _after_failure(log: DeltaLog, entry: Commit, proposal: Proposal, error: TableStoreError) -> Commit | None:
    """The store failed: the entry may be there all the same."""
    try:
        there = log.commit(entry.version)
    except Unavailable as second:
        raise CommitUnknown(
            f"storage failed while version {entry.version} of {log.location} was written ({error.message}), and "
            f"cannot be read either: look for commit {proposal.commit_id} in the history before retrying"
        ) from second
    if there is None:
        raise error
    return there if there.commit_id == proposal.commit_id else None


def _already(log: DeltaLog, state: TableState, version: int | None, proposal: Proposal) -> Committed:
    found = log.commit(version) if version is not None else _find(log, state, proposal)
    if found is None:
        raise NotFound(f"commit {proposal.commit_id} is done, but its log entry is gone", code="no-such-version")
    return Committed(found.snapshot(), state, fresh=False)


def _find(log: DeltaLog, state: TableState, proposal: Proposal) -> Commit | None:
    """The first commit that brought the app's version to the proposal's or beyond, looked for backwards."""
    assert proposal.app is not None
    found: Commit | None = None
    oldest: Commit | None = None
    for version in range(state.version, -1, -1):
        entry = log.commit(version)
        if entry is None:
            return found or oldest  # its own entry has expired: by the oldest one that is left it was done
        oldest = entry
        own = [a["txn"]["version"] for a in entry.actions if a.get("txn", {}).get("appId") == proposal.app.app_id]
        if own and own[0] >= proposal.app.version:
            found = entry
        if own and own[0] <= proposal.app.version:
            return found
    return found


def plan_actions(proposal: Proposal, state: TableState, now_ms: int) -> list[Action]:
    """The actions of version ``state.version + 1``. Pure.

    Raises:
        Conflict: a file or run that the proposal changes is not in the state: lose nothing, start again.
    """
    timestamp = max(now_ms, state.timestamp_ms + 1)  # strictly growing, whatever the writers' clocks say
    removes = (*proposal.removes, *_replaced(proposal, state))
    missing = [p for p in (*removes, *(f.path for f in proposal.vectors)) if p not in state.files]
    if missing:
        raise Conflict(
            f"file {missing[0]} left the table while this {proposal.operation} was prepared: read again and retry",
            code="file-gone",
        )
    offsets = advance(state.log_offsets, (*proposal.transactions, *_republished(proposal)))
    data_change = proposal.operation.changes_data
    info = commit_info(_counted(proposal, state, removes), state.version, timestamp)
    actions = [info, *_definition_actions(proposal, state)]
    if proposal.app is not None:
        actions.append(txn_action(proposal.app.app_id, proposal.app.version, timestamp))
        actions += [txn_action(f"{POSITION_APP}{name}", at, timestamp) for name, at in proposal.app.positions]
    actions += [txn_action(f"{LOG_OFFSET_APP}{b}", end, timestamp) for b, end in sorted(offsets.items())]
    actions += _log_actions(proposal, state)
    actions += _run_actions(proposal, state)
    actions += _tombstone_actions(proposal, state)
    for domain, configuration in sorted(proposal.domains.items()):
        actions.append(_ended(domain, state) if configuration is None else domain_action(domain, configuration))
    for file in proposal.vectors:
        actions.append(remove_action(state.files[file.path], timestamp, data_change=data_change))
        actions.append(add_action(file, data_change=data_change))
    actions += [remove_action(state.files[p], timestamp, data_change=data_change) for p in removes]
    actions += [add_action(f, data_change=data_change) for f in proposal.adds]
    actions += [cdc_action(file) for file in proposal.changes]
    return actions


def _replaced(proposal: Proposal, state: TableState) -> tuple[str, ...]:
    """What is in the partitions that the proposal replaces."""
    if not proposal.replaces:
        return ()
    return tuple(path for path, file in state.files.items() if file.slot.partition in proposal.replaces)


def _counted(proposal: Proposal, state: TableState, removes: Sequence[str]) -> Proposal:
    """With the counts of what is replaced, which nobody knows before the commit."""
    if not proposal.replaces:
        return proposal
    rows = sum(state.files[path].live_rows for path in removes)
    counts = {"files_removed": len(removes), "rows_removed": rows}
    return replace(proposal, metrics={**proposal.metrics, **counts})


def _parameters(proposal: Proposal) -> dict[str, str]:
    """Which partitions an overwrite or drop replaces, if it is not the whole table."""
    if proposal.replaces.whole_table or not proposal.operation.replaces_partitions:
        return {}
    return {PARTITIONS_PARAMETER: json.dumps(proposal.replaces.to_json(), ensure_ascii=False, separators=(",", ":"))}


def commit_info(proposal: Proposal, read_version: int | None, timestamp: int) -> Action:
    """The first action of every commit (Delta protocol, "In-Commit Timestamps": it must come first)."""
    return {
        "commitInfo": {
            "inCommitTimestamp": timestamp,
            "timestamp": timestamp,
            "operation": str(proposal.operation),
            "operationParameters": _parameters(proposal),
            "operationMetrics": {name: str(value) for name, value in proposal.metrics.items()},
            "readVersion": read_version,
            "isBlindAppend": False,
            "engineInfo": "tablestore",
            "txnId": proposal.commit_id,
            "tablestore": {
                "commitId": proposal.commit_id,
                "transactions": [t.to_json() for t in proposal.transactions],
                **({"republished": _told_again(proposal)} if proposal.republished else {}),
                **({"notes": list(proposal.notes)} if proposal.notes else {}),
            },
        }
    }


def _definition_actions(proposal: Proposal, state: TableState) -> list[Action]:
    """What the table is from now on; the protocol only when it has to know more."""
    definition = proposal.definition
    if definition is None:
        return []
    metadata = metadata_action(definition, state.table_id, state.created_ms)
    return [
        *([protocol_action(definition.features)] if definition.features > state.definition.features else []),
        metadata,
    ]


def _log_actions(proposal: Proposal, state: TableState) -> list[Action]:
    """The log's domain, when it changes: its identity, and the transactions that may still have to be ended."""
    known = {t.id for t in state.open_transactions}
    if gone := [lost for lost in proposal.republished if lost not in known]:
        raise Conflict(f"log transaction {gone[0]} was published again by another process", code=ALREADY_REPUBLISHED)
    done = proposal.ended | proposal.republished.keys()
    still_open = [t for t in state.open_transactions if t.id not in done]
    opened = [*still_open, *_republished(proposal), *proposal.transactions]
    repaired = state.log_repaired
    repaired |= {b: max(offset, repaired.get(b, 0)) for b, offset in proposal.log_repaired.items()}
    if proposal.in_log_order:  # there is nothing to end: they are kept to be known in the tail
        opened = [t for t in opened if any(part.end > repaired.get(part.bucket, 0) for part in t.ranges)]
    identity = dict(proposal.log_identity) or state.log_identity
    if (opened, identity, repaired) == (list(state.open_transactions), state.log_identity, state.log_repaired):
        return []
    domain: dict[str, Any] = {"identity": identity, "open": [t.to_json() for t in opened]}
    return [domain_action(LOG_DOMAIN, domain | ({"repaired": repaired} if repaired else {}))]


def _republished(proposal: Proposal) -> list[LogTransaction]:
    return [found for found in proposal.republished.values() if found is not None]


def _told_again(proposal: Proposal) -> dict[str, Any]:
    return {lost: None if found is None else found.to_json() for lost, found in proposal.republished.items()}


def _ended(domain: str, state: TableState) -> Action:
    return no_domain_action(domain, state.domains.get(domain, "{}"))


def _run_actions(proposal: Proposal, state: TableState) -> list[Action]:
    """Runs that are pending no longer, and those that are from now on."""
    if proposal.settled and state.pending():
        raise Conflict(
            f"rows were written that wait to be merged while this {proposal.operation} was prepared: fold and retry",
            code=RUNS_CAME,
        )
    pending = {run.id: run for runs in state.pending().values() for run in runs}
    replaced = (run for run in pending.values() if run.slot.partition in proposal.replaces)
    done = [*proposal.folded, *replaced]
    if gone := [run.path for run in done if run.id not in pending]:
        raise Conflict(
            f"run {gone[0]} was folded or removed while this {proposal.operation} was prepared: read again and retry",
            code="run-gone",
        )
    folded = [_ended(RUN_DOMAIN + run.id, state) for run in done]
    return folded + [run_action(replace(run, version=state.version + 1)) for run in proposal.runs]


def _tombstone_actions(proposal: Proposal, state: TableState) -> list[Action]:
    """Deleted keys that are forgotten, and those that are remembered from now on."""
    known = {run.id: run for runs in state.tombstones().values() for run in runs}
    if gone := [run.path for run in proposal.forgotten if run.id not in known]:
        raise Conflict(
            f"tombstones {gone[0]} were merged or forgotten while this {proposal.operation} was prepared: read again "
            "and retry",
            code="run-gone",
        )
    replaced = (run for run in known.values() if run.slot.partition in proposal.replaces)
    forgotten = [_ended(TOMBSTONES_DOMAIN + run.id, state) for run in (*proposal.forgotten, *replaced)]
    return forgotten + [tombstones_action(run) for run in proposal.tombstones]
