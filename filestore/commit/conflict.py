"""Decides what a commit that lost the race for its version has to do (FORMAT.md section 6). Pure.

committed in between       upsert or delete            append        overwrite,      compaction
                                                                     drop partition
------------------------   -------------------------   -----------   -------------   -------------------------
another slot               go on                       go on         go on           go on
files of the same slot     look its keys up again      go on         replaces it     map the new dead rows, or
  (a compaction)                                                                     fail if an input is gone
rows of the same slot      look its keys up again;     go on         replaces it     map the new dead rows, or
                           begin again if the result                                 fail if an input is gone
                           rests on the stored rows
schema or protocol         begin again                 begin again   begin again     begin again
the same commit id         done                        done          done            done
the same app and batch     done                        done          done            done
a fence of this commit     refused                     refused       refused         -
a fence of its new files   begin again                 begin again   begin again     begin again

This module names the slots; the operation's `rebase` looks keys up again, or begins again by a conflict. Fences of new
files are in `filestore.commit.new_files`.
Overwrites and drops replace whole partitions, those that `FileChanges.replaces` names. Where change data contains the
rows that they replace, it is computed again for slots that changed. An expiry of partitions that were not updated for
long depends on their slots, too: if rows changed there meanwhile, the choice is made again. A write whose rows were
worked out from stored ones (`Premises.rows_read`) is refused if those are among the changed rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from filestore.commit.proposal import AppVersion, Proposal
from filestore.delta.actions import RUN_DOMAIN, TOMBSTONES_DOMAIN, pending_run, slot_of, tombstones
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.model.files import Slot
from filestore.model.snapshot import Operation

__all__ = ["Clear", "Done", "Rebase", "fenced", "judge"]


@dataclass(frozen=True, slots=True)
class Clear:
    """The other commits do not matter: the proposal can be written as the next version."""


@dataclass(frozen=True, slots=True)
class Rebase:
    """The decision to adapt the proposal to slots that other commits have changed, on the newest version.

    Attributes:
        slots: All of them; none, if only the log has to be checked.
        rows_changed: Those in which rows changed, and not only files, as in a compaction.
    """

    slots: frozenset[Slot]
    rows_changed: frozenset[Slot] = frozenset()


@dataclass(frozen=True, slots=True)
class Done:
    """The commit is in the history already, as this version; None if only its app version shows it."""

    version: int | None


def judge(proposal: Proposal, state: TableState, between: Sequence[Commit]) -> Clear | Rebase | Done:
    """Decides what to do with a proposal if `between` was committed after its base; `state` is the newest version.

    Raises:
        Conflict: it cannot be rebased; nothing was committed.
    """
    for commit in between:
        if commit.commit_id == proposal.commit_id:
            return Done(commit.version)
    if proposal.app is not None and state.app_versions.get(proposal.app.app_id, -1) >= proposal.app.version:
        return Done(_version_of(proposal.app, between))
    if (fencing := _fencing(proposal, between)) is not None:
        return fencing
    for commit in between:
        if any("metaData" in a or "protocol" in a for a in commit.actions):
            raise Conflict(
                f"version {commit.version} changed the table's schema or protocol while this "
                f"{proposal.operation} was prepared: read the table again and retry",
                code="metadata-changed",
                again=True,
            )
    _check_domains(proposal, between)
    changed = _changes(between)
    writes = [commit for commit in between if commit.snapshot().operation is not Operation.COMPACT]
    deleted = _tombstone_slots(between if proposal.premises.all_slots else writes, state)
    slots = frozenset(slot for slot in _slots(changed, state) | deleted if _looks_at(proposal, slot))
    rows = _slots([c for c in changed if c["dataChange"]], state) | _tombstone_slots(writes, state)
    if proposal.operation is Operation.DROP_PARTITION or proposal.premises.rows_read:
        runs = _pending_run_slots(between, state, removed=proposal.premises.rows_read)
        added = frozenset(slot for slot in runs if _looks_at(proposal, slot))
        slots, rows = slots | added, rows | added
    logged = proposal.premises.log_order and any(commit.snapshot().transactions for commit in between)
    return Rebase(slots, slots & rows) if slots or logged else Clear()


def fenced(version: int, commit_id: str, *, again: bool) -> Conflict:
    """Returns the error of a writer that was given up while it wrote."""
    return Conflict(
        f"version {version} fences commit {commit_id}: its writer gave no sign of life for log.lease-timeout and was "
        "given up, so its log transactions are aborted. Nothing was committed: look whether somebody has written the "
        "rows since, and retry",
        code="fenced",
        again=again,
    )


def _fencing(proposal: Proposal, between: Iterable[Commit]) -> Done | None:
    """Refuses a commit that was fenced; returns the fence that makes another one needless.

    A write without a number of its own is not begun again by itself: whoever gave its writer up may have written the
    rows once more.
    """
    own = proposal.premises.leases | {proposal.commit_id}
    needed = proposal.log.fenced  # a fence of files has none: what it names was looked for by nobody else
    for commit in between:
        named = frozenset(commit.snapshot().fenced)
        if own & named:
            again = proposal.app is not None or proposal.premises.changes_no_row
            raise fenced(commit.version, proposal.commit_id, again=again)
        if needed and proposal.operation is Operation.FENCE and needed <= named:
            return Done(commit.version)
    return None


def _looks_at(proposal: Proposal, slot: Slot) -> bool:
    """Returns whether the proposal depends on the slot's files."""
    if proposal.premises.replaced_slots and slot.partition in proposal.files.replaces:
        return True
    return proposal.premises.all_slots or slot in proposal.premises.slots


