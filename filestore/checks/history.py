"""Checks the Delta log: entries, their order, their files, offsets, checkpoints (FORMAT.md section 12.1)."""

from __future__ import annotations

import bisect
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from filestore.checks.changes import BROKEN, check_changes, check_lost_changes
from filestore.checks.definitions import added_paths, check_definition_step
from filestore.checks.log_offsets import check_log
from filestore.checks.pending import check_run_names
from filestore.checks.report import Findings, Invariant
from filestore.checks.retention import check_reach, check_retention
from filestore.delta.actions import (
    BUCKET_TAG,
    LEVEL_TAG,
    LOG_OFFSET_APP,
    PARTITIONS_PARAMETER,
    WRITER_FEATURE,
    file_key,
    slot_of,
)
from filestore.delta.log import Commit, DeltaLog
from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.model.files import DeletionVector
from filestore.model.partition_set import ALL_PARTITIONS, PartitionSet
from filestore.model.schema import Schema
from filestore.model.snapshot import Operation
from filestore.retention.paths import Paths, named_by

__all__ = ["FilesOf", "History", "read_history"]

FilesOf = Callable[[TableState], TableFiles]
"""Returns what is needed to read the files of a version."""


@dataclass(slots=True)
class History:
    """The result of reading the Delta log.

    Attributes:
        findings: The problems of the log.
        state: The requested version; None if it cannot be read.
        referenced: The relative paths that a retained version names.
        newest: The newest version; None if it cannot be read.
        whole: Whether the log begins with version 0.
        commit_ids: By id of a commit its version.
        fences: By id of a commit the version that fences it.
        fenced_files: By path the version that fences the file.
        schemas: By path the table's columns when the file or run was added, as far as the log still has them.
        lost_changes: By version a file of its change data that is missing on storage.
        unread: Whether an entry could not be read: other files may belong to it than those that are referenced.
    """

    findings: Findings
    state: TableState | None = None
    referenced: Paths = field(default_factory=Paths)
    newest: TableState | None = None
    whole: bool = False
    schemas: dict[str, Schema] = field(default_factory=dict)
    commit_ids: dict[str, int] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    fenced_files: dict[str, int] = field(default_factory=dict)
    lost_changes: dict[int, str] = field(default_factory=dict)
    unread: bool = False


def read_history(log: DeltaLog, version: int | None, findings: Findings, files: FilesOf) -> History:
    """Reads every entry once, oldest first, and checks each against the state before it."""
    versions, listed = log.listed()
    checkpoints = set(listed)
    history = History(findings, whole=versions[:1] == [0])
    wanted = max(versions, default=-1) if version is None else version
    state: TableState | None = None
    expected = begin = _first_whole(history, versions, checkpoints)
    for number in versions[bisect.bisect_left(versions, begin) :]:
        _check_gap(history, expected, number)
        expected = number + 1
        state = _begin(log, history, number) if number == begin > 0 else _follow(log, history, state, number, files)
        if state is not None and number in checkpoints:
            _check_checkpoints(log, findings, state)
        if number == wanted:
            history.state = state
    history.newest = state
    if state is not None:
        check_reach(findings, state, begin)
        check_lost_changes(findings, state, history.lost_changes)
    if history.state is None:
        history.state = _state_at(log, findings, wanted)
    return history


def _first_whole(history: History, versions: Sequence[int], checkpoints: Collection[int]) -> int:
    """Returns the first version to check: entries below the first checkpoint may be leftovers of an expiry."""
    if not versions or versions[0] == 0:
        return 0
    whole = [version for version in versions if version in checkpoints]
    if not whole:
        message = f"the oldest entry is of version {versions[0]}, and there is no checkpoint: entries were lost"
        history.findings.add(Invariant.VERSION_GAP, message, version=versions[0])
        history.unread = True
    return whole[0] if whole else versions[0]


