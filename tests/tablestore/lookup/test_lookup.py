"""`Table.lookup`: what it takes, which rows match, and the errors of what does not fit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest, NotFound
from filestore.table import FileStore
from tablestore import Store, Table
from tablestore.lookup import lookups
from tablestore.lookup.kept_rows import KeptTables
from tablestore.lookup.lookups import Lookups, Moment
from tablestore.lookup.request import LookupPlan, LookupRequest
from tablestore.lookup.version_rows import VersionRows
from tablestore.reading import keyed_rows
from tests.integration.test_eventual_log import between
from tests.opened import again
from tests.tables import create, define, write
from tests.tablestore.lookup.oracle import begins, joined
from tests.warehouses import Row, rows, to_arrow

pytestmark = pytest.mark.usefixtures("way")
LONG_AGO = datetime(1999, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["in memory", "by key"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lookups, "_KEPT", KeptTables())
    if request.param == "by key":
        monkeypatch.setattr("tablestore.reading.keyed_rows.SMALL_BYTES", -1)
    yield


@pytest.fixture
def planets(store: Store) -> Table:
    table = store.create_table("shop.planets", "id BIGINT, name STRING, star INT", primary_key=["id"])
    table.write(pl.DataFrame({"id": [1, 2, 3], "name": ["a", "b", None], "star": [7, 7, 8]}))
    return table


def names(found: pa.Table) -> list[Any]:
    return found.column("name").to_pylist()


def newest(store: FileStore) -> Moment:
    return Moment(store.state(), store.state())


# ------------------------------------------------------------------------------------------------ rows and columns


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 3}, {"id": 1}, {"id": 9}, {"id": 1}, {"id": None}],
        pa.table({"id": [3, 1, 9, 1, None]}),
        pa.table({"id": pa.chunked_array([[3], [], [1, 9], [1, None]], pa.int32())}),
        pa.table({"id": pa.array([3, 1, 9, 1, None]).dictionary_encode()}),
        pa.table({"id": ["3", "1", "9", "1", None]}),
        lambda: pa.table({"id": [3, 1, 9, 1, None]}).to_reader(),
        pl.DataFrame({"id": [3, 1, 9, 1, None]}),
        pl.LazyFrame({"id": [3, 1, 9, 1, None]}),
        pd.DataFrame({"id": [3, 1, 9, 1, None]}),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_rows_of_every_kind_keep_their_order(planets: Table, rows: Any) -> None:
    found = planets.lookup(rows() if callable(rows) else rows, columns=["name", "star"])
    assert found.column_names == ["id", "name", "star"]
    assert names(found) == [None, "a", None, "a", None]
    assert found.column("star").to_pylist() == [8, 7, None, 7, None]


def test_inner_leaves_rows_without_a_match_out(planets: Table) -> None:
    found = planets.lookup(pa.table({"n": [0, 1, 2], "id": [9, 2, 1]}), kind="inner")
    assert found.to_pylist() == [{"n": 1, "id": 2, "name": "b", "star": 7}, {"n": 2, "id": 1, "name": "a", "star": 7}]


def test_names_of_both_sides(planets: Table) -> None:
    rows = pa.table({"id": [10], "planet": [2], "name": ["mine"]})
    found = planets.lookup(rows, {"planet": "id"}, prefix="planet_")
    assert found.to_pylist() == [{"id": 10, "planet": 2, "name": "mine", "planet_name": "b", "planet_star": 7}]
    found = planets.lookup(rows, {"planet": "id"}, columns=["id", "star"], prefix="p_")
    assert found.to_pylist() == [{"id": 10, "planet": 2, "name": "mine", "p_id": 2, "p_star": 7}]
    with pytest.raises(InvalidRequest, match="prefix") as caught:
        planets.lookup(rows, {"planet": "id"})
    assert caught.value.code == "bad-lookup"


def test_no_column_says_which_rows_have_a_match(planets: Table) -> None:
    found = planets.lookup(pa.table({"id": [1, 9, 3]}), kind="inner", columns=[])
    assert found.to_pylist() == [{"id": 1}, {"id": 3}]


def test_types_of_the_rows_stay(planets: Table) -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 9], pa.uint16()),
            "odd": pa.array([{"a": [1]}, None], pa.struct([("a", pa.list_(pa.int8()))])),
            "when": pa.array([1, 2], pa.timestamp("ns", "Asia/Tokyo")),
        }
    )
    for kind, count in (("left", 2), ("inner", 1)):
        found = planets.lookup(rows, kind=kind)
        assert found.select(rows.column_names).equals(rows.slice(0, count))
        assert found.schema.field("name").type == pa.string()


def test_no_rows_and_an_empty_table(store: Store, planets: Table) -> None:
    assert planets.lookup([]).schema.names == ["id", "name", "star"]
    assert planets.lookup(pa.table({"id": pa.array([], pa.int64())})).num_rows == 0
    empty = store.create_table("shop.empty", "id BIGINT, v STRING", primary_key=["id"])
    assert empty.lookup([{"id": 1}]).to_pylist() == [{"id": 1, "v": None}]
    assert empty.lookup([{"id": 1}], kind="inner").num_rows == 0


# ------------------------------------------------------------------------------------------------ which rows match


def test_other_columns_have_several_matches(planets: Table) -> None:
    found = planets.lookup([{"n": 1, "star": 7}, {"n": 2, "star": 9}, {"n": 3, "star": 8}], "star")
    assert found.column_names == ["n", "star", "id", "name"]
    assert [(row["n"], row["id"]) for row in found.to_pylist()] == [(1, 1), (1, 2), (2, None), (3, 3)]
    assert planets.lookup([{"name": None}, {"name": "b"}], "name", kind="inner").to_pylist() == [
        {"name": "b", "id": 2, "star": 7}
    ]


def test_a_prefix_of_the_key_and_more_than_the_key(store: Store) -> None:
    table = store.create_table("shop.t", "a STRING, b INT, v INT", primary_key=["a", "b"], options={"bucket": "3"})
    table.write([{"a": a, "b": b, "v": b * 10} for a in "xyz" for b in range(3)])
    found = table.lookup([{"a": "y"}, {"a": "w"}], "a", kind="inner")
    assert sorted(row["b"] for row in found.to_pylist()) == [0, 1, 2]
    assert table.lookup([{"a": "y", "b": 2}])["v"].to_pylist() == [20]
    both = table.lookup([{"a": "y", "b": 2, "v": 20}, {"a": "y", "b": 2, "v": 21}], ["a", "b", "v"], kind="inner")
    assert both.to_pylist() == [{"a": "y", "b": 2, "v": 20}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DOUBLE", [float("nan"), 0.0, 1.5]),
        ("DECIMAL(9,2)", ["1.50", "-2.00"]),
        ("BOOLEAN", [True, False]),
        ("BINARY", [b"", b"x"]),
        ("DATE", ["2026-01-31"]),
        ("TIMESTAMP", ["2026-01-31 12:00:00Z"]),
        ("STRING", ["", "é"]),
    ],
)
def test_columns_of_every_type_are_compared(store: Store, kind: str, values: list[Any]) -> None:
    table = store.create_table("shop.t", f"id BIGINT, v {kind}", primary_key=["id"])
    table.write(pa.table({"id": range(len(values)), "v": values}))
    found = table.lookup(table.scan(["v"]).to_arrow(), "v")
    assert found.column("id").to_pylist() == list(range(len(values)))


def test_many_values_of_another_column(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options={"bucket": "2"})
    table.write(pa.table({"id": range(5000), "v": [i % 2500 for i in range(5000)]}))
    found = table.lookup(pa.table({"v": range(1, 4000, 2)}), "v", kind="inner")
    assert sorted(found.column("id").to_pylist()) == [i for i in range(5000) if i % 2500 % 2]


def test_a_table_without_a_key(store: Store) -> None:
    table = store.create_table("shop.plain", "v INT, w STRING")
    table.write(pa.table({"v": [1, 1, 2], "w": ["a", "b", "c"]}))
    assert table.lookup([{"v": 1}], "v")["w"].to_pylist() == ["a", "b"]
    table.write(pa.table({"v": [1], "w": ["d"]}))
    assert sorted(table.lookup([{"v": 1}], "v")["w"].to_pylist()) == ["a", "b", "d"]
    with pytest.raises(InvalidRequest, match="on=") as caught:
        table.lookup([{"v": 1}])
    assert caught.value.code == "bad-lookup"


def test_pending_runs_and_deleted_rows_count(store: Store) -> None:
    table = store.create_table(
        "shop.t", "id BIGINT, name STRING", primary_key=["id"], options={"write-mode": "merge-on-read"}
    )
    table.write(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    assert names(table.lookup([{"id": 1}, {"id": 2}])) == ["a", "b"]
    table.write(pa.table({"id": [1, 2, 3], "name": ["new", None, "c"], "_kind": ["+U", "-D", "+I"]}))
    assert names(table.lookup([{"id": 1}, {"id": 2}, {"id": 3}])) == ["new", None, "c"]
    table.compact(full=True)
    assert names(table.lookup([{"id": 1}, {"id": 2}, {"id": 3}])) == ["new", None, "c"]


# ------------------------------------------------------------------------------------------------ versions


def test_a_version_and_the_newest_one(planets: Table) -> None:
    planets.write(to_arrow(planets, [{"id": 1, "name": "new", "star": 1}, {"id": 3, "_kind": "-D"}]))
    asked = [{"id": 1}, {"id": 3}]
    assert names(planets.lookup(asked)) == ["new", None]
    assert planets.lookup(asked, version=1)["star"].to_pylist() == [7, 8]
    assert planets.lookup(asked, version=0)["star"].to_pylist() == [None, None]
    with pytest.raises(NotFound):
        planets.lookup(asked, version=99)


def test_processing_time_by_its_name_is_the_newest_version(planets: Table) -> None:
    for asked in ([{"id": 1}], [{"id": 1, "processing": "a column of this name is no time"}]):
        assert planets.lookup(asked, at="processing") == planets.lookup(asked)
    with pytest.raises(InvalidRequest, match="rename it"):
        planets.lookup([{"id": 1, "processing": datetime(2026, 1, 1, tzinfo=UTC)}], at="processing")


def test_each_row_meets_the_version_of_its_time(planets: Table) -> None:
    planets.write([{"id": 1, "name": "new", "star": 1}])
    planets.write(to_arrow(planets, [{"id": 1, "_kind": "-D"}]))
    times = begins(planets)
    moment, step = [times[v] for v in range(4)], timedelta(microseconds=1)
    at = [moment[2], None, moment[2] - step, moment[3], moment[1], moment[0] - step, LONG_AGO, datetime(2900, 1, 1)]
    at = [None if t is None else t.replace(tzinfo=UTC) for t in at]
    rows = pa.table({"id": [1] * len(at), "ts": pa.array(at, pa.timestamp("us", "UTC"))})
    found = planets.lookup(rows, at="ts")
    assert names(found) == ["new", None, "a", None, "a", None, None, None]
    assert names(planets.lookup(rows, at="ts", kind="inner")) == ["new", "a", "a"]
    assert found.select(["id", "ts"]).equals(rows)


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us", "UTC")])
def test_times_of_every_unit(planets: Table, kind: pa.DataType) -> None:
    planets.write([{"id": 1, "name": "new", "star": 1}])
    later = begins(planets)[2] + timedelta(seconds=2)
    rows = pa.table({"id": [1], "ts": pa.array([later], pa.timestamp("us", "UTC")).cast(kind, safe=False)})
    assert names(planets.lookup(rows, at="ts")) == ["new"]


def test_times_that_are_all_null_or_absent(planets: Table) -> None:
    assert names(planets.lookup([{"id": 1, "ts": None}], at="ts")) == [None]
    none = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))]).empty_table()
    assert planets.lookup(none, at="ts").num_rows == 0


def test_a_version_that_has_expired(store: Store) -> None:
    table = store.create_table(
        "shop.t",
        "id BIGINT, name STRING",
        primary_key=["id"],
        options={"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"},
    )
    for name in "abcd":
        table.write(pa.table({"id": [1], "name": [name]}))
    times = begins(table)
    assert names(table.lookup([{"id": 1, "ts": times[2]}], at="ts")) == ["b"]
    table.expire()
    assert min(begins(table)) == 3
    fresh = store.table("shop.t")
    rows = [{"id": 1, "ts": times[v]} for v in (4, 2, 3)]
    for reader in (fresh, table):  # the second one answered from what it had kept of the version
        with pytest.raises(NotFound) as caught:
            reader.lookup(rows, at="ts")
        assert caught.value.code == "snapshot-expired"
        assert names(reader.lookup(rows, at="ts", expired="oldest")) == ["d", "c", "c"]
    rows = [{"id": 1, "ts": times[v]} for v in (4, 1, 3)]
    with pytest.raises(NotFound) as caught:
        fresh.lookup(rows, at="ts")
    assert caught.value.code == "snapshot-expired"
    assert names(fresh.lookup(rows, at="ts", expired="oldest")) == ["d", "c", "c"]
    assert names(fresh.lookup([{"id": 1, "ts": LONG_AGO}], at="ts")) == [None]


def test_columns_that_changed_between_versions(planets: Table) -> None:
    planets.alter("ADD COLUMN size INT", "RENAME COLUMN name TO title", "ALTER COLUMN star TYPE BIGINT")
    planets.write([{"id": 1, "title": "new", "star": 2**40, "size": 5}])
    times = begins(planets)
    rows = [{"id": 1, "ts": times[max(times)]}, {"id": 1, "ts": times[1]}]
    found = planets.lookup(rows, at="ts").drop_columns(["ts"])
    assert found.to_pylist() == [
        {"id": 1, "title": "new", "star": 2**40, "size": 5},
        {"id": 1, "title": "a", "star": 7, "size": None},
    ]
    by_star = [{"star": 2**40, "ts": times[1]}, {"star": 7, "ts": times[1]}, {"star": 2**40, "ts": times[max(times)]}]
    assert planets.lookup(by_star, "star", at="ts", kind="inner")["id"].to_pylist() == [1, 2, 1]
    assert planets.lookup([{"size": 5, "ts": times[1]}], "size", at="ts", columns=["id"])["id"].to_pylist() == [None]
    assert planets.lookup([{"id": 1}], version=1).column_names == ["id", "name", "star"]


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"on": "nope"}, "unknown-column"),
        ({"on": {"nope": "id"}}, "bad-lookup"),
        ({"on": []}, "bad-lookup"),
        ({"on": {}}, "bad-lookup"),
        ({"on": ["id", "id"]}, "bad-lookup"),
        ({"kind": "outer"}, "bad-lookup"),
        ({"expired": "never"}, "bad-lookup"),
        ({"columns": ["nope"]}, "unknown-column"),
        ({"columns": ["name", "name"]}, "bad-lookup"),
        ({"columns": ["id"]}, "bad-lookup"),
        ({"at": "id"}, "bad-lookup"),
        ({"at": "nope"}, "bad-lookup"),
        ({"at": "ts", "version": 1}, "bad-time-travel"),
        ({"version": 1, "fresh": True}, "bad-time-travel"),
        ({"rows": pa.table({"id": ["x"]})}, "bad-value"),
        ({"rows": pa.table({"id": [2.5]})}, "bad-value"),
        ({"rows": pa.table({"id": [True]})}, "bad-value"),
        ({"rows": pa.table({"id": [[1]]})}, "bad-value"),
        ({"rows": pa.table([[1], [2], [3]], names=["id", "x", "x"])}, "bad-lookup"),
        ({"rows": 7}, "bad-rows"),
    ],
    ids=repr,
)
def test_what_does_not_fit(planets: Table, how: dict[str, Any], code: str) -> None:
    given = {"rows": [{"id": 1, "ts": LONG_AGO}]} | how
    with pytest.raises((InvalidRequest, NotFound)) as caught:
        planets.lookup(given.pop("rows"), **given)
    assert caught.value.code == code


def test_a_nested_column_cannot_be_looked_up(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT, v ARRAY<INT>", primary_key=["id"])
    with pytest.raises(InvalidRequest, match="single values"):
        table.lookup([{"v": [1]}], "v")


# ------------------------------------------------------------------------------------------------ what is kept


def test_a_small_table_is_read_once_and_then_its_changes(planets: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_rows, "SMALL_BYTES", 1 << 20)
    reads: list[int] = []
    read = VersionRows.all

    def counted(self: VersionRows) -> pl.DataFrame:
        reads.append(self.state.version)
        return read(self)

    monkeypatch.setattr(VersionRows, "all", counted)
    planets.write([{"id": n, "name": str(n), "star": 1} for n in range(10, 60)])
    asked: list[Row] = [{"id": n} for n in range(60)]
    for number in range(4):
        put: Row = {"id": 1, "name": f"n{number}", "star": 1}
        planets.write(to_arrow(planets, [put, {"id": 2 + number, "_kind": "-D"}]))
        assert planets.lookup(asked).equals(by_oracle(planets, asked))
    assert again(planets).lookup(asked).equals(by_oracle(planets, asked))
    assert len(reads) == 1
    assert planets.lookup([{"star": 1}], "star", kind="inner").num_rows == 51
    assert len(reads) == 2, "by other columns there is another index"


def by_oracle(table: Table, asked: list[Row]) -> pa.Table:
    found = joined(asked, rows(table), {"id": "id"}, ["name", "star"], "left")
    return pa.Table.from_pylist(found, pa.schema([("id", pa.int64()), ("name", pa.string()), ("star", pa.int32())]))


def test_a_column_that_is_dropped_later_is_null_in_rows_that_were_kept(store: Store) -> None:
    """To drop a column changed no file, so a process that had kept the rows still had its values."""
    options = {"schema.evolution-mode": "metadata"}
    table = store.create_table("shop.c", "id BIGINT, name STRING, star INT", primary_key=["id"], options=options)
    assert isinstance(table, Table)
    table.write([{"id": 1, "name": "x", "star": 3}])
    plan = LookupPlan.of(LookupRequest(None, "left", None, "", None, "fail"), table.definition)
    given = pa.table({"id": pa.array([1], pa.int64())})
    lookups, files = Lookups(table.filestore), table.filestore
    assert lookups.lookup(given, plan, newest(files)).column("star").to_pylist() == [3]
    table.alter("DROP COLUMN star")
    assert lookups.lookup(given, plan, newest(files)).to_pylist() == [{"id": 1, "name": "x", "star": None}]


def test_a_copied_table_has_rows_of_its_own(folder: Path) -> None:
    """Rows were kept by the table's id and version alone, which a copy has, too."""
    one = create(folder / "one", define("id BIGINT, name STRING", ["id"]))
    shutil.copytree(folder / "one", folder / "two")
    two = FileStore.open(one.storage, str(folder / "two"), one.ambient)
    plan = LookupPlan.of(LookupRequest(None, "left", None, "", None, "fail"), one.state().definition)
    given = pa.table({"id": pa.array([1], pa.int64())})
    for store, name in ((one, "A"), (two, "B")):
        write(store, [{"id": 1, "name": name}])
        assert Lookups(store).lookup(given, plan, newest(store)).column("name").to_pylist() == [name]


