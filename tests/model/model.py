"""A table and its expected rows: a `FileStore` beside a dict that a few lines of Python maintain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filestore.errors import TableStoreError, Unavailable
from filestore.model import options
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.table import FileStore
from tests.changes import assert_exact, by_deltalake
from tests.faults import FailAt, FaultyStorage, Killed
from tests.tables import (
    Clock,
    PreparedWrite,
    assert_healthy,
    create,
    define,
    in_order,
    prepare,
    read,
    read_deltalake,
    read_polars,
    seeded,
    storage_at,
)

__all__ = ["SHAPES", "Model", "Shape", "apply_rows", "difference", "living", "tiny_row_groups"]

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]


@dataclass(frozen=True, slots=True)
class Shape:
    """The kind of a table: its key, partitions, sequence field, change data, and whether it remembers deletes."""

    name: str
    columns: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    sequence: str | None = None
    remembers: bool = False
    files: str = "128 mb"
    changelog: str = "none"

    def define(self) -> TableDefinition:
        given: dict[str, object] = {
            "bucket": 2,
            "row__group_rows": 3,
            "checkpoint_interval": 4,
            "target__file__size": self.files,
            "changelog__producer": self.changelog,
        }
        if self.sequence:
            retention = "1 d" if self.remembers else "0 s"
            given |= {"sequence_field": self.sequence, "sequence_tombstone__retention": retention}
        return define(self.columns, self.key, self.partition_by, **given)


_ONE = "id BIGINT, p STRING, s INT, v STRING"
_MANY = "name STRING, n INT, p DATE, s BIGINT, v DOUBLE"

SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("bigint", _ONE, ("id",)),
        Shape("bigint-sequence", _ONE, ("id",), sequence="s", files="1 b"),
        Shape("bigint-partitioned", _ONE, ("id", "p"), ("p",)),
        Shape("composite", _MANY, ("name", "n"), files="1 b"),
        Shape("composite-sequence", _MANY, ("name", "n"), sequence="s"),
        Shape("composite-partitioned-sequence", _MANY, ("name", "p", "n"), ("p",), sequence="s", remembers=True),
        Shape("bigint-lookup", _ONE, ("id",), files="1 b", changelog="lookup"),
        Shape("bigint-sequence-lookup", _ONE, ("id",), sequence="s", remembers=True, changelog="lookup"),
        Shape("composite-partitioned-lookup", _MANY, ("name", "p", "n"), ("p",), changelog="lookup"),
    )
}


@contextmanager
def tiny_row_groups() -> Iterator[None]:
    """Allows row groups of a few rows, so that ten rows make several groups and files."""
    name = "row-group.rows"
    before = options.OPTIONS[name]
    options.OPTIONS[name] = replace(before, parse=int)  # type: ignore[index]
    try:
        yield
    finally:
        options.OPTIONS[name] = before  # type: ignore[index]


def living(held: Rows) -> Rows:
    """Returns the rows without the deletes that are remembered."""
    return {at: row for at, row in held.items() if KIND_COLUMN not in row}


def apply_rows(
    stored: Rows, rows: Sequence[Row], key: Sequence[str], sequence: str | None, *, remember: bool = False
) -> Rows:
    """Returns what the deduplicate engine must return, row by row (FORMAT.md section 9).

    Deletes stay in the result, with their row kind, if they are remembered.
    """

    def rank(row: Row) -> tuple[bool, Any]:
        value = row[sequence] if sequence else None
        return (value is not None, value if value is not None else 0)

    best: Rows = {}
    for row in rows:
        at = tuple(row[name] for name in key)
        if at not in best or rank(row) >= rank(best[at]):
            best[at] = row
    after = dict(stored)
    for at, row in best.items():
        if at in after and rank(row) < rank(after[at]):
            continue
        if RowKind(row.get(KIND_COLUMN, "+I")).adds:
            after[at] = {name: value for name, value in row.items() if name != KIND_COLUMN}
        elif remember:
            after[at] = row
        else:
            after.pop(at, None)
    return after


@dataclass
class Model:
    """The table, the dict, every former state of the dict by version, and the expected records of the log."""

    folder: Path | str
    shape: Shape
    seed: int = 0
    held: Rows = field(default_factory=dict)
    history: dict[int, Rows] = field(default_factory=dict)
    pending: PreparedWrite | None = None
    pending_rows: Sequence[Row] = ()
    log: Rows = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.ambient = seeded(self.seed, self.clock)
        self.storage = FaultyStorage(storage_at(self.folder))
        self.definition = self.shape.define()
        self.store = create(f"{self.folder}/table", self.definition, self.storage, self.ambient)
        self.history[0] = {}

    @property
    def rows(self) -> Rows:
        """Reads the table's rows."""
        return living(self.held)

    def write(self, rows: Sequence[Row], *, overwrite: bool = False) -> None:
        """Writes without errors."""
        self._committed(self._prepare(rows, overwrite), rows, overwrite)

    def begin(self, rows: Sequence[Row]) -> None:
        """Prepares a write; others commit before it does."""
        self.pending, self.pending_rows = self._prepare(rows), rows

    def finish(self) -> None:
        """Commits what was begun: it takes effect now, after all commits in between."""
        assert self.pending is not None
        pending, self.pending = self.pending, None
        self._committed(pending, self.pending_rows, overwrite=False)

    def _prepare(self, rows: Sequence[Row], overwrite: bool = False, **how: Any) -> PreparedWrite:
        records: list[Row] = []
        prepared = prepare(
            self.store, rows, overwrite=overwrite, log=lambda _, changes: records.extend(changes.to_pylist()), **how
        )
        prepared.records = records
        return prepared

    def _took_effect(self, version: int, rows: Sequence[Row], overwrite: bool, records: Sequence[Row]) -> None:
        before = {} if overwrite else self.held
        self.held = apply_rows(before, rows, self.shape.key, self.shape.sequence, remember=self.shape.remembers)
        self.history[version] = self.rows
        self.log = {} if overwrite else dict(self.log)
        for record in records:
            at = tuple(record[name] for name in self.shape.key)
            if RowKind(record[KIND_COLUMN]).adds:
                self.log[at] = {name: value for name, value in record.items() if name in self.definition.schema}
            else:
                self.log.pop(at, None)

    def _committed(self, prepared: PreparedWrite, rows: Sequence[Row], overwrite: bool) -> None:
        committed = prepared.commit()
        assert committed.fresh
        self._took_effect(committed.snapshot.version, rows, overwrite, prepared.records)

    def write_failing(self, rows: Sequence[Row], fault: FailAt, *, overwrite: bool = False) -> None:
        """Writes, and the storage fails at one call; a new process finds all of the write or nothing, and retries."""
        before, commit_id = self.store.state(), self.ambient.new_id()
        self.storage.hook = fault
        records: list[Row] = []
        try:
            prepared = self._prepare(rows, overwrite, commit_id=commit_id)
            records = prepared.records
            prepared.commit()
        except (Killed, Unavailable):
            assert fault.fired
        except TableStoreError as error:
            raise AssertionError(f"a storage failure was reported as {error!r}") from error
        self.storage.hook = lambda call: None
        self.restart()
        versions = self.store.delta_log.versions()
        assert versions[-1] - before.version in (0, 1)
        if versions[-1] > before.version:
            assert self.store.snapshot(versions[-1]).commit_id == commit_id
            self._took_effect(versions[-1], rows, overwrite, records)
            again = prepare(self.store, rows, overwrite=overwrite, commit_id=commit_id, base=before).commit()
            assert not again.fresh
            assert self.store.delta_log.versions() == versions, "a retry with the same commit id committed again"

    def restart(self) -> None:
        """Continues as a new process, which knows nothing yet."""
        self.pending = None
        self.store = FileStore.open(self.storage, self.store.location, self.ambient)

    def check(self) -> None:
        """Asserts that the doctor finds nothing and that all readers return the rows."""
        assert_healthy(self.store)
        expected = in_order(self.rows.values())
        for found in (read(self.store), read_polars(self.store.location), read_deltalake(self.store.location)):
            assert found == expected, difference(found, expected)
        replayed = in_order(self.log.values())
        assert replayed == expected, f"the log: {difference(replayed, expected)}"

    def check_history(self) -> None:
        """Asserts that every version still has its rows, and that the changes lead from each version to the next."""
        for version, rows in self.history.items():
            found, expected = read(self.store, version), in_order(rows.values())
            assert found == expected, difference(found, expected)
        if self.shape.changelog != "none":
            assert_exact(self.store, by_deltalake(self.store))


def difference(found: Sequence[Row], expected: Sequence[Row]) -> str:
    """Returns the rows that only one of two lists has."""
    extra = [row for row in found if row not in expected]
    missing = [row for row in expected if row not in found]
    return f"{len(found)} rows instead of {len(expected)}; too much: {extra}; missing: {missing}"
