"""Represents a version of a table as a value, and applies a commit's actions to it (FORMAT.md section 2).

Pure: the functions take parsed actions and return a new `TableState` (Delta protocol, "Action Reconciliation").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

import pyarrow as pa

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
    slot_of,
    tombstones,
)
from filestore.delta.adds import totals_of
from filestore.delta.by_slot import BySlot, LookupFiles
from filestore.delta.columns import ColumnFiles
from filestore.delta.totals import FileTotals
from filestore.errors import Corrupt
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, PendingRun, Slot, Tombstones
from filestore.model.log_range import LogState, LogTransaction
from filestore.model.snapshot import Operation, Snapshot

__all__ = ["Replayed", "TableState", "log_begins", "snapshot_of"]

_Run = TypeVar("_Run", PendingRun, Tombstones)
_NO_FILES: BySlot[DataFile] = BySlot()


@dataclass(frozen=True, slots=True)
class Replayed:
    """The entries that were read to get from a checkpoint to a version: a later checkpoint spares readers so much.

    Attributes:
        since: The version of the checkpoint; 0 if there was none.
        actions: How many actions the entries had.
    """

    since: int
    actions: int = 0


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table at one version: everything that its readers need. It is never changed in place.

    Attributes:
        version: Delta's version.
        timestamp_ms: When that version was committed, in milliseconds since 1970 UTC; strictly growing.
        table_id: Delta's ``metaData.id``. A table of the same name that is created later has another id.
        definition: Schema, keys, options.
        files: The live files.
        totals: Sums over these.
        pending: The runs that no fold has merged yet; those of a slot in the order in which they apply.
        tombstones: The runs of deleted keys; those of a slot from the oldest on.
        app_versions: Delta's ``txn``: streaming queries' batch ids, and the log's end offsets.
        domains: Delta's ``domainMetadata`` configurations that are not removed.
        metadata: Delta's ``metaData``, without members that are null.
        protocol: Delta's ``protocol``, likewise; its features are sorted.
        replayed: What had to be read to get here.
        compacted: The files of this version or an earlier one, in which no slot needed compaction, if that is known.
    """

    version: int
    timestamp_ms: int
    table_id: str
    definition: TableDefinition
    files: BySlot[DataFile] = field(default_factory=BySlot)
    totals: FileTotals = field(default_factory=FileTotals)
    pending: BySlot[PendingRun] = field(default_factory=lambda: BySlot((), _applied))
    tombstones: BySlot[Tombstones] = field(default_factory=lambda: BySlot((), _age))
    app_versions: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    protocol: Action = field(default_factory=dict)
    replayed: Replayed = field(default_factory=lambda: Replayed(0), compare=False)
    compacted: BySlot[DataFile] | None = field(default=None, compare=False, repr=False)
    _log: LogState | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def created_ms(self) -> int:
        """The time at which the table was created, in milliseconds since 1970 UTC."""
        return int(self.metadata.get("createdTime") or 0)

    @property
    def fences(self) -> bool:
        """True if the table's protocol says that writers respect fences (`filestore.commit.fence`)."""
        return FENCES in self.protocol.get("writerFeatures", ())

    @property
    def catalog_commits(self) -> bool:
        """True if the table's protocol says that writers claim versions in the catalog's database."""
        return CATALOG_COMMITS in self.protocol.get("writerFeatures", ())

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

    def named(self, action: Action) -> DataFile | None:
        """Returns the file of an ``add`` or a ``remove``, as it is in this version; None if it is not."""
        return self.files.get(file_key(action), slot_of(action, self.definition.partition_by))

    def lookup_files(self, now_ms: int) -> LookupFiles:
        """Returns what a write looks its keys up in at that time."""
        return LookupFiles(self.files, self.tombstones, now_ms - self.definition.tombstone_retention_ms)

    def next(self, version: int, actions: Iterable[Action]) -> TableState:
        """Returns the state after a commit.

        Raises:
            Corrupt: the commit is not the next version, or an action is not as FORMAT.md says.
        """
        if version != self.version + 1:
            raise Corrupt(f"version {version} cannot follow version {self.version}", code="version-gap")
        with _entry(version):
            return _apply(self, version, list(actions))

    def with_checkpoint(self, version: int) -> TableState:
        """Returns the same version, of which an earlier or this version has a checkpoint.

        The actions since are estimated: as if all entries since the former one had as many.
        """
        last, entries = self.replayed, self.version - self.replayed.since
        left = last.actions * (self.version - version) // entries if entries else 0
        return replace(self, replayed=Replayed(version, left))

    def with_columns(self, files: ColumnFiles, of: TableState) -> TableState:
        """Returns the same version, which keeps its files as those of an earlier version and what changed since."""
        compacted = None if self.compacted is None else self.compacted.rebased(files, of.files)
        return replace(self, files=self.files.rebased(files, of.files), compacted=compacted)

    def to_compact(self, least: int) -> Iterator[tuple[Slot, Collection[DataFile]]]:
        """Returns the slots that may need compaction, with their files: those that changed since `note_compacted`.

        Args:
            least: The least number of files that need it without a deleted row.
        """
        if self.compacted is None:
            return self.files.crowded(least)
        return ((slot, self.files.of(slot)) for slot in self.files.differing(self.compacted))

    def note_compacted(self) -> None:
        """Notes that no slot needs compaction by the table's options: later versions ask for those that change."""
        object.__setattr__(self, "compacted", self.files)

    def same(self, other: TableState) -> bool:
        """Returns whether two states are equal. It takes less than `==` where files are columns."""
        if replace(self, files=_NO_FILES) != replace(other, files=_NO_FILES) or len(self.files) != len(other.files):
            return False
        by = self.definition.partition_by
        mine, others = ColumnFiles.of(self.files, by), ColumnFiles.of(other.files, by)
        return not any(True for _ in mine.differing(others))

    def follows_from(self, actions: Iterable[Action]) -> bool:
        """Returns whether the state has what the last of its commits says, but for files."""
        listed = list(actions)
        with _entry(self.version):
            apps = {a["txn"]["appId"]: a["txn"]["version"] for a in listed if "txn" in a}
            named = [a["domainMetadata"] for a in listed if "domainMetadata" in a]
            domains = {d["domain"]: None if d["removed"] else d["configuration"] for d in named}
            ids = {a["metaData"]["id"] for a in listed if "metaData" in a}
        return (
            ids <= {self.table_id}
            and all(self.app_versions.get(app) == version for app, version in apps.items())
            and all(self.domains.get(name) == text for name, text in domains.items())
        )

    @classmethod
    def initial(cls, version: int, actions: Iterable[Action], adds: pa.StructArray | None = None) -> TableState:
        """Returns the state of version 0 or of a checkpoint, whose actions describe the whole table.

        Args:
            version: The version.
            actions: The actions.
            adds: Further ``add`` actions, as a checkpoint has them.
        """
        listed = list(actions)
        metadata = next((a["metaData"] for a in listed if "metaData" in a), None)
        if metadata is None:
            raise Corrupt(f"version {version} has no metaData action", code="no-metadata")
        with _entry(version):
            definition = TableDefinition.from_delta(metadata)
            begun = cls(version, 0, metadata["id"], definition)
            if adds is not None:
                columns = ColumnFiles(adds, definition.partition_by, sorted_by_key=bool(definition.sort_key))
                begun = replace(begun, files=BySlot.on(columns), totals=totals_of(adds))
            return replace(_apply(begun, version, listed), replayed=Replayed(version))