def _check_gap(history: History, expected: int, number: int) -> None:
    if expected < number:
        first, last = expected, number - 1
        gone = f"entry of version {first}" if first == last else f"entries of versions {first} to {last}"
        message = f"there is one of version {number}, and no {gone}"
        history.findings.add(Invariant.VERSION_GAP, message, version=number)
        history.unread = True


def _begin(log: DeltaLog, history: History, number: int) -> TableState | None:
    """The state at a checkpoint. The version's own entry names only its changes, and its change data."""
    entry = _read(log, history, number)
    state = None if history.unread else _from_checkpoint(log, history.findings, number)
    if state is None:
        history.unread = True
        return None
    history.referenced = Paths.of_version(state)
    if entry is not None:
        _note_references(history, entry)
    return state


def _read(log: DeltaLog, history: History, number: int) -> Commit | None:
    """Reads an entry; returns None if it cannot be read, or has expired since it was listed."""
    entry = None
    try:
        entry = log.read_entry(number)
    except BROKEN as error:
        history.findings.add(Invariant.LOG_ENTRY, f"version {number} cannot be read: {error}", version=number)
    history.unread |= entry is None
    return entry


def _follow(
    log: DeltaLog, history: History, before: TableState | None, number: int, files: FilesOf
) -> TableState | None:
    """The state after an entry; None if it cannot be read, or there is neither a state before it nor a checkpoint."""
    findings, entry = history.findings, _read(log, history, number)
    if entry is None:
        return None
    if number > 0 and (before is None or number != before.version + 1):
        _note_references(history, entry)
        return _from_checkpoint(log, findings, number)
    after = _checked_step(history, before, entry)
    if after is not None:
        lost = check_changes(files(after), findings, before or after, after, entry)
        if lost is not None:
            history.lost_changes[number] = lost
    return after


def _checked_step(history: History, before: TableState | None, entry: Commit) -> TableState | None:
    findings = history.findings
    _note_references(history, entry)
    try:
        if before is None:
            after = TableState.initial(0, entry.actions)
            _check_first(findings, entry)
        else:
            after = before.next(entry.version, entry.actions)
        _check_info(history, entry)
        check_definition_step(findings, before.definition if before is not None else None, after.definition, entry)
        _check_files(findings, before, after, entry)
        _check_replaced(findings, before, entry)
        _note_schemas(history, before, after, entry)
        _check_order(findings, before, after, entry)
        check_run_names(findings, before, after, entry)
        _check_apps(findings, entry)
        check_log(findings, before, after, entry)
        check_retention(findings, before, after, entry)
    except BROKEN as error:
        message = f"version {entry.version} cannot be read: {type(error).__name__}: {error}"
        findings.add(Invariant.LOG_ENTRY, message, version=entry.version)
        return None
    return after


def _note_schemas(history: History, before: TableState | None, after: TableState, entry: Commit) -> None:
    """Notes the columns of added files. A file that a rollback restores has those of its first version instead.

    No entry of that version may be left.
    """
    if entry.snapshot().restores_files and not history.whole:
        return
    for path in added_paths(before, after, entry):
        history.schemas.setdefault(path, after.definition.schema)


def _from_checkpoint(log: DeltaLog, findings: Findings, number: int) -> TableState | None:
    """The state that a version's checkpoint holds; None if there is none, or none that can be read."""
    return next(_stored(log, findings, number), None)


def _stored(log: DeltaLog, findings: Findings, number: int) -> Iterator[TableState]:
    """Yields what each of the checkpoints of a version holds."""
    for files in log.listing(since=number).complete.get(number, ()):
        try:
            yield log.read_checkpoint(files)
        except BROKEN as error:
            message = f"the checkpoint of version {number} cannot be read: {error}"
            findings.add(Invariant.CHECKPOINT, message, version=number)


def _state_at(log: DeltaLog, findings: Findings, version: int) -> TableState | None:
    try:
        return log.at(version)
    except BROKEN as error:
        message = f"version {version} cannot be built, so its files were not checked: {error}"
        findings.add(Invariant.LOG_ENTRY, message, version=version)
        return None


