"""A version of a table as a value, and how a commit's actions make the next one (FORMAT.md section 2).

Pure: bytes come in as parsed actions, a new `TableState` goes out (Delta protocol, "Action Reconciliation").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from filestore.delta.actions import (
    LOG_DOMAIN,
    LOG_OFFSET_APP,
    POSITION_APP,
    RUN_DOMAIN,
    TOMBSTONES_DOMAIN,
    Action,
    check_protocol,
    data_file,
    file_key,
    pending_run,
    tombstones,
)
from filestore.errors import Corrupt
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, PendingRun, Slot, Tombstones
from filestore.model.log_range import LogTransaction
from filestore.model.snapshot import Operation, Snapshot

__all__ = ["TableState", "snapshot_of"]


@dataclass(frozen=True, slots=True)
class TableState:
    """What a reader of one version needs to know. Never changed in place.

    Attributes:
        version: Delta's version.
        timestamp_ms: When that version was committed, in milliseconds since 1970 UTC; strictly growing.
        table_id: Delta's ``metaData.id``: a table of the same name made later has another.
        definition: Schema, keys, options.
        files: The live files by relative path.
        app_versions: Delta's ``txn``: streaming queries' batch ids, and the log's end offsets.
        domains: Delta's ``domainMetadata`` configurations that are not removed.
        created_ms: When the table was made, in milliseconds since 1970 UTC.
    """

    version: int
    timestamp_ms: int
    table_id: str
    definition: TableDefinition
    files: Mapping[str, DataFile] = field(default_factory=dict)
    app_versions: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0

    @property
    def log_offsets(self) -> dict[int, int]:
        """The log's end offset for each bucket, as far as this version covers it."""
        return {
            int(app.removeprefix(LOG_OFFSET_APP)): version
            for app, version in self.app_versions.items()
            if app.startswith(LOG_OFFSET_APP)
        }

    @property
    def positions(self) -> dict[str, int]:
        """How far each part of the input was taken, where the writer says so (`AppVersion.positions`)."""
        return {
            app.removeprefix(POSITION_APP): at for app, at in self.app_versions.items() if app.startswith(POSITION_APP)
        }

    @property
    def log_identity(self) -> dict[str, str]:
        """What the offsets are bound to: log system, topic, topic id, cluster id."""
        return dict(self._log_domain().get("identity", {}))

    @property
    def open_transactions(self) -> tuple[LogTransaction, ...]:
        """Log transactions of committed snapshots that may still have to be ended (log/PROTOCOL.md)."""
        return tuple(LogTransaction.from_json(t) for t in self._log_domain().get("open", ()))

    @property
    def log_repaired(self) -> dict[int, int]:
        """For each bucket up to where every record is named or was mended, if the log is read in its own order."""
        return {int(bucket): offset for bucket, offset in self._log_domain().get("repaired", {}).items()}

    def _log_domain(self) -> dict[str, Any]:
        return json.loads(self.domains.get(LOG_DOMAIN, "{}"))  # type: ignore[no-any-return]

    def slots(self) -> dict[Slot, tuple[DataFile, ...]]:
        """Live files by slot, oldest level-0 file last in no promised order."""
        by_slot: dict[Slot, list[DataFile]] = {}
        for file in self.files.values():
            by_slot.setdefault(file.slot, []).append(file)
        return {slot: tuple(files) for slot, files in by_slot.items()}

    def pending(self) -> dict[Slot, tuple[PendingRun, ...]]:
        """Runs that no fold has merged yet, by slot, in the order in which they apply."""
        runs = [
            pending_run(configuration, self.definition.partition_by)
            for domain, configuration in self.domains.items()
            if domain.startswith(RUN_DOMAIN)
        ]
        by_slot: dict[Slot, list[PendingRun]] = {}
        for run in sorted(runs, key=lambda run: (run.version, run.path)):
            by_slot.setdefault(run.slot, []).append(run)
        return {slot: tuple(listed) for slot, listed in by_slot.items()}

    def tombstones(self) -> dict[Slot, tuple[Tombstones, ...]]:
        """Runs of deleted keys by slot, the oldest first."""
        runs = [
            tombstones(configuration, self.definition.partition_by)
            for domain, configuration in self.domains.items()
            if domain.startswith(TOMBSTONES_DOMAIN)
        ]
        by_slot: dict[Slot, list[Tombstones]] = {}
        for run in sorted(runs, key=lambda run: (run.modified_ms, run.path)):
            by_slot.setdefault(run.slot, []).append(run)
        return {slot: tuple(listed) for slot, listed in by_slot.items()}

    def met(self, now_ms: int) -> dict[Slot, tuple[DataFile, ...]]:
        """What the rows of a write meet, in each slot with any: live files, and tombstones that are remembered yet."""
        remembered_ms = now_ms - self.definition.tombstone_retention_ms
        by_slot = self.slots()
        for slot, runs in self.tombstones().items():
            if young := tuple(run for run in runs if run.modified_ms >= remembered_ms):
                by_slot[slot] = (*by_slot.get(slot, ()), *young)
        return by_slot

    def next(self, version: int, actions: Iterable[Action]) -> TableState:
        """The state after a commit.

        Raises:
            Corrupt: the commit is not the next version.
        """
        if version != self.version + 1:
            raise Corrupt(f"version {version} cannot follow version {self.version}", code="version-gap")
        return _apply(self, version, list(actions))

    @classmethod
    def initial(cls, version: int, actions: Iterable[Action]) -> TableState:
        """The state of version 0 or of a checkpoint, whose actions hold everything."""
        listed = list(actions)
        metadata = next((a["metaData"] for a in listed if "metaData" in a), None)
        if metadata is None:
            raise Corrupt(f"version {version} has no metaData action", code="no-metadata")
        definition = TableDefinition.from_delta(metadata)
        created_ms = int(metadata.get("createdTime") or 0)
        return _apply(cls(version, 0, metadata["id"], definition, created_ms=created_ms), version, listed)


