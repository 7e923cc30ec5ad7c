"""Conflict rules: what a commit that lost the race for its version has to do (FORMAT.md section 6). Pure.

came in between            upsert or delete            append       overwrite,      compaction
                                                                    drop partition
------------------------   -------------------------   ----------   -------------   -------------------------
another slot               go on                       go on        go on           go on
the same slot              look its keys up again      go on        replaces it     map the new dead rows, or
                                                                                    fail if an input is gone
schema or protocol         fail                        fail         fail            fail
the same commit id         done                        done         done            done
the same app and batch     done                        done         done            done

Overwrites and drops take from whole partitions, those that `Proposal.replaces` names. Where a changelog tells what they
take, it is told again of slots that changed. An expiry of partitions that were
not updated for long touches their slots too: if rows changed there in between, it has to be decided again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from filestore.delta.actions import RUN_DOMAIN, TOMBSTONES_DOMAIN, pending_run, slot_of, tombstones
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.model.definition import TableDefinition
from filestore.model.files import ChangeFile, DataFile, PendingRun, Slot, Tombstones
from filestore.model.log_range import LogTransaction
from filestore.model.partition_set import NO_PARTITIONS, PartitionSet
from filestore.model.snapshot import Operation

__all__ = [
    "ALREADY_REPUBLISHED",
    "BASE_EXPIRED",
    "DOMAIN_CHANGED",
    "METADATA_CHANGED",
    "RUNS_CAME",
    "AppVersion",
    "Clear",
    "Done",
    "Proposal",
    "Rebase",
    "judge",
]

ALREADY_REPUBLISHED = "already-republished"
"""The code of the conflict of two processes that publish the same lost log transaction again."""
DOMAIN_CHANGED = "domain-changed"
"""The code of the conflict with a commit that changed a domain which the proposal was worked out from."""
BASE_EXPIRED = "base-expired"
"""The code of the conflict of a commit with the expiry of the version that it was prepared on."""
METADATA_CHANGED = "metadata-changed"
"""The code of the conflict with a commit that changed the table's definition."""
RUNS_CAME = "runs-came"
"""The code of the conflict of a commit that needs all runs folded with one that brought a run."""