def _check_first(findings: Findings, entry: Commit) -> None:
    protocol: Mapping[str, Any] = next((a["protocol"] for a in entry.actions if "protocol" in a), {})
    versions = protocol.get("minReaderVersion"), protocol.get("minWriterVersion")
    if versions != (3, 7) or WRITER_FEATURE not in protocol.get("writerFeatures", ()):
        findings.add(
            Invariant.PROTOCOL,
            f"version {entry.version} has protocol {dict(protocol)}: it must be 3 and 7 with the writer feature "
            f"{WRITER_FEATURE!r}, or other Delta writers can break keys",
            version=entry.version,
        )


def _check_info(history: History, entry: Commit) -> None:
    if not entry.actions or "commitInfo" not in entry.actions[0]:
        history.findings.add(
            Invariant.LOG_ENTRY,
            f"version {entry.version} does not begin with commitInfo",
            version=entry.version,
        )
    fenced = entry.snapshot().fenced  # it raises errors that `_checked_step` reports
    commit_id = str(entry.commit_id)
    if commit_id in history.fences:
        history.findings.add(
            Invariant.FENCED_COMMIT,
            f"version {entry.version} is commit {commit_id}, which version {history.fences[commit_id]} fences: the log "
            "may have aborted its transactions, so followers may not be able to read it",
            version=entry.version,
        )
    for other in fenced:
        history.fences.setdefault(other, entry.version)
    earlier = history.commit_ids.setdefault(commit_id, entry.version)
    if earlier != entry.version:
        history.findings.add(
            Invariant.COMMIT_ID,
            f"versions {earlier} and {entry.version} have the same commit id {commit_id}: one write was committed "
            "twice",
            version=entry.version,
        )


def _check_files(findings: Findings, before: TableState | None, after: TableState, entry: Commit) -> None:
    gone, come = set[str](), set[str]()
    changes = entry.snapshot().operation.changes_data
    for action in entry.actions:
        if (remove := action.get("remove")) is not None:
            path, named = file_key(remove), DeletionVector.from_action(remove.get("deletionVector"))
            file = None if before is None or path in gone else before.named(remove)
            gone.add(path)
            if file is None or file.vector != named:
                _wrong_file(findings, entry, remove, "removes a file that does not exist with that vector")
    for action in entry.actions:
        change = action.get("add") or action.get("remove")
        if change is not None and change["dataChange"] != changes:
            findings.add(
                Invariant.DATA_CHANGE,
                f"version {entry.version} is a {entry.snapshot().operation} and has dataChange = "
                f"{change['dataChange']} for {file_key(change)}",
                version=entry.version,
            )
        if (add := action.get("add")) is not None:
            path = file_key(add)
            if path in come or (before is not None and path not in gone and before.named(add) is not None):
                _wrong_file(findings, entry, add, "adds a file that exists already")
            come.add(path)
            _check_add(findings, after, entry, add)


def _check_replaced(findings: Findings, before: TableState | None, entry: Commit) -> None:
    """Checks that an overwrite or a drop removes all of the partitions that it names, and no other."""
    operation = entry.snapshot().operation
    if before is None or not operation.replaces_partitions or entry.snapshot().restores is not None:
        return
    partition_by = before.definition.partition_by
    named = entry.actions[0]["commitInfo"]["operationParameters"].get(PARTITIONS_PARAMETER)
    replaced = ALL_PARTITIONS if named is None else PartitionSet.from_json(json.loads(named), partition_by)
    removes = {file_key(a["remove"]): slot_of(a["remove"], partition_by) for a in entry.actions if "remove" in a}
    adds = {file_key(a["add"]): slot_of(a["add"], partition_by) for a in entry.actions if "add" in a}
    wrong = [path for path, slot in (removes | adds).items() if slot.partition not in replaced]
    held = (file.path for file in before.files.within(replaced))
    wrong += [path for path in held if path not in removes or path in adds]
    wrong += adds if operation is Operation.DROP_PARTITION else ()
    for path in wrong:
        findings.add(
            Invariant.REPLACED_PARTITION,
            f"version {entry.version} is a {operation} of partitions {named or '(all)'}, and {path} does not fit that",
            path,
            entry.version,
        )


