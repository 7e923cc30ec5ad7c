"""The actions of the simulation: each is one public call, with the errors that it may raise."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from compaction.compact import compact_table
from compaction.tombstones import clean_tombstones
from filestore.errors import CommitUnknown, TableStoreError, Unavailable
from filestore.model.snapshot import Snapshot
from filestore.operations.fold import fold_table
from filestore.retention.rules import first_retained, tags_of
from tablestore import Table
from tests.faults import Killed
from tests.opened import again
from tests.simulation.faults import Process, Work, World
from tests.simulation.oracle import Alter, Drop, Oracle, Overwrite, Write
from tests.simulation.shapes import Row
from tests.tables import in_order

__all__ = ["Actor", "keeper", "reader", "retained", "writer"]

_TYPES = {"id": pa.int64(), "p": pa.string(), "s": pa.int32(), "v": pa.string(), "n": pa.int64(), "_kind": pa.string()}
_LOST = frozenset({"too-many-races", "base-expired", "metadata-changed", "file-gone", "run-gone"})


@dataclass(frozen=True, slots=True)
class Deed:
    """One action.

    Attributes:
        name: What it does.
        do: Performs it.
        errors: Codes of errors that other actors' commits may cause.
        intent: How its commit changes the rows, if it does.
        single: Whether it commits at most once, so that an error means that nothing was committed.
    """

    name: str
    do: Callable[[Table], object]
    errors: frozenset[str] = frozenset()
    intent: object = None
    single: bool = False


@dataclass(eq=False)
class Actor:
    """A program that performs one action after the other. If it is killed, a new process replaces it."""

    world: World
    oracle: Oracle
    name: str
    choose: Callable[[Actor], Deed]
    process: Process | None = None
    table: Table | None = None
    number: int = 0
    unsure: Write | None = None
    lives: int = 0
    work: Work | None = None

    @property
    def dice(self) -> random.Random:
        return self.world.dice

    def step(self) -> None:
        """Performs one action, and checks its result or error."""
        if self.process is None:
            self.lives += 1
            self.process = Process(self.world, f"{self.name}.{self.lives}")
        self.number += 1
        deed = self.choose(self)
        self.work = self.process.work = Work(f"{deed.name} {self.name}/{self.number}", self.world.now_ms, deed.intent)
        self.world.note(f"{self.work.name} begins")
        outcome = self._outcome(deed, self.work)
        self.world.counts[f"{deed.name}: {outcome}"] += 1
        self.world.note(f"{self.work.name} ends: {outcome}")
        self.work = None

    def _outcome(self, deed: Deed, work: Work) -> str:
        try:
            result = deed.do(self._opened())
        except Killed:
            self.process = self.table = None
            return "killed"
        except TableStoreError as error:
            if isinstance(error, Unavailable):
                assert work.faults, f"{work.name}: {error} without a fault"
            elif error.code not in deed.errors:
                raise AssertionError(f"{work.name} ended with {error.code}: {error}") from error
            if deed.single and not isinstance(error, CommitUnknown):
                assert not work.versions, f"{work.name} committed {work.versions} and ended with {error!r}"
            self.unsure = self.unsure if isinstance(error, Unavailable) else None
            return error.code
        if deed.single and isinstance(result, Snapshot):
            self._acknowledged(deed, work, result)
        self.unsure = None
        return "done"

    def _acknowledged(self, deed: Deed, work: Work, snapshot: Snapshot) -> None:
        """Asserts that a commit that is reported exists, once, and is the actor's own."""
        intent = deed.intent
        if isinstance(intent, Write) and intent.app is not None:
            app, number = intent.app
            assert self.oracle.numbers[app][0] == number, f"{work.name} was reported and is in no version"
            if work.versions:
                assert snapshot.version == work.versions[0]
            return
        if isinstance(intent, Write) and all(map(self.oracle.shape.ignores, intent.rows)):
            assert not work.versions, f"{work.name} had nothing to write, and committed {work.versions}"
            return
        assert work.versions[:1] == [snapshot.version], f"{work.name}: version {snapshot.version}, {work.versions}"

    def _opened(self) -> Table:
        if self.table is None:
            assert self.process is not None
            process = self.process
            self.table = again(self.oracle.reader, storage=process.storage, ambient=process.ambient)
        return self.table