def _entry(version: int) -> AbstractContextManager[None]:
    return well_formed(f"the log entry of version {version}", code="bad-log-entry")


def _applied(run: PendingRun) -> tuple[int, str]:
    return run.version, run.path


def _age(run: Tombstones) -> tuple[int, str]:
    return run.modified_ms, run.path


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
    apps, domains = dict(state.app_versions), dict(state.domains)
    timestamp, definition, table_id = state.timestamp_ms, state.definition, state.table_id
    metadata, protocol = state.metadata, state.protocol
    files, totals = _moved_files(state, actions)
    named = dict.fromkeys(action["domainMetadata"]["domain"] for action in actions if "domainMetadata" in action)
    for action in actions:
        if (txn := action.get("txn")) is not None:
            apps[txn["appId"]] = txn["version"]
        elif (domain := action.get("domainMetadata")) is not None:
            if domain["removed"]:
                domains.pop(domain["domain"], None)
            else:
                domains[domain["domain"]] = domain["configuration"]
        elif (found := action.get("metaData")) is not None:
            definition, table_id, metadata = TableDefinition.from_delta(found), found["id"], _given(found)
            int(found.get("createdTime") or 0)  # damage is found when it is read, and not by `created_ms`
        elif (found := action.get("protocol")) is not None:
            check_protocol(found)
            protocol = {name: sorted(v) if isinstance(v, list) else v for name, v in _given(found).items()}
        elif (info := action.get("commitInfo")) is not None:
            timestamp = int(info["inCommitTimestamp"])
    return replace(
        state,
        version=version,
        timestamp_ms=timestamp,
        table_id=table_id,
        definition=definition,
        files=files,
        totals=totals,
        pending=_moved_runs(state.pending, RUN_DOMAIN, pending_run, state, domains, named),
        tombstones=_moved_runs(state.tombstones, TOMBSTONES_DOMAIN, tombstones, state, domains, named),
        app_versions=apps,
        domains=domains,
        metadata=metadata,
        protocol=protocol,
        compacted=state.compacted if definition is state.definition else None,
        replayed=replace(state.replayed, actions=state.replayed.actions + len(actions)),
    )


def _given(action: Action) -> Action:
    """Leaves out members that are null: a checkpoint has them, and an entry does not."""
    return {name: value for name, value in action.items() if value is not None}


def _moved_files(state: TableState, actions: list[Action]) -> tuple[BySlot[DataFile], FileTotals]:
    """Applies adds and removes to the files: removes first, since a new vector is a remove and an add of one path."""
    definition = state.definition
    removes = (action["remove"] for action in actions if "remove" in action)
    gone = {file_key(remove): slot_of(remove, definition.partition_by) for remove in removes}
    come = [data_file(action["add"], definition.partition_by) for action in actions if "add" in action]
    for file in come:
        if definition.sort_key and (file.min_key is None or file.max_key is None):
            raise ValueError(f"{file.path} has no key tags")
    files = state.files.changed(gone.items(), come)
    named = gone | {file.path: file.slot for file in come}
    return files, state.totals.changed(state.files.some(named), files.some(named))


def _moved_runs(
    runs: BySlot[_Run],
    prefix: str,
    read: Callable[[str, Sequence[str]], _Run],
    state: TableState,
    domains: Mapping[str, str],
    named: Iterable[str],
) -> BySlot[_Run]:
    """Returns the runs after a commit that names domains, each of which has one run; `domains` are those after it."""
    own = [name for name in named if name.startswith(prefix)]
    gone, come = (
        [read(texts[name], state.definition.partition_by) for name in own if name in texts]
        for texts in (state.domains, domains)
    )
    return runs.changed([(run.path, run.slot) for run in gone], come)


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
            parameters=info.get("operationParameters") or {},
            read_version=info.get("readVersion"),
            notes=tuple(own.get("notes", ())),
        )