def _check_add(findings: Findings, after: TableState, entry: Commit, add: Mapping[str, Any]) -> None:
    definition = after.definition
    tags, stats = dict(add["tags"]), json.loads(add["stats"])
    if not 0 <= int(tags[BUCKET_TAG]) < definition.buckets or int(tags[LEVEL_TAG]) < 0:
        _wrong_file(findings, entry, add, f"has tags {tags}, but the table has {definition.buckets} buckets")
    if tuple(add["partitionValues"]) != definition.partition_by:
        _wrong_file(findings, entry, add, f"has partition values {add['partitionValues']}")
    if stats.get("tightBounds") != (add.get("deletionVector") is None):
        _wrong_file(findings, entry, add, "has tightBounds = true with a vector or false without one")


def _wrong_file(findings: Findings, entry: Commit, action: Mapping[str, Any], what: str) -> None:
    path = file_key(action)
    findings.add(Invariant.FILE_ACTION, f"version {entry.version}: {path} {what}", path, entry.version)


def _check_order(findings: Findings, before: TableState | None, after: TableState, entry: Commit) -> None:
    if before is None:
        return
    if after.timestamp_ms <= before.timestamp_ms:
        findings.add(
            Invariant.TIMESTAMP_ORDER,
            f"version {entry.version} has the time {after.timestamp_ms} ms, the one before {before.timestamp_ms} ms",
            version=entry.version,
        )
    if after.table_id != before.table_id:
        findings.add(
            Invariant.TABLE_ID,
            f"version {entry.version} changes the table's id from {before.table_id} to {after.table_id}",
            version=entry.version,
        )
    begins_log = entry.begins_log
    for app, number in before.app_versions.items():
        if begins_log and app.startswith(LOG_OFFSET_APP):
            continue  # offsets of another log
        if after.app_versions.get(app, -1) < number:
            code = Invariant.OFFSET_ORDER if app.startswith(LOG_OFFSET_APP) else Invariant.APP_VERSION_ORDER
            message = f"version {entry.version} lowers {app!r} from {number} to {after.app_versions.get(app)}"
            findings.add(code, message, version=entry.version)


def _check_apps(findings: Findings, entry: Commit) -> None:
    apps = Counter(a["txn"]["appId"] for a in entry.actions if "txn" in a)
    for app, times in apps.items():
        if times > 1:
            findings.add(
                Invariant.APP_VERSION_TWICE,
                f"version {entry.version} has {times} numbers of {app!r}: readers of Delta may take either",
                version=entry.version,
            )


def _check_checkpoints(log: DeltaLog, findings: Findings, state: TableState) -> None:
    version = state.version
    compared = [column.name for column in fields(TableState) if column.compare]
    for stored in _stored(log, findings, version):
        differing = [name for name in compared if getattr(stored, name) != getattr(state, name)]
        if differing:
            findings.add(
                Invariant.CHECKPOINT,
                f"the checkpoint of version {version} differs from the log in {', '.join(differing)}",
                version=version,
            )


def _note_references(history: History, entry: Commit) -> None:
    named = set[str]()
    for action in entry.actions:
        try:
            named.update(named_by(action))
        except BROKEN:
            history.unread = True  # the check of the entry reports it
    for path in sorted(path for path in history.fenced_files.keys() & named if path not in history.referenced):
        message = (
            f"version {entry.version} names {path}, which version {history.fenced_files[path]} fences: it was to be "
            "removed as an orphan"
        )
        history.findings.add(Invariant.FENCED_COMMIT, message, path, entry.version)
    history.referenced.update(named)
    history.fenced_files |= dict.fromkeys(entry.fenced_files, entry.version)