def _frame(rows: list[Row]) -> pa.Table:
    names = list(rows[0]) if rows else ["id", "p", "s", "v", "n"]
    schema = pa.schema([(name, _TYPES.get(name, pa.int32())) for name in names])
    return pa.Table.from_pylist(rows, schema=schema)


def _rows(actor: Actor, *, deletes: bool, partitions: frozenset[str] | None = None) -> list[Row]:
    """Returns some changes with the columns that the table has now."""
    columns = {*actor.oracle.history[actor.oracle.newest].columns, "_kind"}
    shape, name = actor.oracle.shape, f"{actor.name}/{actor.number}"
    rows = [shape.row(actor.dice, name, deletes=deletes) for _ in range(actor.dice.randrange(1, 7))]
    if partitions is not None:
        rows = [row | {"p": actor.dice.choice(sorted(partitions))} for row in rows]
    added = {column: actor.dice.randrange(9) for column in sorted(columns - rows[0].keys())}
    return [{name: value for name, value in (row | added).items() if name in columns} for row in rows]


def writer(actor: Actor) -> Deed:
    """Upserts and deletes, and repeats them if their result is unknown; overwrites; drops partitions."""
    dice, shape = actor.dice, actor.oracle.shape
    changed = _LOST | {"unknown-column"}
    if actor.unsure is not None:
        intent = actor.unsure
        return Deed("retry", lambda table: table.write(_frame(intent.rows), app=intent.app), changed, intent, True)
    chance = dice.random()
    if chance < 0.85:
        app = (actor.name, actor.number) if dice.random() < 0.5 else None
        intent = Write(_rows(actor, deletes=True), app)
        actor.unsure = intent if app else None
        return Deed("write", lambda table: table.write(_frame(intent.rows), app=app), changed, intent, True)
    if not shape.partitioned or chance < 0.9:
        over = Overwrite(_rows(actor, deletes=False))
        return Deed("overwrite", lambda table: table.write(_frame(over.rows), True), changed, over, True)
    part = dice.choice("xy")
    if chance < 0.95:
        rows = _rows(actor, deletes=False, partitions=frozenset(part))
        over, how = Overwrite(rows, frozenset(part)), dice.choice(["dynamic", {"p": part}])
        return Deed("overwrite part", lambda table: table.write(_frame(rows), how), changed, over, True)
    return Deed("drop", lambda table: table.drop_partitions([{"p": part}]), _LOST, Drop(part), True)


def keeper(actor: Actor) -> Deed:
    """Maintains a table: folds, compactions, expiry, clean-ups, tags, rollbacks, changed columns."""
    deeds = [
        (4, _fold),
        (4, _compact),
        (2, _clean_tombstones),
        (3, _expire),
        (1, _clean),
        (2, _tag),
        (1, _rollback),
        (1, _alter),
    ]
    chosen = actor.dice.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])[0]
    return chosen(actor)


def _fold(actor: Actor) -> Deed:
    full = actor.dice.random() < 0.5
    errors = _LOST | {"merged-rows-changed"}
    return Deed("fold", lambda table: fold_table(table.filestore, full), errors)


def _compact(actor: Actor) -> Deed:
    full = actor.dice.random() < 0.5
    return Deed("compact", lambda table: compact_table(table.filestore, full), _LOST | {"compaction-conflict"})


def _clean_tombstones(actor: Actor) -> Deed:
    return Deed("clean_tombstones", lambda table: clean_tombstones(table.filestore), _LOST)