def _apply(state: TableState, version: int, actions: list[Action]) -> TableState:
    files, apps, domains = dict(state.files), dict(state.app_versions), dict(state.domains)
    timestamp, definition, table_id = state.timestamp_ms, state.definition, state.table_id
    _move_files(files, actions, definition)
    for action in actions:
        if (txn := action.get("txn")) is not None:
            apps[txn["appId"]] = txn["version"]
        elif (domain := action.get("domainMetadata")) is not None:
            if domain["removed"]:
                domains.pop(domain["domain"], None)
            else:
                domains[domain["domain"]] = domain["configuration"]
        elif (metadata := action.get("metaData")) is not None:
            definition, table_id = TableDefinition.from_delta(metadata), metadata["id"]
        elif (protocol := action.get("protocol")) is not None:
            check_protocol(protocol)
        elif (info := action.get("commitInfo")) is not None:
            timestamp = int(info["inCommitTimestamp"])
    return replace(
        state,
        version=version,
        timestamp_ms=timestamp,
        table_id=table_id,
        definition=definition,
        files=files,
        app_versions=apps,
        domains=domains,
    )


def _move_files(files: dict[str, DataFile], actions: list[Action], definition: TableDefinition) -> None:
    """Removes first: replacing a vector is remove + add of one path, in any order."""
    for action in actions:
        if (remove := action.get("remove")) is not None:
            files.pop(file_key(remove), None)
    for action in actions:
        if (add := action.get("add")) is not None:
            file = data_file(add, definition.partition_by)
            files[file.path] = file


def snapshot_of(version: int, actions: Iterable[Action], log_offsets: Mapping[int, int]) -> Snapshot:
    """The snapshot that a commit's actions describe; `log_offsets` are those after it."""
    info = next((a["commitInfo"] for a in actions if "commitInfo" in a), None)
    if info is None:
        raise Corrupt(f"version {version} has no commitInfo", code="no-commit-info")
    own = info["tablestore"]
    return Snapshot(
        version=version,
        timestamp=datetime.fromtimestamp(info["inCommitTimestamp"] / 1000, UTC),
        operation=Operation(info["operation"]),
        commit_id=own["commitId"],
        log_offsets=dict(log_offsets),
        transactions=tuple(LogTransaction.from_json(t) for t in own["transactions"]),
        republished={
            lost: None if found is None else LogTransaction.from_json(found)
            for lost, found in own.get("republished", {}).items()
        },
        metrics={name: int(value) for name, value in info["operationMetrics"].items()},
        notes=tuple(own.get("notes", ())),
    )
