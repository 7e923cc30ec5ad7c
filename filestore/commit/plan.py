"""Plans a commit's log entry: its actions follow from a proposal and a version (FORMAT.md section 6). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from filestore.commit.proposal import Proposal
from filestore.delta.actions import (
    LOG_BEGINS_DOMAIN,
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
    kept_features,
    metadata_action,
    no_domain_action,
    protocol_action,
    remove_action,
    run_action,
    tombstones_action,
    txn_action,
)
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.model.files import DataFile
from filestore.model.log_range import LogTransaction, advance

__all__ = ["commit_info", "plan_actions"]


def plan_actions(proposal: Proposal, state: TableState, now_ms: int) -> list[Action]:
    """Returns the actions of version ``state.version + 1``. Pure.

    Raises:
        Conflict: a file or run that the proposal changes is not in the state. Nothing is lost: begin again.
    """
    timestamp = max(now_ms, state.timestamp_ms + 1)  # it grows strictly, whatever the writers' clocks show
    marked, removes = _still_there(proposal, proposal.files.vectors, state), _removed(proposal, state)
    new_log = proposal.log.new_log
    known_offsets = state.log.offsets if new_log is None else new_log.offsets
    offsets = advance(known_offsets, (*proposal.log.transactions, *_republished(proposal)))
    data_change = proposal.operation.changes_data
    info = commit_info(_counted(proposal, removes), state.version, timestamp)
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
    for before, file in zip(marked, proposal.files.vectors, strict=True):
        actions.append(remove_action(before, timestamp, data_change=data_change))
        actions.append(add_action(file, data_change=data_change))
    actions += [remove_action(file, timestamp, data_change=data_change) for file in removes]
    actions += [add_action(f, data_change=data_change) for f in proposal.files.adds]
    actions += [cdc_action(file) for file in proposal.files.cdc]
    return actions


def _still_there(proposal: Proposal, files: Iterable[DataFile], state: TableState) -> list[DataFile]:
    """Returns files as they are in the state.

    Raises:
        Conflict: ``file-gone``: the state does not have one of them.
    """
    found = []
    for file in files:
        if (current := state.files.current(file)) is None:
            raise Conflict(
                f"file {file.path} left the table while this {proposal.operation} was prepared: read again and retry",
                code="file-gone",
                again=True,
            )
        found.append(current)
    return found


def _removed(proposal: Proposal, state: TableState) -> list[DataFile]:
    """Returns the files that the proposal removes, and those in the partitions that it replaces."""
    replaced = state.files.within(proposal.files.replaces) if proposal.files.replaces else ()
    return [*_still_there(proposal, proposal.files.removes, state), *replaced]


def _counted(proposal: Proposal, removes: Sequence[DataFile]) -> Proposal:
    """Adds the counts of replaced files and rows, which are unknown before the commit."""
    if not proposal.files.replaces:
        return proposal
    rows = sum(file.live_rows for file in removes)
    counts = {"files_removed": len(removes), "rows_removed": rows}
    return replace(proposal, metrics={**proposal.metrics, **counts})


def _parameters(proposal: Proposal) -> dict[str, str]:
    """Returns the proposal's own, and the partitions that an overwrite or drop replaces, if not the whole table."""
    files, given = proposal.files, dict(proposal.parameters)
    if files.replaces.whole_table or files.restores is not None or not proposal.operation.replaces_partitions:
        return given
    named = json.dumps(files.replaces.to_json(), ensure_ascii=False, separators=(",", ":"))
    return {**given, PARTITIONS_PARAMETER: named}


def commit_info(proposal: Proposal, read_version: int | None, timestamp: int) -> Action:
    """Returns the first action of every commit (Delta protocol, "In-Commit Timestamps": it must be the first)."""
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
                "transactions": [t.to_json() for t in proposal.log.transactions],
                **({"republished": _republished_json(proposal)} if proposal.log.republished else {}),
                **({"fenced": sorted(proposal.log.fenced)} if proposal.log.fenced else {}),
                **({"fencedFiles": sorted(proposal.files.orphans)} if proposal.files.orphans else {}),
                **({} if proposal.files.restores is None else {"restores": proposal.files.restores}),
                **({"unread": True} if proposal.files.unread else {}),
                **({"notes": list(proposal.notes)} if proposal.notes else {}),
            },
        }
    }


def _definition_actions(proposal: Proposal, state: TableState) -> list[Action]:
    """Returns the new definition's ``metaData``, and the ``protocol`` if the commit needs more features."""
    definition = proposal.definition or state.definition
    fences = state.fences or bool(proposal.log.fenced or proposal.files.orphans)
    more = definition.features > state.definition.features or fences > state.fences
    features = definition.features | kept_features(state.protocol)
    protocol = protocol_action(features, fences=fences, catalog_commits=state.catalog_commits)
    actions = [protocol] if more else []
    if proposal.definition is not None:
        actions.append(metadata_action(definition, state.table_id, state.created_ms))
    return actions


