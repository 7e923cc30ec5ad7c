"""Helpers that commit to a `FileStore` directly, in a few lines, and read a table with every available reader."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa

from filestore.ambient import Ambient, system_ambient
from filestore.changelog.images import recorded
from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed
from filestore.commit.proposal import AppVersion, FileChanges, Premises, Proposal
from filestore.delta.by_slot import LookupFiles
from filestore.delta.state import TableState
from filestore.doctor import Report, examine
from filestore.errors import Conflict
from filestore.files.leftovers import remove
from filestore.files.live_rows import read_file
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot
from filestore.model.partition_set import ALL_PARTITIONS, NO_PARTITIONS
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.snapshot import Operation
from filestore.model.sql import parse_columns
from filestore.operations.replaced_rows import ReplacedRows, changes_in_threads
from filestore.rows.casting import cast_rows
from filestore.sorting.order import sort_rows
from filestore.storage.interface import Storage
from filestore.storage.locations import storage_of
from filestore.table import FileStore
from filestore.writing.fold import fold, rebase_slot
from filestore.writing.slot_result import ChangeSink, written_files
from filestore.writing.write import WriteResult, rests_on_rows, write_sorted

__all__ = [
    "Clock",
    "PreparedWrite",
    "assert_healthy",
    "by_slot",
    "create",
    "define",
    "in_order",
    "paths",
    "prepare",
    "read",
    "read_deltalake",
    "read_polars",
    "reopen",
    "seeded",
    "storage_at",
    "to_arrow",
    "write",
]

Row = Mapping[str, Any]
NO_LOG = {"log.system": "none"}


@dataclass(slots=True)
class Clock:
    """A clock that tests set."""

    ms: int = 1_700_000_000_000
    step_ms: int = 1

    def __call__(self) -> int:
        self.ms += self.step_ms
        return self.ms


def seeded(seed: int = 0, clock: Clock | None = None) -> Ambient:
    """Clock, ids and chance that are the same in each run; retries do not sleep."""
    dice = random.Random(seed)
    return Ambient(
        now_ms=clock or Clock(),
        new_id=lambda: str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        chance=dice.random,
        sleep=lambda _: None,
    )


def define(
    columns: str, key: Sequence[str] = (), partition_by: Sequence[str] = (), **options: object
) -> TableDefinition:
    """A definition from SQL; options by name with ``_`` for ``.`` and ``__`` for ``-``."""
    named = {name.replace("__", "-").replace("_", "."): str(value) for name, value in options.items()}
    return TableDefinition.of(parse_columns(columns, key), key, partition_by, NO_LOG | named)


def storage_at(location: Path | str) -> Storage:
    """The storage of a location, as a process has it that knows nothing yet: S3 is reached as the environment says."""
    return storage_of(str(location))


def create(
    folder: Path | str,
    definition: TableDefinition,
    storage: Storage | None = None,
    ambient: Ambient | None = None,
) -> FileStore:
    """A new table."""
    ambient = ambient or system_ambient()
    return FileStore.create(storage or storage_at(folder), str(folder), definition, ambient.new_id(), ambient)


def reopen(store: FileStore, storage: Storage | None = None) -> FileStore:
    """The same table, seen by a process that knows nothing yet."""
    return FileStore.open(storage or storage_at(store.location), store.location, store.ambient)


def to_arrow(definition: TableDefinition, rows: Iterable[Row]) -> pa.Table:
    """Rows as the table's schema; with `KIND_COLUMN` if one of them has it."""
    listed = [dict(row) for row in rows]
    fields = [f.with_nullable(True) for f in definition.schema.to_arrow()]
    if any(KIND_COLUMN in row for row in listed):
        fields.append(pa.field(KIND_COLUMN, pa.string()))
        listed = [{KIND_COLUMN: "+I", **row} for row in listed]
    return pa.Table.from_pylist(listed, schema=pa.schema(fields))


