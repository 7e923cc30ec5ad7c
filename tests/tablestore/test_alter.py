"""Changed columns: old files, log records and versions are read correctly, in both modes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from filestore.errors import CommitUnknown, InvalidRequest, Unavailable, Unsupported
from filestore.model.changes import (
    AddColumn,
    Change,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetNullable,
    SetOption,
    WidenColumn,
)
from filestore.model.definition import TYPE_WIDENING
from filestore.model.snapshot import Operation
from filestore.operations.alter import alter
from filestore.operations.rewrite import TableRewrite
from filestore.rows.reshape import reshaped
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tablestore import Store, Table
from tests.depth import Depth, sampled
from tests.faults import Call, FailAt, FaultyStorage, Killed
from tests.opened import again
from tests.tables import assert_healthy, in_order, read_deltalake, read_polars
from tests.warehouses import assert_whole, changes, keyed, orphans, replay, rows, to_arrow, warehouse

Row = dict[str, Any]
Rows = dict[int, Row]
COLUMNS = "id BIGINT, p STRING, a INT, b STRING, d DECIMAL(5,2), s STRUCT<x: INT>, f FLOAT"
MODES = ("rewrite", "metadata")


def kinded(row: Row) -> Row:
    """Returns a row of a system table in the form that `follow` emits."""
    return {"_kind" if name == "rowkind" else name: value for name, value in row.items()}


def by_id(found: list[Row]) -> Rows:
    listed = {row["id"]: {name: value for name, value in row.items() if name != "_kind"} for row in found}
    assert len(listed) == len(found), "a key appears twice"
    return listed


# ------------------------------------------------------------------------------------------------ random histories


@dataclass
class Model:
    """A table and its expected rows: by key, and by present column names."""

    table: Table
    dice: random.Random
    rows: Rows = field(default_factory=dict)
    past: dict[int, Rows] = field(default_factory=dict)
    made: int = 0

    def write(self) -> None:
        schema = self.table.definition.schema
        fresh: Rows = {}
        for key in {self.dice.randrange(12) for _ in range(self.dice.choice([1, 4, 8]))}:
            fresh[key] = {c.name: self._value(c.type) if c.name not in ("id", "p") else None for c in schema}
            fresh[key] |= {"id": key, "p": "xy"[key % 2]}
        gone = {key for key in fresh if self.dice.random() < 0.2}
        listed = [row | {"_kind": "-D" if key in gone else "+U"} for key, row in fresh.items()]
        self.table.write(to_arrow(self.table, listed))
        self.rows = {k: r for k, r in (self.rows | fresh).items() if k not in gone}

    def _value(self, kind: pa.DataType) -> Any:
        if self.dice.random() < 0.2:
            return None
        if pa.types.is_struct(kind):
            return {"x": self.dice.randrange(5)}
        if pa.types.is_decimal(kind):
            return Decimal(self.dice.randrange(10**kind.precision)).scaleb(-kind.scale)
        if pa.types.is_integer(kind):
            return self.dice.randrange(2 ** (kind.bit_width - 1))
        return self.dice.randrange(100) / 4 if pa.types.is_floating(kind) else self.dice.choice("uvw")

    def add(self) -> None:
        self.made += 1
        name = self.dice.choice([f"n{self.made}", "b", "a", "old"])
        kind = self.dice.choice(["INT", "STRING", "STRUCT<x: INT>", "DECIMAL(5,2)"])
        if name not in self.table.definition.schema:
            self.alter(AddColumn(name, kind, first=self.dice.random() < 0.3))
            self.rows = {key: row | {name: None} for key, row in self.rows.items()}

    def drop(self) -> None:
        if name := self._free():
            self.alter(DropColumn(name))
            self.rows = {key: {n: v for n, v in row.items() if n != name} for key, row in self.rows.items()}

    def rename(self) -> None:
        new = self.dice.choice(["old", "a", "b", f"r{self.made}"])
        if (name := self._free()) and new not in self.table.definition.schema:
            self.alter(RenameColumn(name, new))
            self.rows = {k: {new if n == name else n: v for n, v in row.items()} for k, row in self.rows.items()}

    def widen(self) -> None:
        wider = {"int32": "BIGINT", "float": "DOUBLE", "decimal128(5, 2)": "DECIMAL(8,3)"}
        found = [c for c in self.table.definition.schema if str(c.type) in wider and c.name not in ("id", "p")]
        if found:
            column = self.dice.choice(found)
            self.alter(WidenColumn(column.name, wider[str(column.type)]))

    def move(self) -> None:
        names = self.table.definition.schema.names
        name, after = self.dice.choice(names), self.dice.choice([None, *names])
        if name != after:
            self.alter(MoveColumn(name, after))

    def compact(self) -> None:
        self.table.compact(full=self.dice.random() < 0.5)

    def alter(self, *asked: Change) -> None:
        self.table.alter(*asked)

    def _free(self) -> str | None:
        names = [n for n in self.table.definition.schema.names if n not in ("id", "p")]
        return self.dice.choice(names) if names else None

    def step(self, name: str) -> None:
        getattr(self, name)()
        self.past[self.table.filestore.state().version] = self.rows
        assert by_id(rows(self.table)) == self.rows
        self.check_keys()

    def check(self) -> None:
        assert_healthy(self.table.filestore)
        assert orphans(self.table) == []
        self.table.compact(full=True)
        features = self.table.definition.features
        if not features:
            assert by_id(read_polars(self.table.location)) == self.rows
        if TYPE_WIDENING not in features:
            assert by_id(read_deltalake(self.table.location)) == self.rows
        for version, expected in self.past.items():
            assert by_id(rows(self.table, version)) == expected
            self._check_changes(version)
        assert by_id(replay(changes(self.table), ["id"])) == self.rows
        assert by_id(replay(changes(self.table, version=0), ["id"])) == self.rows
        self._check_conditions()
        audited = self.table.system("audit_log").to_arrow().to_pylist()
        commits = ("_commit_version", "_commit_timestamp")
        reported = [{n: v for n, v in kinded(row).items() if n not in commits} for row in audited]
        assert by_id(replay(reported, ["id"])) == self.rows

    def check_keys(self) -> None:
        """Looks keys up, with a warm cache after some steps: cached former columns are not taken for new ones."""
        keys = pl.DataFrame({"id": range(12), "p": ["x", "y"] * 6})
        assert by_id(self.table.get(keys).to_pylist()) == self.rows

    def _check_changes(self, version: int) -> None:
        """Compares the changes since an older version, which have the present columns."""
        then = self.table.filestore.state(version)
        if then.pending:
            return
        reported = self.table.system("changes", from_version=version).to_arrow().to_pylist()
        assert {row["rowkind"] for row in reported} <= {"+I", "-U", "+U", "-D"}
        older = self.table.scan(version=version).to_arrow()
        schema = self.table.definition.schema
        before = reshaped(older, then.definition.schema, schema).to_pylist()
        assert by_id(replay([*(row | {"_kind": "+I"} for row in before), *map(kinded, reported)], ["id"])) == self.rows

    def _check_conditions(self) -> None:
        """Statistics of older names and types never prune a wanted row."""
        for column in self.table.definition.schema:
            if pa.types.is_nested(column.type) or column.name == "p":
                continue
            values = {row[column.name] for row in self.rows.values()}
            for value in values:
                where = pl.col(column.name).is_null() if value is None else pl.col(column.name) == value
                found = self.table.scan(["id"], where).to_arrow()["id"].to_pylist()
                assert sorted(found) == sorted(k for k, r in self.rows.items() if r[column.name] == value)


HOW: Mapping[str, dict[str, str]] = {
    "at once": {"file.bloom-filter": "true"},
    "at once, with images": {"changelog-producer": "lookup"},
    "later": {"write-mode": "merge-on-read"},
    "later, with images": {"write-mode": "merge-on-read", "changelog-producer": "full-compaction"},
}
STEPS = st.sampled_from(["write"] * 4 + ["add"] * 2 + ["drop", "rename", "rename", "widen", "widen", "move", "compact"])


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@given(
    how=st.sampled_from(sorted(HOW)),
    seed=st.integers(0, 2**32),
    steps=st.lists(STEPS, min_size=4, max_size=14),
    partitioned=st.booleans(),
)
@settings(
    max_examples=settings.default.max_examples // 3,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_any_history_reads_right(mode: str, how: str, seed: int, steps: list[str], partitioned: bool) -> None:
    with warehouse() as store:
        table = store.create_table(
            "shop.t",
            COLUMNS,
            primary_key=["id", "p"],
            partition_by=["p"] if partitioned else [],
            options={"schema.evolution-mode": mode, "bucket": "2", "checkpoint.interval": "4", **HOW[how]},
        )
        model = Model(table, random.Random(seed))
        for step in steps:
            model.step(step)
        model.check()


def test_a_change_of_the_mode_uses_what_is_on(store: Store) -> None:
    table = filled(store, "metadata")
    table.alter(RenameColumn("b", "c"))
    table.alter(SetOption("schema.evolution-mode", "rewrite"), WidenColumn("a", "BIGINT"), DropColumn("c"))
    assert {row["a"] for row in rows(table)} == {1, 2, 3}
    assert by_id(read_deltalake(table.location)) == by_id(rows(table))
    assert table.snapshots(1)[0].metrics["files_added"] > 0
    assert_healthy(table.filestore)


def test_a_table_without_a_key(store: Store) -> None:
    table = store.create_table("shop.e", "a INT, b STRING", options={"bucket": "3"})
    table.write(pl.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]}, schema={"a": pl.Int32, "b": pl.String}))
    table.alter(AddColumn("c", "INT", first=True), MoveColumn("a"))
    table.write(pl.DataFrame({"a": [4], "b": ["u"], "c": [7]}, schema_overrides={"a": pl.Int32, "c": pl.Int32}))
    assert_whole(table)
    table.alter(DropColumn("c"))
    assert assert_whole(table, leftovers=False)[0] == {"a": 1, "b": "x"}


def test_a_table_all_of_whose_columns_are_new(store: Store) -> None:
    for mode in MODES:
        table = store.create_table(f"shop.{mode}", "a INT", options={"schema.evolution-mode": mode})
        table.write(pl.DataFrame({"a": [1, 2, 3]}, schema={"a": pl.Int32}))
        table.alter(AddColumn("m", "MAP<STRING, INT>"), AddColumn("l", "ARRAY<STRUCT<x: INT>>"), DropColumn("a"))
        assert rows(table) == [{"m": None, "l": None}] * 3
        assert table.scan(where="l IS NULL").to_arrow().num_rows == 3
        table.write(pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))}))
        assert len(rows(table)) == 4
        assert_healthy(table.filestore)


# ------------------------------------------------------------------------------------------------ what it says


def filled(store: Store, mode: str, **options: str) -> Table:
    named = {"schema.evolution-mode": mode, "bucket": "2", **options}
    table = store.create_table(f"shop.{mode}", "id BIGINT, a INT, b STRING, f FLOAT", primary_key=["id"], options=named)
    put(table, {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"})
    put(table, {"id": 2, "a": 2, "b": "z"}, {"id": 3, "a": 3, "b": "w", "f": 0.5})
    return table


def put(table: Table, *listed: Row) -> int:
    return table.write(to_arrow(table, listed)).version


def test_plan_and_snapshot_name_the_readers_that_are_shut_out(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    table = filled(store, "metadata")
    planned = table.plan_alter(RenameColumn("b", "c"))
    assert table.filestore.state().version == 2, "a plan changes nothing"
    (note,) = planned.readers
    assert "polars refuses it" in note
    snapshot = table.alter(RenameColumn("b", "c"))
    assert snapshot.notes == table.snapshots(1)[0].notes == (note,)
    assert note in caplog.text
    with pytest.raises(Exception, match="columnMapping"):
        read_polars(table.location)
    assert by_id(read_deltalake(table.location)) == by_id(rows(table))
    (note,) = table.alter(WidenColumn("a", "BIGINT")).notes
    assert "deltalake and polars refuse it" in note
    with pytest.raises(Exception, match="TypeWidening"):
        read_deltalake(table.location)
    assert read_polars(table.location, version=2) == rows(table, 2), "older versions are as they were"
    assert table.alter(DropColumn("f")).notes == ()


def test_rewriting_shuts_nobody_out(store: Store) -> None:
    table = filled(store, "rewrite")
    snapshot = table.alter(RenameColumn("b", "c"), WidenColumn("a", "BIGINT"), WidenColumn("f", "DOUBLE"))
    assert snapshot.operation is Operation.ALTER
    assert snapshot.notes == ()
    assert snapshot.metrics == {"files_added": 3, "files_removed": 3, "rows_rewritten": 3}
    assert len(assert_whole(table, leftovers=False)) == 3
    assert deltalake.DeltaTable(table.location).protocol().reader_features == ["deletionVectors", "timestampNtz"]


def test_changes_in_sql_s_words(store: Store) -> None:
    table = filled(store, "rewrite")
    assert table.plan_alter("DROP COLUMN b").rewrites
    table.alter("ADD COLUMN n INT AFTER id", DropColumn("f"), "ALTER COLUMN a TYPE BIGINT")
    assert table.schema.names == ["id", "n", "a", "b"]
    with pytest.raises(InvalidRequest, match="cannot read the change"):
        table.alter("ADD COLUMN m INT", "DROP a")
    assert table.filestore.state().version == 3


def test_adding_writes_no_file(store: Store) -> None:
    table = filled(store, "rewrite")
    before = table.files()
    table.alter(AddColumn("n", "INT"), SetComment("new", "n"), SetComment("a table"), SetNullable("a"))
    assert table.files() == before
    assert table.detail()["comment"] == "a table"
    put(table, {"id": 3, "n": 7})
    assert {row["id"]: row["n"] for row in assert_whole(table, leftovers=False)} == {1: None, 2: None, 3: 7}


def test_what_is_so_already_is_no_commit(store: Store) -> None:
    table = filled(store, "rewrite")
    assert table.alter(SetComment(None, "a")).version == 2
    assert table.filestore.state().version == 2


def test_an_empty_comment_is_none(store: Store) -> None:
    """A refresh of a pipeline's view sets the comment that it was created with, and that was a commit each time."""
    table = store.create_table("shop.said", "id BIGINT", comment="")
    assert isinstance(table, Table)
    assert table.definition.comment is None
    version = table.version
    table.alter(SetComment(""))
    assert table.version == version
    table.alter(SetComment("said"))
    table.alter(SetComment(""))
    assert table.definition.comment is None