@dataclass(frozen=True, slots=True)
class AppVersion:
    """A writer's own number for a commit, such as a streaming query's batch: it is committed at most once.

    Attributes:
        app_id: Whose.
        version: The number.
        positions: How far each part of the writer's input is taken with this commit, for those that say so.
    """

    app_id: str
    version: int
    positions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit as data: what changes, and what it rests on.

    Attributes:
        operation: What it does.
        commit_id: The writer's id; a retry with the same id changes nothing.
        base_version: The version that it was prepared on.
        adds: New files (possibly born with dead rows).
        vectors: Files of the base whose dead rows grow, with their new vectors.
        removes: Paths of files of the base that leave.
        changes: Change data of the commit.
        replaces: An overwrite or a drop: whatever is in these partitions when it commits leaves.
        runs: Changes that are left for a fold to merge.
        folded: Runs that this commit has merged.
        tombstones: Deleted keys to remember.
        forgotten: Those that are not remembered any more, or in one of `tombstones`.
        touches: Slots whose keys were looked up: a change there in between has to be looked at.
        app: The writer's own number, if it has one.
        transactions: The log transactions that become decided with this commit.
        republished: What takes the place of earlier commits' log transactions that the log has lost, by their ids; None
            where nothing can.
        ended: Ids of earlier commits' log transactions that are known to have ended.
        log_repaired: For each bucket up to where every record of the log is named by a commit or was mended by one; of
            tables whose log is read in its own order.
        in_log_order: Readers take its log records in the log's order: commits in between that have some are looked at.
        log_identity: What the offsets are bound to, when the log was written.
        metrics: Counts for the snapshot.
        domains: Metadata domains of this name get this configuration; None removes one.
        watches: Domains that it was worked out from: a change of one in between is a conflict.
        whole_table: It was worked out from all files and all remembered deletes: a change of any in between has to be
            looked at.
        definition: What the table is from this commit on, if it changes that.
        compared: Its change data was told from the files that it replaces: a change of those in between has to be
            looked at.
        settled: It holds only for a version without pending runs: it fails if there is one when it is committed.
        notes: What the snapshot says to people.
    """

    operation: Operation
    commit_id: str
    base_version: int
    adds: tuple[DataFile, ...] = ()
    vectors: tuple[DataFile, ...] = ()
    removes: tuple[str, ...] = ()
    changes: tuple[ChangeFile, ...] = ()
    replaces: PartitionSet = NO_PARTITIONS
    runs: tuple[PendingRun, ...] = ()
    folded: tuple[PendingRun, ...] = ()
    tombstones: tuple[Tombstones, ...] = ()
    forgotten: tuple[Tombstones, ...] = ()
    touches: frozenset[Slot] = frozenset()
    app: AppVersion | None = None
    transactions: tuple[LogTransaction, ...] = ()
    republished: Mapping[str, LogTransaction | None] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    log_repaired: Mapping[int, int] = field(default_factory=dict)
    in_log_order: bool = False
    log_identity: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    watches: frozenset[str] = frozenset()
    whole_table: bool = False
    definition: TableDefinition | None = None
    compared: bool = False
    settled: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Clear:
    """Nothing in between matters: take the next version."""


@dataclass(frozen=True, slots=True)
class Rebase:
    """These slots changed: work them out again on the newest version.

    Attributes:
        slots: All of them; none, if only the log has to be looked at.
        rows_changed: Those in which not only files changed, as a compaction does it, but rows.
    """

    slots: frozenset[Slot]
    rows_changed: frozenset[Slot] = frozenset()


@dataclass(frozen=True, slots=True)
class Done:
    """The commit is in the history already, as this version (None: known only by its app version)."""

    version: int | None


def judge(proposal: Proposal, state: TableState, between: Sequence[Commit]) -> Clear | Rebase | Done:
    """What to do with a proposal when `between` was committed after its base; `state` is the newest.

    Raises:
        Conflict: it cannot be rebased; nothing was committed.
    """
    for commit in between:
        if commit.commit_id == proposal.commit_id:
            return Done(commit.version)
    if proposal.app is not None and state.app_versions.get(proposal.app.app_id, -1) >= proposal.app.version:
        return Done(_version_of(proposal.app, between))
    for commit in between:
        if any("metaData" in a or "protocol" in a for a in commit.actions):
            raise Conflict(
                f"version {commit.version} changed the table's schema or protocol while this "
                f"{proposal.operation} was prepared: read the table again and retry",
                code=METADATA_CHANGED,
            )
    _check_domains(proposal, between)
    changed = _changes(between)
    writes = [commit for commit in between if commit.snapshot().operation is not Operation.COMPACT]
    buried = _buried(between if proposal.whole_table else writes, state)
    slots = frozenset(slot for slot in _slots(changed, state) | buried if _looks_at(proposal, slot))
    rows = _slots([c for c in changed if c["dataChange"]], state) | _buried(writes, state)
    if proposal.operation is Operation.DROP_PARTITION:
        came = proposal.touches & _brought(between, state)
        slots, rows = slots | came, rows | came
    told = proposal.in_log_order and any(commit.snapshot().transactions for commit in between)
    return Rebase(slots, slots & rows) if slots or told else Clear()


def _looks_at(proposal: Proposal, slot: Slot) -> bool:
    """Whether a change of the slot's files has to be looked at."""
    if proposal.compared and slot.partition in proposal.replaces:
        return True
    return proposal.whole_table or slot in proposal.touches


def _buried(between: Iterable[Commit], state: TableState) -> frozenset[Slot]:
    """Slots in which deletes were remembered or forgotten, though perhaps of keys that had no row."""
    named = (action["domainMetadata"] for commit in between for action in commit.actions if "domainMetadata" in action)
    return frozenset(
        tombstones(domain["configuration"], state.definition.partition_by).slot
        for domain in named
        if domain["domain"].startswith(TOMBSTONES_DOMAIN)
    )


def _brought(between: Iterable[Commit], state: TableState) -> frozenset[Slot]:
    """Slots to which runs came that wait to be merged."""
    named = (action["domainMetadata"] for commit in between for action in commit.actions if "domainMetadata" in action)
    return frozenset(
        pending_run(domain["configuration"], state.definition.partition_by).slot
        for domain in named
        if domain["domain"].startswith(RUN_DOMAIN) and not domain["removed"]
    )


def _check_domains(proposal: Proposal, between: Iterable[Commit]) -> None:
    for commit in between:
        for action in commit.actions:
            name = action.get("domainMetadata", {}).get("domain")
            if name in proposal.watches:
                raise Conflict(
                    f"version {commit.version} changed {name!r} while this {proposal.operation} was prepared: read "
                    "the table again and retry",
                    code=DOMAIN_CHANGED,
                )


def _version_of(app: AppVersion, between: Iterable[Commit]) -> int | None:
    for commit in between:
        for action in commit.actions:
            txn: dict[str, Any] = action.get("txn", {})
            if txn.get("appId") == app.app_id and txn.get("version", -1) >= app.version:
                return commit.version
    return None


def _changes(between: Iterable[Commit]) -> list[Mapping[str, Any]]:
    """All `add` and `remove` actions."""
    return [
        change
        for commit in between
        for action in commit.actions
        if (change := action.get("add") or action.get("remove")) is not None
    ]


def _slots(changes: Iterable[Mapping[str, Any]], state: TableState) -> frozenset[Slot]:
    return frozenset(slot_of(change, state.definition.partition_by) for change in changes)