def _log_actions(proposal: Proposal, state: TableState) -> list[Action]:
    """The log's domain, when it changes: its identity, and the transactions that may still have to be ended."""
    if (new_log := proposal.log.new_log) is not None:  # what was open in the former log cannot be ended any more
        begun: dict[str, Any] = {"identity": dict(new_log.identity), "open": []}
        eventual = state.definition.options["log.consistency"] == "eventual"
        begun |= {"repaired": dict(new_log.offsets)} if eventual else {}
        return [domain_action(LOG_DOMAIN, begun), _begins(state.version + 1)]
    known = {t.id for t in state.log.open}
    if gone := [lost for lost in proposal.log.republished if lost not in known]:
        raise Conflict(
            f"log transaction {gone[0]} was published again by another process", code="already-republished", again=True
        )
    done = proposal.log.ended | proposal.log.republished.keys()
    still_open = [t for t in state.log.open if t.id not in done]
    opened = [*still_open, *_republished(proposal), *proposal.log.transactions]
    known_repaired = state.log.repaired
    repaired = {**known_repaired, **{b: max(at, known_repaired.get(b, 0)) for b, at in proposal.log.repaired.items()}}
    if proposal.premises.log_order:  # there is nothing to end: they are kept to be known in the tail
        opened = [t for t in opened if any(part.end > repaired.get(part.bucket, 0) for part in t.ranges)]
    if (opened, repaired) == (list(state.log.open), state.log.repaired):
        return []
    domain: dict[str, Any] = {"identity": state.log.identity, "open": [t.to_json() for t in opened]}
    changed = domain_action(LOG_DOMAIN, domain | ({"repaired": repaired} if repaired else {}))
    stated = json.loads(state.domains.get(LOG_BEGINS_DOMAIN, "{}")).get("version", 0)
    moves = stated != state.log.begins  # versions of 2026-11-28 had it in the domain that is written anew
    return [changed, *([_begins(state.log.begins)] if moves else [])]


def _begins(version: int) -> Action:
    """Returns the version with which the log begins, in a domain of its own: older writers carry on all domains."""
    return domain_action(LOG_BEGINS_DOMAIN, {"version": version})


def _republished(proposal: Proposal) -> list[LogTransaction]:
    return [found for found in proposal.log.republished.values() if found is not None]


def _republished_json(proposal: Proposal) -> dict[str, Any]:
    return {lost: None if found is None else found.to_json() for lost, found in proposal.log.republished.items()}


def _ended(domain: str, state: TableState) -> Action:
    return no_domain_action(domain, state.domains.get(domain, "{}"))


def _run_actions(proposal: Proposal, state: TableState) -> list[Action]:
    """Returns the actions of runs that are no longer pending, and of new pending runs."""
    if proposal.premises.no_pending_runs and state.pending:
        raise Conflict(
            f"another writer added pending runs while this {proposal.operation} was prepared: merge them with "
            "compact(full=True), and retry",
            code="pending-run-added",
            again=True,
        )
    pending = {run.id: run for run in state.pending}
    replaced = (run for run in pending.values() if run.slot.partition in proposal.files.replaces)
    done = [*proposal.runs.folded, *replaced]
    if gone := [run.path for run in done if run.id not in pending]:
        raise Conflict(
            f"run {gone[0]} was folded or removed while this {proposal.operation} was prepared: read again and retry",
            code="run-gone",
            again=True,
        )
    folded = [_ended(RUN_DOMAIN + run.id, state) for run in done]
    return folded + [run_action(replace(run, version=state.version + 1)) for run in proposal.runs.pending]


def _tombstone_actions(proposal: Proposal, state: TableState) -> list[Action]:
    """Returns the actions of tombstones that are forgotten, and of those that are remembered from now on."""
    known = {run.id: run for run in state.tombstones}
    if gone := [run.path for run in proposal.runs.forgotten if run.id not in known]:
        raise Conflict(
            f"tombstones {gone[0]} were merged or forgotten while this {proposal.operation} was prepared: read again "
            "and retry",
            code="run-gone",
            again=True,
        )
    replaced = (run for run in known.values() if run.slot.partition in proposal.files.replaces)
    forgotten = [_ended(TOMBSTONES_DOMAIN + run.id, state) for run in (*proposal.runs.forgotten, *replaced)]
    return forgotten + [tombstones_action(run) for run in proposal.runs.tombstones]