def test_a_large_change_is_no_reason_to_read_changes(planets: Table) -> None:
    planets.lookup([{"id": 1}])
    planets.write([{"id": n, "name": "x", "star": 2} for n in range(100)], overwrite=True)
    assert names(planets.lookup([{"id": 1}, {"id": 99}])) == ["x", "x"]


# ------------------------------------------------------------------------------------------------ the log's end


@pytest.mark.parametrize("sequence", [False, True])
def test_fresh_look_ups_have_what_a_writer_has_not_committed(store: Store, sequence: bool) -> None:
    options = {"bucket": "2", "log.consistency": "eventual"} | ({"sequence.field": "n"} if sequence else {})
    table = store.create_table("shop.t", "id BIGINT, n INT", primary_key=["id"], options=options)
    table.write(pa.table({"id": [1, 2, 3], "n": [10, 10, 10]}))
    asked: list[Row] = [{"id": n} for n in (4, 3, 2, 1)]
    seen: dict[str, list[Any]] = {}

    def look() -> None:
        seen["fresh"] = table.lookup(asked, fresh=True)["n"].to_pylist()
        seen["by another column"] = table.lookup([{"n": 20}, {"n": 10}], "n", kind="inner", fresh=True)[
            "id"
        ].to_pylist()
        seen["committed"] = table.lookup(asked)["n"].to_pylist()

    late = to_arrow(table, [{"id": 1, "n": 5}, {"id": 2, "n": 20, "_kind": "-D"}, {"id": 4, "n": 20}])
    between(table, look).write(late)
    assert seen["committed"] == [None, 10, 10, 10]
    assert seen["fresh"] == table.lookup(asked)["n"].to_pylist() == [20, 10, None, 10 if sequence else 5]
    assert sorted(seen["by another column"]) == ([1, 3, 4] if sequence else [3, 4])
    assert table.lookup(asked, fresh=True).equals(table.lookup(asked))