def _expire(actor: Actor) -> Deed:
    return Deed("expire", lambda table: table.expire(), frozenset({"too-many-races"}))


def _clean(actor: Actor) -> Deed:
    return Deed("clean", lambda table: table.remove_orphans(dry_run=False))


def _tag(actor: Actor) -> Deed:
    dice, name = actor.dice, actor.dice.choice("abc")
    if dice.random() < 0.4:
        return Deed("untag", lambda table: table.delete_tag(name), frozenset({"no-such-tag"}) | _LOST)
    version = max(0, actor.oracle.newest - dice.randrange(12))
    errors = frozenset({"tag-exists", "snapshot-expired"}) | _LOST
    return Deed("tag", lambda table: table.create_tag(name, version), errors)


def _rollback(actor: Actor) -> Deed:
    version = max(0, actor.oracle.newest - actor.dice.randrange(10))
    errors = _LOST | {
        "snapshot-expired",
        "rollback-over-schema",
        "pending-runs",
        "pending-run-added",
        "merged-rows-changed",
    }
    return Deed("rollback", lambda table: table.rollback(version), errors)


def _alter(actor: Actor) -> Deed:
    columns = actor.oracle.history[actor.oracle.newest].columns
    added = [name for name in columns if name.startswith("x")]
    errors = _LOST | {"pending-run-added", "merged-rows-changed", "column-exists", "unknown-column"}
    if len(added) > 2 or (added and actor.dice.random() < 0.5):
        old = actor.dice.choice(added)
        if actor.dice.random() < 0.5:
            gone = Alter(
                lambda names: tuple(name for name in names if name != old),
                lambda row: {name: value for name, value in row.items() if name != old},
            )
            return Deed("drop column", lambda table: table.alter(f"DROP COLUMN {old}"), errors, gone)
        new = f"x{actor.world.dice.getrandbits(32)}"
        renamed = Alter(
            lambda names: tuple(new if name == old else name for name in names),
            lambda row: {(new if name == old else name): value for name, value in row.items()},
        )
        return Deed("rename", lambda table: table.alter(f"RENAME COLUMN {old} TO {new}"), errors, renamed)
    name = f"x{actor.world.dice.getrandbits(32)}"
    wider = Alter(lambda names: (*names, name), lambda row: {**row, name: None})
    return Deed("add column", lambda table: table.alter(f"ADD COLUMN {name} INT"), errors, wider)


def reader(actor: Actor) -> Deed:
    """Reads a version: it stays readable if a consumer holds it; else it may have expired."""
    oldest = min(retained(actor.oracle.reader))
    back = actor.dice.choice([0, 2, 12])  # older versions expire first
    version = actor.dice.choice([oldest, max(0, actor.oracle.newest - back)])
    if actor.dice.random() < 0.6:
        return Deed("held read", lambda table: _read_held(actor, table, version), frozenset({"snapshot-expired"}))
    return Deed("read", lambda table: _read(actor, table, version), frozenset({"snapshot-expired"}))


def _read(actor: Actor, table: Table, version: int) -> None:
    found = in_order(table.scan(version=version).to_arrow().to_pylist())
    expected = in_order(actor.oracle.history[version].rows.values())
    assert found == expected, f"{actor.name} reads other rows in version {version}: {found}, not {expected}"


def _read_held(actor: Actor, table: Table, version: int) -> None:
    with table.consumer(f"{actor.name}-{actor.number}").register(version, rows=True):
        try:
            for _ in range(actor.dice.randrange(1, 16)):
                _read(actor, table, version)
        except TableStoreError as error:
            assert error.code != "snapshot-expired", f"{actor.name} held version {version}, which expired"
            raise


def retained(table: Table) -> list[int]:
    """The versions that have not expired."""
    state = table.filestore.state()
    tagged = {tag.version for tag in tags_of(state).values()}
    return sorted({*range(first_retained(state), state.version + 1), *tagged})
