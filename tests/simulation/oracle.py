"""The expected rows of each version: one dict for each version, computed from what its commit intended to change.

The oracle sees an entry of the log as soon as it is written, even if the writer never gets the reply.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from filestore.ambient import Ambient
from filestore.layout import parse_log_entry
from filestore.model.snapshot import Operation
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore import Table
from tests.model.model import difference
from tests.simulation.faults import Work, World
from tests.simulation.shapes import Held, Row, Shape
from tests.tables import in_order

__all__ = ["Alter", "Drop", "Oracle", "Overwrite", "Write", "raw_reader"]


@dataclass(frozen=True, slots=True)
class Write:
    """Changes of rows, with the app's number if it has one."""

    rows: list[Row]
    app: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Rows that replace those of some partitions, or of the whole table if `partitions` is None."""

    rows: list[Row]
    partitions: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """The removal of a partition."""

    partition: str


@dataclass(frozen=True, slots=True)
class Alter:
    """Functions from a version's columns, and from its rows, to the changed ones."""

    columns: Callable[[tuple[str, ...]], tuple[str, ...]]
    row: Callable[[Row], Row]


@dataclass
class Oracle:
    """The expected history.

    Attributes:
        world: The simulated world.
        shape: The kind of the table.
        reader: The table, on a storage that does not fail.
        history: What each version contains.
        numbers: For each app its last number, and the version that committed it.
        operations: How many commits there were of each operation.
        stray: Entries that were written at numbers of expired versions; their writers have to remove them.
    """

    world: World
    shape: Shape
    reader: Table
    history: dict[int, Held] = field(default_factory=lambda: {0: Held()})
    numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    operations: Counter[str] = field(default_factory=Counter)
    stray: set[int] = field(default_factory=set)

    @property
    def newest(self) -> int:
        return max(self.history)

    def committed(self, work: Work, path: str) -> None:
        """Computes what a new version must contain, and compares its rows."""
        entry = parse_log_entry(path.rpartition("/")[2])
        assert entry is not None
        if entry.version <= self.newest:
            self.stray.add(entry.version)  # its writer slept while versions expired, and must remove it
            return
        assert entry.version == self.newest + 1, f"version {entry.version} follows {self.newest}"
        actions = [json.loads(line) for line in self.world.storage.read(path).splitlines()]
        work.versions.append(entry.version)
        self.history[entry.version] = self._after(entry.version, work, actions)
        self._check(entry.version)

    def removed(self, path: str) -> None:
        entry = parse_log_entry(path.rpartition("/")[2])
        if entry is not None:
            assert entry.version != self.newest, "the newest version was removed"
            self.stray.discard(entry.version)

    def _after(self, version: int, work: Work, actions: list[dict[str, Any]]) -> Held:
        held, info = self.history[version - 1], actions[0]["commitInfo"]
        operation, intent, now_ms = Operation(info["operation"]), work.intent, self.world.now_ms
        self.operations[str(operation)] += 1
        self.world.note(f"version {version} {operation} by {work.name}")
        match operation:
            case Operation.WRITE:
                assert isinstance(intent, Write)
                self._count(version, intent)
                self._same_columns(held, intent.rows)
                return self.shape.merged(held, intent.rows, now_ms)
            case Operation.OVERWRITE:
                assert isinstance(intent, Overwrite)
                self._same_columns(held, intent.rows)
                return self.shape.merged(self._without(held, intent.partitions), intent.rows, now_ms)
            case Operation.DROP_PARTITION:
                assert isinstance(intent, Drop)
                return self._without(held, frozenset([intent.partition]))
            case Operation.ALTER:
                assert isinstance(intent, Alter)
                rows = {key: intent.row(row) for key, row in held.rows.items()}
                return replace(held, rows=rows, columns=intent.columns(held.columns))
            case Operation.ROLLBACK:
                return self._restored(self.history[int(info["operationMetrics"]["restored_version"])], held.columns)
            case Operation.COMPACT | Operation.FOLD | Operation.TAG | Operation.EXPIRE | Operation.FENCE:
                return held
            case _:
                raise AssertionError(f"nobody does {operation}")

    def _count(self, version: int, intent: Write) -> None:
        """Asserts that each number of an app is committed exactly once."""
        if intent.app is not None:
            app, number = intent.app
            last, _ = self.numbers.get(app, (-1, 0))
            assert number > last, f"number {number} of {app} was committed twice"
            self.numbers[app] = number, version

    def _same_columns(self, held: Held, rows: list[Row]) -> None:
        unknown = {name for row in rows for name in row} - {"_kind", *held.columns}
        assert not unknown, f"rows with columns {unknown} were committed"

    @staticmethod
    def _restored(former: Held, columns: tuple[str, ...]) -> Held:
        """The older version's rows with the present columns: a rollback over renamed or dropped columns is refused."""
        assert set(former.columns) <= set(columns), f"{former.columns} were restored over {columns}"
        rows = {key: {name: row.get(name) for name in columns} for key, row in former.rows.items()}
        doubtful = {key: {name: row.get(name) for name in columns} for key, row in former.doubtful.items()}
        return replace(former, rows=rows, doubtful=doubtful, columns=columns)

    @staticmethod
    def _without(held: Held, partitions: frozenset[str] | None) -> Held:
        def stays(key: tuple[Any, ...]) -> bool:
            return partitions is not None and key[1] not in partitions

        rows = {key: row for key, row in held.rows.items() if stays(key)}
        tombstones = {key: tombstone for key, tombstone in held.tombstones.items() if stays(key)}
        return replace(held, rows=rows, tombstones=tombstones)

    def _check(self, version: int) -> None:
        found = self.reader.scan(version=version).to_arrow().to_pylist()
        held = self.history[version]
        if held.doubtful:
            self.history[version] = held = self._resolved(held, found)
        expected = in_order(held.rows.values())
        assert in_order(found) == expected, f"version {version}: {difference(in_order(found), expected)}"

    def _resolved(self, held: Held, found: list[Row]) -> Held:
        """Keeps those doubtful rows that the table contains, if they are as they were written."""
        rows, seen = dict(held.rows), {self.shape.key_of(row): row for row in found}
        for key, row in held.doubtful.items():
            if seen.get(key) == row:
                rows[key] = row
                self.operations["forgotten delete"] += 1
        return replace(held, rows=rows, doubtful={})


def raw_reader(world: World, location: str, table_id: str) -> Table:
    """The table on the storage that does not fail; it neither waits nor uses the seed's random numbers."""
    ambient = Ambient(lambda: world.now_ms, lambda: "0" * 36, lambda: 0.0, lambda _: None)
    return Table(OpenedTable(TableIdentity("sim", "t", table_id, location), world.storage, ambient))
