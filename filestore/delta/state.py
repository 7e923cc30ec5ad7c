"""Represents a version of a table as a value, and applies a commit's actions to it (FORMAT.md section 2).

Pure: the functions take parsed actions and return a new `TableState` (Delta protocol, "Action Reconciliation").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

from filestore.decoding import well_formed
from filestore.delta.actions import (
    CATALOG_COMMITS,
    FENCES,
    LOG_BEGINS_DOMAIN,
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
from filestore.model.log_range import LogState, LogTransaction
from filestore.model.snapshot import Operation, Snapshot

__all__ = ["TableState", "log_begins", "snapshot_of"]

_Stored = TypeVar("_Stored", DataFile, Tombstones, PendingRun)


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table at one version: everything that its readers need. It is never changed in place.

    Attributes:
        version: Delta's version.
        timestamp_ms: When that version was committed, in milliseconds since 1970 UTC; strictly growing.
        table_id: Delta's ``metaData.id``. A table of the same name that is created later has another id.
        definition: Schema, keys, options.
        files: The live files by relative path.
        app_versions: Delta's ``txn``: streaming queries' batch ids, and the log's end offsets.
        domains: Delta's ``domainMetadata`` configurations that are not removed.
        created_ms: When the table was created, in milliseconds since 1970 UTC.
        fences: Whether the table's protocol says that writers respect fences (`filestore.commit.fence`).
        catalog_commits: Whether the table's protocol says that writers claim versions in the catalog's database.
    """

    version: int
    timestamp_ms: int
    table_id: str
    definition: TableDefinition
    files: Mapping[str, DataFile] = field(default_factory=dict)
    app_versions: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    fences: bool = False
    catalog_commits: bool = False
    _log: LogState | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def log(self) -> LogState:
        """The state of the table's log at this version; decoded at its first use."""
        if self._log is None:
            object.__setattr__(self, "_log", _log_state(self.app_versions, self.domains))
        assert self._log is not None
        return self._log

    @property
    def positions(self) -> dict[str, int]:
        """The positions up to which writers have read the parts of their input, by part (`AppVersion.positions`)."""
        return {
            app.removeprefix(POSITION_APP): at for app, at in self.app_versions.items() if app.startswith(POSITION_APP)
        }

    def slots(self) -> dict[Slot, tuple[DataFile, ...]]:
        """Returns the live files by slot. Their order within a slot is not defined."""
        return _by_slot(self.files.values())

    def pending(self) -> dict[Slot, tuple[PendingRun, ...]]:
        """Returns the runs that no fold has merged yet, by slot, in the order in which they apply."""
        runs = (pending_run(text, self.definition.partition_by) for text in self._configurations(RUN_DOMAIN))
        return _by_slot(sorted(runs, key=lambda run: (run.version, run.path)))

    def tombstones(self) -> dict[Slot, tuple[Tombstones, ...]]:
        """Returns the runs of deleted keys by slot, the oldest first."""
        runs = (tombstones(text, self.definition.partition_by) for text in self._configurations(TOMBSTONES_DOMAIN))
        return _by_slot(sorted(runs, key=lambda run: (run.modified_ms, run.path)))

    def _configurations(self, prefix: str) -> Iterator[str]:
        return (text for domain, text in self.domains.items() if domain.startswith(prefix))

    def lookup_files(self, now_ms: int) -> dict[Slot, tuple[DataFile, ...]]:
        """Returns what a write looks its keys up in, by slot: live files, and tombstones that are still remembered."""
        remembered_ms = now_ms - self.definition.tombstone_retention_ms
        by_slot = self.slots()
        for slot, runs in self.tombstones().items():
            if young := tuple(run for run in runs if run.modified_ms >= remembered_ms):
                by_slot[slot] = (*by_slot.get(slot, ()), *young)
        return by_slot

    def next(self, version: int, actions: Iterable[Action]) -> TableState:
        """Returns the state after a commit.

        Raises:
            Corrupt: the commit is not the next version, or an action is not as FORMAT.md says.
        """
        if version != self.version + 1:
            raise Corrupt(f"version {version} cannot follow version {self.version}", code="version-gap")
        with _entry(version):
            return _apply(self, version, list(actions))

    def follows_from(self, actions: Iterable[Action]) -> bool:
        """Returns whether the state has what the last of its commits says: what it added, and not what it removed."""
        with _entry(self.version):
            after = _apply(self, self.version, list(actions))
        return all(
            found == expected
            for found, expected in [
                (self.table_id, after.table_id),
                (self.files.keys(), after.files.keys()),
                (self.app_versions, after.app_versions),
                (self.domains, after.domains),
            ]
        )

    @classmethod
    def initial(cls, version: int, actions: Iterable[Action]) -> TableState:
        """Returns the state of version 0 or of a checkpoint, whose actions describe the whole table."""
        listed = list(actions)
        metadata = next((a["metaData"] for a in listed if "metaData" in a), None)
        if metadata is None:
            raise Corrupt(f"version {version} has no metaData action", code="no-metadata")
        with _entry(version):
            definition = TableDefinition.from_delta(metadata)
            created_ms = int(metadata.get("createdTime") or 0)
            return _apply(cls(version, 0, metadata["id"], definition, created_ms=created_ms), version, listed)