def _tombstone_slots(between: Iterable[Commit], state: TableState) -> frozenset[Slot]:
    """Returns the slots whose tombstones changed. The deleted keys need not have had a row."""
    named = (action["domainMetadata"] for commit in between for action in commit.actions if "domainMetadata" in action)
    return frozenset(
        tombstones(domain["configuration"], state.definition.partition_by).slot
        for domain in named
        if domain["domain"].startswith(TOMBSTONES_DOMAIN)
    )


def _pending_run_slots(between: Iterable[Commit], state: TableState, *, removed: bool) -> frozenset[Slot]:
    """Returns the slots with new pending runs; with `removed` those whose runs were dropped unmerged, too."""
    return frozenset(
        pending_run(domain["configuration"], state.definition.partition_by).slot
        for commit in between
        for domain in (action["domainMetadata"] for action in commit.actions if "domainMetadata" in action)
        if domain["domain"].startswith(RUN_DOMAIN)
        and (not domain["removed"] or (removed and commit.snapshot().operation is not Operation.FOLD))
    )


def _check_domains(proposal: Proposal, between: Iterable[Commit]) -> None:
    for commit in between:
        for action in commit.actions:
            name = action.get("domainMetadata", {}).get("domain")
            if name in proposal.premises.watched_domains:
                raise Conflict(
                    f"version {commit.version} changed {name!r} while this {proposal.operation} was prepared: read "
                    "the table again and retry",
                    code="domain-changed",
                    again=True,
                )


def _version_of(app: AppVersion, between: Iterable[Commit]) -> int | None:
    for commit in between:
        for action in commit.actions:
            txn: dict[str, Any] = action.get("txn", {})
            if txn.get("appId") == app.app_id and txn.get("version", -1) >= app.version:
                return commit.version
    return None


def _changes(between: Iterable[Commit]) -> list[Mapping[str, Any]]:
    """Returns all `add` and `remove` actions."""
    return [
        change
        for commit in between
        for action in commit.actions
        if (change := action.get("add") or action.get("remove")) is not None
    ]


def _slots(changes: Iterable[Mapping[str, Any]], state: TableState) -> frozenset[Slot]:
    return frozenset(slot_of(change, state.definition.partition_by) for change in changes)