def test_a_not_null_column_only_without_rows(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
    table.alter(AddColumn("n", "INT", nullable=False))
    put(table, {"id": 1, "n": 1})
    with pytest.raises(InvalidRequest) as caught:
        table.alter(AddColumn("m", "INT", nullable=False))
    assert caught.value.code == "not-null-column"
    table.alter(SetNullable("n"))
    put(table, {"id": 2})
    assert len(assert_whole(table, leftovers=False)) == 2


def test_without_somebody_to_write_files_nothing_is_rewritten(store: Store) -> None:
    table = filled(store, "rewrite")
    with pytest.raises(Unsupported) as caught:
        alter(table.filestore, [DropColumn("a")])
    assert caught.value.code == "rewrite-needed"
    assert alter(table.filestore, [AddColumn("n", "INT")]).version == 3


@pytest.mark.parametrize("mode", MODES)
def test_an_overwrite_and_an_engine_that_merges(store: Store, mode: str) -> None:
    table = filled(store, mode, **{"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"})
    table.alter(WidenColumn("a", "BIGINT"), RenameColumn("b", "c"), AddColumn("n", "INT"))
    put(table, {"id": 1, "a": 2**40, "n": 5})
    expected = {1: (1 + 2**40, "x", 5), 2: (4, "z", None), 3: (3, "w", None)}
    assert {row["id"]: (row["a"], row["c"], row["n"]) for row in rows(table)} == expected
    assert by_id(replay(changes(table, version=0), ["id"])) == by_id(rows(table))
    table.write(to_arrow(table, [{"id": 9, "c": "only"}]), overwrite=True)
    assert by_id(replay(changes(table, version=0), ["id"])) == by_id(rows(table))
    assert_healthy(table.filestore)


# ------------------------------------------------------------------------------------------------ readers meanwhile


@pytest.mark.parametrize("mode", MODES)
def test_a_reader_that_follows_keeps_its_columns(store: Store, mode: str) -> None:
    table = filled(store, mode)
    following = table.follow(stop=8)
    table.alter(RenameColumn("b", "c"), AddColumn("b", "INT"), DropColumn("f"), WidenColumn("a", "BIGINT"))
    put(table, {"id": 1, "a": 10, "c": "new", "b": 5})
    put(table, {"id": 4, "a": 4, "c": "four"})
    table.alter(MoveColumn("a"), SetOption("target-file-size", "1 mb"))
    table.write(to_arrow(table, [{"id": 5, "c": "over"}]), overwrite=True)
    put(table, {"id": 6, "b": 6})
    found = pa.Table.from_batches(following)
    assert found.column_names == ["id", "a", "b", "f", "_kind"]
    assert found.schema.field("a").type == pa.int32()
    records = found.to_pylist()
    assert {"id": 1, "a": 10, "b": "new", "f": None, "_kind": "+U"} in records
    assert by_id(replay(records, ["id"])) == {
        5: {"id": 5, "a": None, "b": "over", "f": None},
        6: {"id": 6, "a": None, "b": None, "f": None},
    }


def test_a_value_that_the_reader_s_type_cannot_hold_ends_it(store: Store) -> None:
    for column, value in (("a", 2**40), ("f", 0.1)):
        table = filled(store, "rewrite")
        following = table.follow(scan="latest", stop=4)
        table.alter(WidenColumn("a", "BIGINT"), WidenColumn("f", "DOUBLE"))
        put(table, {"id": 1, column: value})
        with pytest.raises(Unsupported, match="Start the reader again") as caught:
            list(following)
        assert caught.value.code == "schema-changed"
        assert by_id(replay(changes(table), ["id"]))[1][column] == value
        store.drop_table("shop.rewrite")


# ------------------------------------------------------------------------------------------------ writers meanwhile


def between(table: Table, *acts: Callable[[Table], object]) -> FaultyStorage:
    """Opens the table on a storage that lets others act just before an entry of ours is written, once each."""
    waiting = list(acts)

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and waiting:
            waiting.pop(0)(again(table))

    return FaultyStorage(LocalStorage(), others_first)


def store_on(table: Table, storage: FaultyStorage) -> FileStore:
    return FileStore.open(storage, table.location, table.opened.ambient)


OTHERS: Mapping[str, Callable[[Table], object]] = {
    "update": lambda t: put(t, {"id": 1, "a": 100}),
    "insert": lambda t: put(t, {"id": 50, "a": 50}),
    "delete": lambda t: put(t, {"id": 2, "_kind": "-D"}, {"id": 3, "_kind": "-D"}),
    "delete all": lambda t: put(t, *({"id": i, "_kind": "-D"} for i in (1, 2, 3))),
    "overwrite": lambda t: t.write(to_arrow(t, [{"id": 7, "a": 7}]), overwrite=True),
    "compaction": lambda t: t.compact(full=True),
    "an option": lambda t: t.alter(SetOption("target-file-size", "1 mb")),
    "a column": lambda t: t.alter(AddColumn("other", "INT")),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", sampled(OTHERS, 2))
@pytest.mark.parametrize("second", sampled(["update", "delete", "compaction"], 3))
def test_what_others_commit_meanwhile_is_not_lost(store: Store, mode: str, first: str, second: str) -> None:
    table, twin = (
        filled(store, mode),
        store.create_table("shop.twin", "id BIGINT, a INT, b STRING, f FLOAT", primary_key=["id"]),
    )
    twin.write(table.scan().to_arrow())
    for other in (first, second):
        OTHERS[other](twin)
    storage = between(table, OTHERS[first], OTHERS[second])
    snapshot = alter(store_on(table, storage), [RenameColumn("a", "aa"), DropColumn("b")], TableRewrite)
    assert snapshot.version == table.filestore.state().version
    twin.alter(RenameColumn("a", "aa"), DropColumn("b"))
    assert by_id(rows(table)) == by_id(rows(twin))
    assert_healthy(table.filestore)
    assert orphans(table) == []
    assert by_id(replay(changes(table, version=0), ["id"])) == by_id(rows(table))


@pytest.mark.parametrize("mode", MODES)
def test_a_write_that_loses_against_a_change_is_done_again(store: Store, mode: str) -> None:
    table = filled(store, mode)
    act = [lambda t: t.alter(AddColumn("n", "INT", first=True)), lambda t: t.alter(DropColumn("f"))]
    late = again(table, storage=between(table, *act))
    late.write(pl.DataFrame({"id": [1, 9], "a": [7, 9]}))
    assert {row["id"]: row["a"] for row in rows(table)} == {1: 7, 2: 2, 3: 3, 9: 9}
    assert_healthy(table.filestore)
    assert orphans(table) == []
    assert by_id(replay(changes(table, version=0), ["id"])) == by_id(rows(table))


def test_rows_that_no_longer_fit_are_refused(store: Store) -> None:
    table = filled(store, "rewrite")
    gone = between(table, lambda t: t.alter(DropColumn("b")))
    late = again(table, storage=gone)
    with pytest.raises(InvalidRequest) as caught:
        late.write(pl.DataFrame({"id": [1], "b": ["lost"]}))
    assert caught.value.code == "unknown-column"
    assert len(assert_whole(table, leftovers=False)) == 3


def test_a_not_null_column_and_rows_at_once(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
    storage = between(table, lambda t: put(t, {"id": 1}))
    with pytest.raises(InvalidRequest) as caught:
        alter(store_on(table, storage), [AddColumn("n", "INT", nullable=False)])
    assert caught.value.code == "not-null-column"
    assert len(assert_whole(table, leftovers=False)) == 1


def test_a_compaction_that_loses_against_a_change_begins_again(store: Store) -> None:
    table = filled(store, "rewrite")
    storage = between(table, lambda t: t.alter(DropColumn("b")))
    late = again(table, storage=storage)
    late.compact(full=True)
    found = assert_whole(table, leftovers=False)
    assert len(found) == 3
    assert all("b" not in row for row in found)


# ------------------------------------------------------------------------------------------------ faults


def calls(mode: str) -> list[Call]:
    with warehouse() as store:
        storage = FaultyStorage(LocalStorage())
        alter(store_on(filled(store, mode, bucket="1"), storage), CHANGES, TableRewrite)
        return storage.calls


CHANGES = [RenameColumn("b", "c"), DropColumn("f"), WidenColumn("a", "BIGINT"), AddColumn("f", "STRING")]


def faults() -> Iterator[tuple[BaseException, bool]]:
    for after in (False, True):
        yield Unavailable("the storage is away"), after
        yield Killed(), after


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_fault_at_any_call_leaves_the_table_whole(mode: str, depth: Depth) -> None:
    expected = {1: (1, "x"), 2: (2, "z"), 3: (3, "w")}
    for error, after in faults():
        numbered = [
            (number, call) for number, call in enumerate(calls(mode), start=1) if not (after and call.only_reads)
        ]
        for number, _ in depth.sample(numbered, 5):
            with warehouse() as store:
                table = filled(store, mode, bucket="1")
                fault = FailAt(number, error, after=after)
                try:
                    alter(store_on(table, FaultyStorage(LocalStorage(), fault)), CHANGES, TableRewrite)
                except (Unavailable, Killed):
                    assert fault.fired
                done = table.filestore.state().version == 3
                name = "c" if done else "b"
                assert {row["id"]: (row["a"], row[name]) for row in rows(table)} == expected
                assert_healthy(table.filestore)
                if not done:
                    table.alter(*CHANGES)
                assert {row["id"]: (row["a"], row["c"]) for row in rows(table)} == expected
                put(table, {"id": 3, "f": "now"})
                assert_healthy(table.filestore)
                assert by_id(replay(changes(table, version=0), ["id"])) == by_id(rows(table))


def test_when_nobody_knows_files_stay(store: Store) -> None:
    table, gone = filled(store, "rewrite"), False

    def down(call: Call) -> None:
        nonlocal gone
        gone = gone or (call.operation == "write_new" and call.path.endswith(".json") and call.done)
        if gone:
            raise Unavailable("the storage is gone")

    with pytest.raises(CommitUnknown):
        alter(store_on(table, FaultyStorage(LocalStorage(), down)), CHANGES, TableRewrite)
    assert len(assert_whole(table, leftovers=False)) == 3


def test_a_failed_rewrite_leaves_no_file(store: Store) -> None:
    table = filled(store, "rewrite")
    for operation in ("sync", "append", "write_new"):
        fault = FailAt(1, Unavailable("away"), operation=operation)
        with pytest.raises(Unavailable):
            alter(store_on(table, FaultyStorage(LocalStorage(), fault)), CHANGES, TableRewrite)
        assert orphans(table) == []
        assert table.filestore.state().version == 2
    assert keyed(table, assert_whole(table, leftovers=False))
    assert in_order(rows(table)) == rows(table)