def _entry(version: int) -> AbstractContextManager[None]:
    return well_formed(f"the log entry of version {version}", code="bad-log-entry")


def _by_slot(files: Iterable[_Stored]) -> dict[Slot, tuple[_Stored, ...]]:
    by_slot: dict[Slot, list[_Stored]] = {}
    for file in files:
        by_slot.setdefault(file.slot, []).append(file)
    return {slot: tuple(listed) for slot, listed in by_slot.items()}


def _log_state(app_versions: Mapping[str, int], domains: Mapping[str, str]) -> LogState:
    with _of_log():
        domain = json.loads(domains.get(LOG_DOMAIN, "{}"))
        return LogState(
            offsets={
                int(app.removeprefix(LOG_OFFSET_APP)): version
                for app, version in app_versions.items()
                if app.startswith(LOG_OFFSET_APP)
            },
            identity=domain.get("identity", {}),
            open=tuple(LogTransaction.from_json(t) for t in domain.get("open", ())),
            repaired={int(bucket): offset for bucket, offset in domain.get("repaired", {}).items()},
            begins=log_begins(domains),
        )


def log_begins(domains: Mapping[str, str]) -> int:
    """Returns the version with which the log begins by a table's domains, or by a commit's; 0 without one.

    Versions of 2026-11-28 had it in the domain of the log, whose other members older writers drop. They repeat the
    other domain, so the later of both is the one.

    Raises:
        Corrupt: ``bad-log-entry``.
    """
    with _of_log():
        own = int(json.loads(domains.get(LOG_BEGINS_DOMAIN, "{}")).get("version", 0))
        return max(own, int(json.loads(domains.get(LOG_DOMAIN, "{}")).get("begins", 0)))


def _of_log() -> AbstractContextManager[None]:
    return well_formed("what the Delta log says of the table's log", code="bad-log-entry")


def _apply(state: TableState, version: int, actions: list[Action]) -> TableState:
    files, apps, domains = dict(state.files), dict(state.app_versions), dict(state.domains)
    timestamp, definition, table_id, fences = state.timestamp_ms, state.definition, state.table_id, state.fences
    catalog_commits = state.catalog_commits
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
            fences = FENCES in (protocol.get("writerFeatures") or ())
            catalog_commits = CATALOG_COMMITS in (protocol.get("writerFeatures") or ())
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
        fences=fences,
        catalog_commits=catalog_commits,
    )


def _move_files(files: dict[str, DataFile], actions: list[Action], definition: TableDefinition) -> None:
    """Applies adds and removes to the files: removes first, since a new vector is a remove and an add of one path."""
    for action in actions:
        if (remove := action.get("remove")) is not None:
            files.pop(file_key(remove), None)
    for action in actions:
        if (add := action.get("add")) is not None:
            file = data_file(add, definition.partition_by)
            if definition.sort_key and (file.min_key is None or file.max_key is None):
                raise ValueError(f"{file.path} has no key tags")
            files[file.path] = file


def snapshot_of(version: int, actions: Iterable[Action], log_offsets: Mapping[int, int]) -> Snapshot:
    """Returns the snapshot that a commit's actions describe; `log_offsets` are those after it."""
    info = next((a["commitInfo"] for a in actions if "commitInfo" in a), None)
    if info is None:
        raise Corrupt(f"version {version} has no commitInfo", code="no-commit-info")
    with _entry(version):
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
            fenced=tuple(own.get("fenced", ())),
            restores=own.get("restores"),
            unread=bool(own.get("unread")),
            metrics={name: int(value) for name, value in info["operationMetrics"].items()},
            notes=tuple(own.get("notes", ())),
        )