@dataclass(slots=True)
class PreparedWrite:
    """A write whose files are there and whose commit is still to come."""

    store: FileStore
    base: TableState
    result: WriteResult
    proposal: Proposal
    log: ChangeSink | None = None
    rebases: list[frozenset[Slot]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    replaced: ReplacedRows = field(default_factory=ReplacedRows)
    anew: Callable[[], PreparedWrite] | None = None

    def commit(self) -> Committed:
        """Commits it, and does it again as often as the rows that it rests on are other ones by then."""
        try:
            return self.store.commit_version(self.base, self.proposal, self._rebase)
        except Conflict as error:
            if error.code != "merged-rows-changed" or self.anew is None:
                raise
        remove(self.store.table_files(self.base), written_files(self.result.results))
        self.records.clear()  # the transaction in the log is aborted
        other = self.anew()
        self.base, self.result, self.proposal, self.replaced = other.base, other.result, other.proposal, other.replaced
        return self.commit()

    def _rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        self.rebases.append(changed.slots)
        if proposal.operation.replaces_partitions:
            return self.replaced.of_overwrite(self.store.table_files(state), state, proposal, changed.rows_changed)
        rested = [result for result in self.result.results if result.slot in changed.rows_changed]
        if rested and rests_on_rows(state.definition, rested, logged=self.log is not None):
            raise Conflict("the rows that this write rests on changed", code="merged-rows-changed")
        table, live = self.store.table_files(state), state.lookup_files(self.store.ambient.now_ms())
        log = None if state.definition.logs_images else self.log
        stale = self.result.to_look_up_again(changed.slots, state.definition)
        again = [rebase_slot(table, live.of(r.slot), r, log) for r in stale]
        self.result = self.result.with_slots(again)
        return self.result.apply(proposal)


def prepare(
    store: FileStore,
    rows: Iterable[Row] | pa.Table,
    *,
    overwrite: bool = False,
    app: AppVersion | None = None,
    commit_id: str | None = None,
    base: TableState | None = None,
    log: ChangeSink | None = None,
    later: bool = False,
    skip_unchanged: bool = False,
) -> PreparedWrite:
    """Folds rows into new files (or leaves them as runs), on the newest version or a given one."""
    base = base or store.state()
    definition = base.definition
    table = rows if isinstance(rows, pa.Table) else to_arrow(definition, rows)
    batches = sort_rows(table, definition).to_batches()
    live = LookupFiles() if overwrite else base.lookup_files(store.ambient.now_ms())
    producer = recorded(definition, empty=not live, overwrite=overwrite)
    job = store.table_files(base)
    result = WriteResult(
        tuple(write_sorted(job, live, batches, log, producer, later=later, skip_unchanged=skip_unchanged))
    )
    looked_up = definition.primary_key and not overwrite and not later
    touched = frozenset(r.slot for r in result.results) if looked_up else frozenset()
    proposal = Proposal(
        operation=Operation.OVERWRITE if overwrite else Operation.WRITE,
        commit_id=commit_id or store.ambient.new_id(),
        base_version=base.version,
        files=FileChanges(replaces=ALL_PARTITIONS if overwrite else NO_PARTITIONS),
        premises=Premises(slots=touched),
        app=app,
    )
    proposal, replaced = result.apply(proposal), ReplacedRows(changes_in_threads)
    if overwrite:
        proposal = replaced.of_overwrite(store.table_files(base), base, proposal)
    how: dict[str, Any] = {"app": app, "commit_id": proposal.commit_id, "log": log}
    again = None if later or overwrite else lambda: prepare(store, table, **how)
    return PreparedWrite(store, base, result, proposal, log, replaced=replaced, anew=again)


def write(store: FileStore, rows: Iterable[Row] | pa.Table, **how: Any) -> Committed:
    """Writes rows as one commit; keywords as in `prepare`."""
    return prepare(store, rows, **how).commit()


def in_order(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows in an order that depends on their values only."""
    return sorted((dict(row) for row in rows), key=lambda row: repr(sorted(row.items())))


def read(store: FileStore, version: int | None = None) -> list[dict[str, Any]]:
    """All rows by our own reader."""
    state = store.state(version)
    table = store.table_files(state)
    parts = itertools.chain.from_iterable(read_file(table, file) for file in state.files)
    return in_order(row for part in parts for row in part.to_pylist())


def read_polars(location: str, version: int | None = None) -> list[dict[str, Any]]:
    """All rows by polars, which knows nothing of us."""
    options = storage_at(location).delta_options(location) or None
    return in_order(pl.scan_delta(location, version=version, storage_options=options).collect().to_dicts())


def read_deltalake(location: str, version: int | None = None) -> list[dict[str, Any]]:
    """All rows by delta-rs."""
    options = storage_at(location).delta_options(location) or None
    table = deltalake.DeltaTable(location, version=version, storage_options=options)
    found = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    schema = pa.schema(table.schema().to_arrow())
    return in_order(cast_rows(pa.table(found), schema).to_pylist())


def paths(state: TableState) -> set[str]:
    """Returns the paths of a version's files."""
    return {file.path for file in state.files}


def by_slot(state: TableState) -> list[tuple[DataFile, ...]]:
    """Returns the files of each slot."""
    return [state.files.of(slot) for slot in state.files.slots]


def assert_healthy(store: FileStore) -> Report:
    """The doctor finds no problem."""
    report = examine(store)
    assert report.healthy, "\n".join(f"{f.code}: {f.message}" for f in report.problems)
    return report


def with_options(definition: TableDefinition, **options: object) -> TableDefinition:
    """The definition with more options."""
    named = {name.replace("__", "-").replace("_", "."): str(value) for name, value in options.items()}
    given = definition.options.as_dict() | named
    return replace(definition, options=type(definition.options).parse(given))


def fold_rows(store: FileStore, slot: Slot, rows: Iterable[Row]) -> Any:
    """Folds rows of one slot in one chunk."""
    state = store.state()
    return fold(store.table_files(state), slot, state.files.of(slot), [to_arrow(state.definition, rows)])
