"""Local scans: they return what polars returns for all rows, whatever they prune; and they prune what they can."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound, TableStoreError
from filestore.files.row_groups import DecodeBatch
from filestore.model.schema import Schema
from filestore.reading import scan as scan_module
from filestore.reading.predicate import Predicate
from filestore.reading.scan import ScanPlan, plan_scan, scan, scan_frames, scan_table
from filestore.rows.frames import arrow_table
from filestore.table import FileStore
from tests.depth import DEPTH, sampled
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import assert_healthy, create, define, to_arrow, write

COLUMNS = (
    "id BIGINT, p STRING, day DATE, i INT, f DOUBLE, g FLOAT, s STRING, d DECIMAL(9,2), big DECIMAL(30,2), "
    "t TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, x BOOLEAN, tags ARRAY<STRING>, m MAP<STRING, INT>, "
    "r STRUCT<a: STRING, q: INT NOT NULL>"
)
LONG = "é" * 63
UTC_DAY = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


def rows_in(table: pa.Table) -> list[str]:
    """Returns rows as text, in which a NaN equals another one."""
    return sorted(repr(row) for row in table.to_pylist())


def everything(store: FileStore, state: TableState) -> pl.DataFrame:
    """Reads all live rows by pyarrow and polars, without any of the code under test."""
    frame = pl.scan_delta(store.location, version=state.version).collect()
    assert isinstance(frame, pl.DataFrame)
    return frame


def scanned(store: FileStore, where: Predicate | None = None, columns: list[str] | None = None) -> pa.Table:
    state = store.state()
    return scan_table(store.table_files(state), plan_scan(state, columns, where))


# ------------------------------------------------------------------------------------------------ any table

texts = st.sampled_from(["", "a", "ab", "b'", LONG, LONG + "é", LONG + "ü", LONG + "\U0010ffff" * 9, "\U0001f600"])
ints = st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1])
floats = st.sampled_from([0.0, -0.0, 0.1, 1.5, -2.0, 1e300, float("nan"), float("inf"), float("-inf")])
reals = st.sampled_from([0.0, -0.0, 0.1, 1.5, -2.0, float("nan"), float("inf")])
decimals = st.sampled_from([Decimal(v) for v in ("0.00", "0.10", "1.50", "-2.25", "9999999.99")])
bigs = st.sampled_from([Decimal(v) for v in ("0.00", "0.10", "1.50", "-2.25", "1234567890123456789.01")])
days = st.sampled_from([dt.date(1, 1, 1), dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(9999, 12, 31)])
times = st.sampled_from([UTC_DAY, UTC_DAY + dt.timedelta(microseconds=1), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)])
row = st.fixed_dictionaries(
    {
        "id": st.integers(-4, 12),
        "p": st.sampled_from(["a", "b c", "%/ü=:", None]),
        "day": days,
        "i": st.none() | ints,
        "f": st.none() | floats,
        "g": st.none() | reals,
        "s": st.none() | texts,
        "d": st.none() | decimals,
        "big": st.none() | bigs,
        "t": st.none() | times,
        "n": st.none() | times.map(lambda t: t.replace(tzinfo=None)),
        "b": st.none() | st.sampled_from([b"", b"\x00", b"\xff\xfe"]),
        "x": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.none() | st.just("a"), max_size=2),
        "m": st.none() | st.just([("k", 1)]),
        "r": st.none() | st.fixed_dictionaries({"a": st.none() | st.just("a"), "q": st.just(1)}),
    }
)


def literal(value: Any) -> str:
    """Writes a value in SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.datetime):
        kind = "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP"
        return f"CAST('{value.replace(tzinfo=None).isoformat(' ')}' AS {kind})"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return str(value)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-5, 13),
    "p": st.sampled_from(["a", "b c", "%/ü=:"]),
    "day": days,
    "i": ints | st.sampled_from([Decimal("0.5"), 2**40]),
    "f": st.sampled_from([0.0, 0.1, 1.5, -2.0]).map(lambda v: Decimal(str(v))) | ints,
    "g": st.sampled_from([0.0, 0.1, 1.5, -2.0]).map(lambda v: Decimal(str(v))),
    "s": texts,
    "d": decimals | st.sampled_from([Decimal("0.105"), 1]),
    "big": bigs,
    "t": times,
    "n": times.map(lambda t: t.replace(tzinfo=None)),
    "b": st.sampled_from([b"", b"\x00", b"\xff\xfe"]),
}


@st.composite
def sql_conditions(draw: st.DrawFn) -> str:
    """Returns comparisons, lists, ranges and null tests, joined by AND, OR and NOT; some cannot prune anything."""
    column = draw(st.sampled_from(sorted(VALUES)))
    one, two = literal(draw(VALUES[column])), literal(draw(VALUES[column]))
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    form = draw(
        st.sampled_from(
            [
                f"{column} {operator} {one}",
                f"{one} {operator} {column}",
                f"{column} IN ({one}, {two})",
                f"{column} NOT IN ({one})",
                f"{column} BETWEEN {one} AND {two}",
                f"{column} IS NULL",
                f"{column} IS NOT NULL",
                f"NOT ({column} {operator} {one})",
                "x",
                "s LIKE 'a%'",
                "i % 2 = 1 AND p <> 'a'",
                "p = 'a' OR day > DATE '2024-02-28'",
                "1 = 1",
            ]
        )
    )
    if draw(st.integers(0, 2)) == 0:
        return f"({form}) {draw(st.sampled_from(['AND', 'OR']))} ({draw(sql_conditions())})"
    return form


@st.composite
def expressions(draw: st.DrawFn) -> pl.Expr:
    """Returns the same as polars expressions, which have operators of their own."""
    column = draw(st.sampled_from(sorted(set(VALUES) - {"d", "big", "i"})))
    one, two = pl.lit(draw(VALUES[column])), pl.lit(draw(VALUES[column]))
    name = pl.col(column)
    forms: list[Callable[[], pl.Expr]] = [
        lambda: name == one,
        lambda: name != one,
        lambda: name > one,
        lambda: one >= name,
        lambda: name.is_between(one, two, closed=draw(st.sampled_from(["both", "left", "right", "none"]))),
        lambda: name.is_null() | (name < one),
        lambda: ~(name <= one) & pl.col("x"),
        lambda: name.eq_missing(one),
        lambda: pl.when(pl.col("i") > 0).then(name == one).otherwise(pl.col("x")),
    ]
    return draw(st.sampled_from(forms))()


tables = st.fixed_dictionaries(
    {
        "key": st.sampled_from([(), ("id",), ("s", "id"), ("b", "day", "id"), ("big", "t", "id")]),
        "partition_by": st.sampled_from([(), ("p",), ("day", "p")]),
        "batches": st.lists(st.lists(row, max_size=12), min_size=1, max_size=4),
        "target": st.sampled_from(["1 b", "128 mb"]),
    }
)


@st.composite
def filled(draw: st.DrawFn) -> dict[str, Any]:
    table = draw(tables)
    if table["key"]:  # partition columns belong to the key, and a key has no nulls
        table["key"] = tuple(dict.fromkeys((*table["partition_by"], *table["key"])))
        defaults = {"p": "a", "s": "", "b": b"", "big": Decimal(0), "t": UTC_DAY}
        for batch in table["batches"]:
            for one in batch:
                one |= {k: defaults[k] for k in table["key"] if one[k] is None}
    return table


def build(folder: Path, table: dict[str, Any]) -> FileStore:
    definition = define(
        COLUMNS,
        table["key"],
        table["partition_by"],
        bucket=2,
        row__group_rows=3,
        target__file__size=table["target"],
    )
    store = create(folder, definition)
    for batch in table["batches"]:
        write(store, batch)
    return store


@pytest.mark.slow
@settings(max_examples=DEPTH.times(8, deep=50))
@given(table=filled(), conditions=st.lists(sql_conditions() | expressions(), min_size=1, max_size=6))
def test_a_filtered_scan_gives_what_polars_gives_on_all_rows(
    table: dict[str, Any], conditions: list[Predicate]
) -> None:
    with tiny_row_groups(), memory_folder() as folder:
        store = build(folder / "t", table)
        schema = store.state().definition.schema.to_arrow()
        every = everything(store, store.state())
        assert rows_in(scanned(store)) == rows_in(arrow_table(every, schema))
        for where in conditions:
            expression = pl.sql_expr(where) if isinstance(where, str) else where
            expected = arrow_table(every.filter(expression), schema)
            found = scanned(store, where)
            assert found.schema.equals(schema)
            assert rows_in(found) == rows_in(expected), str(where)
            assert scanned(store, where, ["f", "id"]).num_rows == expected.num_rows


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(table=filled(), names=st.lists(st.sampled_from([c.split()[0] for c in COLUMNS.split(", ")][:12]), unique=True))
def test_any_columns_come_in_the_order_asked_for(table: dict[str, Any], names: list[str]) -> None:
    with tiny_row_groups(), memory_folder() as folder:
        store = build(folder / "t", table)
        columns = names or ["p"]
        found = scanned(store, None, columns)
        schema = store.state().definition.schema.select(columns).to_arrow()
        assert found.schema.equals(schema)
        expected = arrow_table(everything(store, store.state()).select(columns), schema)
        assert rows_in(found) == rows_in(expected)


# ------------------------------------------------------------------------------------------------ pruning


@pytest.fixture
def groups() -> Iterator[None]:
    with tiny_row_groups():
        yield


@pytest.fixture
def ordered(folder: Path, groups: None) -> FileStore:
    """Creates three partitions of two files of some row groups; ids do not overlap, and each file has a NaN in `f`."""
    definition = define(
        "p STRING, id BIGINT, name STRING, v DECIMAL(38,2), w DECIMAL(9,2), f DOUBLE, t TIMESTAMP, only DOUBLE",
        ("p", "id"),
        ("p",),
        row__group_rows=3,
    )
    store = create(folder / "t", definition)
    for part, p in enumerate("abc"):
        for half in range(2):
            start = part * 12 + half * 6
            write(store, [ordered_row(p, i) for i in range(start, start + 6)])
    assert len(store.state().files) == 6
    return store


def ordered_row(p: str, i: int) -> dict[str, Any]:
    return {
        "p": p,
        "id": i,
        "name": "x" * 80 + f"{i:03}",
        "v": Decimal(i),
        "w": Decimal(i),
        "f": float("nan") if i % 6 == 0 else float(i),
        "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=i),
        "only": None if i < 24 else 1.0,
    }


def groups_read(store: FileStore, plan: ScanPlan, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns how many row groups a scan reads."""
    seen = []
    frame = scan_module._frame

    def counted(plan: ScanPlan, stretch: DecodeBatch, keys: Any) -> pl.DataFrame | None:
        seen.extend(stretch.parts)
        return frame(plan, stretch, keys)

    monkeypatch.setattr(scan_module, "_frame", counted)
    scan_table(store.table_files(store.state()), plan)
    return len(seen)


def holding(store: FileStore, where: Predicate) -> tuple[set[str], int]:
    """Reads all files, and returns which of them, and how many row groups, contain a wanted row."""
    expression = pl.sql_expr(where) if isinstance(where, str) else where
    files, groups = set(), 0
    for file in store.state().files:
        path = file.path
        parquet = pq.ParquetFile(f"{store.location}/{path}")
        for group in range(parquet.num_row_groups):
            rows = pl.from_arrow(parquet.read_row_group(group))
            assert isinstance(rows, pl.DataFrame)
            found = rows.with_columns(pl.lit(v).alias(n) for n, v in file.slot.partition).filter(expression).height
            groups += bool(found)
            files |= {path} if found else set()
    return files, groups


PRUNED: list[Predicate] = [
    "id = 4",
    "4 = id",
    "id > 29",
    "id >= 29",
    "30 <= id",
    "id < 6 AND id > 3",
    "id IN (1, 35)",
    "id IN (1, 2)",
    "id BETWEEN 5 AND 6",
    "id = 1 OR id = 35",
    "id = 99",
    "p = 'b'",
    "p IN ('a', 'c')",
    "p LIKE 'c%' AND id < 26",
    "upper(p) = 'B'",
    "p = 'a' AND id > 12",
    "p = 'a' OR id > 33",
    "w > 33.5",
    "w BETWEEN 33.5 AND 40",
    "w = 7",
    "t >= CAST('2024-02-05' AS TIMESTAMPTZ)",
    "only IS NULL",
    "only IS NOT NULL",
    "only = 2",
    "only > 0.5",
    "name IS NULL",
    "name > 'y'",
    "p = 'b' AND id % 2 < 5",
    pl.col("id").is_between(4, 5),
    pl.col("id").is_in([1, 2]),
    pl.col("id").is_in(pl.Series(range(30, 1000))),
    pl.col("t") < dt.datetime(2024, 1, 2, tzinfo=dt.UTC),
    (pl.col("p") == "a") & pl.col("id").is_not_null(),
]


@pytest.mark.few(12)
@pytest.mark.parametrize("where", sampled(PRUNED, 4), ids=str)
def test_only_files_and_row_groups_that_hold_a_wanted_row_are_read(
    ordered: FileStore, where: Predicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_scan(ordered.state(), None, where)
    files, groups = holding(ordered, where)
    assert {file.path for file in plan.files} == files
    assert groups_read(ordered, plan, monkeypatch) == groups
    assert groups < holding(ordered, "1 = 1")[1]


def test_a_file_with_nulls_and_values_is_read_for_either(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v BIGINT"))
    for version, values in enumerate(([1, None], [None, None], [3, 4])):
        write(store, [{"id": 10 * version + n, "v": value} for n, value in enumerate(values)])
    for where, wanted in {"v IS NULL": [1, 10, 11], "v IS NOT NULL": [0, 20, 21]}.items():
        assert len(plan_scan(store.state(), None, where).files) == 2, where
        assert sorted(scanned(store, where).column("id").to_pylist()) == wanted, where


def test_a_literal_may_be_on_the_left_side_of_a_comparison(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT"))
    for ids in ([0, 1, 2], [3, 4, 5], [0, 5]):
        write(store, [{"id": i} for i in ids])
    for where, wanted in {
        "2 < id": [3, 4, 5, 5],
        "3 <= id": [3, 4, 5, 5],
        "3 > id": [0, 0, 1, 2],
        "2 >= id": [0, 0, 1, 2],
        "4 = id": [4],
    }.items():
        assert len(plan_scan(store.state(), None, where).files) == 2, where
        assert sorted(scanned(store, where).column("id").to_pylist()) == wanted, where


@pytest.mark.parametrize("where", ["id = 1 OR f > 3", "id % 2 = 5", "NOT (id > 5)", ~(pl.col("id") > 5)], ids=str)
def test_what_pruning_does_not_understand_reads_everything(
    ordered: FileStore, where: Predicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert groups_read(ordered, plan_scan(ordered.state(), None, where), monkeypatch) == holding(ordered, "1 = 1")[1]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("t >= '2024-02-05'", [35]),
        ("t = TIMESTAMP '2024-01-02 00:00:00'", [1]),
        ("t BETWEEN '2024-01-02' AND '2024-01-03T00:00:00Z'", [1, 2]),
        ("t IN ('2024-01-02', '2024-01-03 01:00:00+01:00')", [1, 2]),
        ("'2024-02-05' <= t AND name LIKE '%5'", [35]),
    ],
)
def test_texts_beside_times_are_read_as_times(ordered: FileStore, where: str, ids: list[int]) -> None:
    assert scanned(ordered, where).column("id").to_pylist() == ids
    assert len(plan_scan(ordered.state(), None, where).files) == 1


def test_a_long_text_is_found_in_row_groups_though_delta_has_it_cut(
    ordered: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_scan(ordered.state(), ["id"], f"name = '{'x' * 80}020'")
    assert len(plan.files) == 6
    assert groups_read(ordered, plan, monkeypatch) == 1
    assert scan_table(ordered.table_files(ordered.state()), plan).to_pylist() == [{"id": 20}]


def test_long_decimals_have_no_statistics_but_footers_and_keys(folder: Path, groups: None) -> None:
    store = create(folder / "t", define("v DECIMAL(38,2), w DECIMAL(38,2)", ("v",)))
    for start in (0, 10):
        write(store, [{"v": Decimal(start + i), "w": Decimal(start + i)} for i in range(5)])
    assert len(plan_scan(store.state(), None, "v > 10").files) == 1
    assert len(plan_scan(store.state(), None, "w > 10").files) == 2
    assert scanned(store, "w > 13").num_rows == 1


def test_a_nan_is_above_every_number_and_never_pruned(ordered: FileStore) -> None:
    assert scanned(ordered, "f > 100").num_rows == 6
    assert scanned(ordered, "f < 3").column("id").to_pylist() == [1, 2]


@pytest.mark.parametrize("where", ["g = 0.1", "g IN (0.1)", "g IN (0.1, 7)", "0.1 = g"])
def test_a_comparison_that_rounds_finds_the_bounds_themselves(folder: Path, where: str) -> None:
    """SQL's 0.1 is a decimal and equals the FLOAT next to it, which is larger."""
    store = create(folder / "t", define("id BIGINT, g FLOAT", ("id",)))
    write(store, [{"id": 1, "g": 0.1}, {"id": 2, "g": 1.5}])
    write(store, [{"id": 3, "g": 0.2}])
    assert scanned(store, where).column("id").to_pylist() == [1]
    assert len(plan_scan(store.state(), None, where).files) == 1


def test_a_key_prefix_bounds_the_next_key_column(folder: Path) -> None:
    store = create(folder / "t", define("a INT, b BINARY, c INT", ("a", "b")))
    write(store, [{"a": 1, "b": bytes([i]), "c": i} for i in range(3)])
    write(store, [{"a": 2, "b": bytes([i]), "c": i} for i in range(5, 7)])
    write(store, [{"a": i, "b": bytes([9]), "c": i} for i in range(7, 9)])
    assert len(plan_scan(store.state(), None, "b = X'01'").files) == 2  # the last file's bytes are not known
    assert scanned(store, "b = X'01'").num_rows == 1


def test_dead_rows_are_never_judged(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v STRING", ("id",)))
    write(store, [{"id": 1, "v": "not a number"}, {"id": 2, "v": "7"}])
    write(store, [{"id": 1, "v": "8"}])
    assert scanned(store, "CAST(v AS BIGINT) > 7").column("id").to_pylist() == [1]


def test_an_overwritten_or_empty_table_gives_its_schema(folder: Path) -> None:
    definition = define("id BIGINT, v STRING", ("id",))
    store = create(folder / "t", definition)
    assert scanned(store).schema.equals(definition.schema.to_arrow())
    write(store, [{"id": 1, "v": "x"}])
    write(store, [], overwrite=True)
    assert scanned(store, "id = 1").num_rows == 0
    assert scan_table(store.table_files(store.state()), plan_scan(store.state(1))).num_rows == 1
    assert_healthy(store)


def test_columns_named_like_the_parts_of_other_columns_are_not_mixed_up(folder: Path, groups: None) -> None:
    store = create(folder / "t", define("m MAP<STRING, STRING>, l ARRAY<STRING>, key BIGINT, element INT", ("key",)))
    for start in (0, 10):
        write(
            store,
            [{"m": [("z", "z")], "l": ["z"], "key": start + i, "element": start + i} for i in range(3)],
        )
    assert len(plan_scan(store.state(), None, "element > 5").files) == 1
    assert scanned(store, "element > 5 AND key > 11").column("key").to_pylist() == [12]


def test_a_scan_streams_row_group_by_row_group(ordered: FileStore) -> None:
    plan = plan_scan(ordered.state(), None, "id % 3 = 0")
    table = ordered.table_files(ordered.state())
    groups = holding(ordered, "id % 3 = 0")[1]
    assert len(list(scan(table, plan))) == len(list(scan_frames(table, plan))) == groups > 6


def test_a_plan_travels_to_another_process(ordered: FileStore) -> None:
    plan = pickle.loads(pickle.dumps(plan_scan(ordered.state(), ["p", "id"], "id IN (7, 8) AND p = 'a'")))
    assert scan_table(ordered.table_files(ordered.state()), plan).to_pylist() == [
        {"p": "a", "id": 7},
        {"p": "a", "id": 8},
    ]


def test_null_structs_keep_their_not_null_fields(folder: Path) -> None:
    definition = define(
        "id BIGINT, l ARRAY<STRUCT<a: STRING NOT NULL>>, m MAP<STRING, STRUCT<a: INT NOT NULL>>", ("id",)
    )
    store = create(folder / "t", definition)
    rows = [
        {"id": 1, "l": [{"a": "x"}, None], "m": [("k", {"a": 1})]},
        {"id": 2, "l": None, "m": [("k", None), ("l", {"a": 2})]},
        {"id": 3, "l": [], "m": None},
    ]
    write(store, to_arrow(definition, rows))
    found = scanned(store, "id > 1")
    found.validate(full=True)
    assert found.schema.equals(definition.schema.to_arrow())
    assert found.to_pylist() == rows[1:]


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("where", "error", "says"),
    [
        ("nope = 1", NotFound, "the columns are id, name, t"),
        ("Nam = 'a'", NotFound, "did you mean 'name'"),
        ('name = "PAID"', NotFound, "double quotes are for names: write 'PAID' for a text"),
        (pl.col("nope") == 1, NotFound, "no column 'nope'"),
        ("id >", InvalidRequest, "cannot be read"),
        ("", InvalidRequest, "cannot be read"),
        ("id + 1", InvalidRequest, "not true or false"),
        ("name > 1", InvalidRequest, "cannot compare string"),
        ("name = (SELECT 1)", InvalidRequest, "subquery"),
        ("id IN (SELECT 1)", InvalidRequest, "subquery"),
        ("sum(id) > 3", InvalidRequest, "more than one row"),
        ("count(*) > 3", InvalidRequest, "more than one row"),
        ("rank() OVER (ORDER BY id) > 3", InvalidRequest, "more than one row"),
        (pl.col("id").cum_sum() > 3, InvalidRequest, "more than one row"),
        (pl.col("id").shift() > 3, InvalidRequest, "more than one row"),
        (pl.col("id").is_duplicated(), InvalidRequest, "more than one row"),
        (pl.all() > 3, InvalidRequest, "one by one"),
        (pl.col("^i.*$") > 3, InvalidRequest, "one by one"),
        ("t > 'yesterday'", InvalidRequest, "parse"),
        ("nofunc(id) = 1", InvalidRequest, "unsupported function 'nofunc'"),
        ("id = :a", InvalidRequest, "is not allowed in a condition"),
        ("read_csv('x') = 1", InvalidRequest, "is not allowed in a condition"),
    ],
    ids=str,
)
def test_what_cannot_be_evaluated_is_an_error_before_anything_is_read(
    folder: Path, where: Predicate, error: type[TableStoreError], says: str
) -> None:
    store = create(folder / "t", define("id BIGINT, name STRING, t TIMESTAMP", ("id",)))
    with pytest.raises(error, match=says):
        plan_scan(store.state(), None, where)


def test_a_cast_that_fails_names_the_condition(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, name STRING", ("id",)))
    write(store, [{"id": 1, "name": "x"}])
    with pytest.raises(InvalidRequest, match="cannot use"):
        scanned(store, "CAST(name AS BIGINT) > 3")


@pytest.mark.parametrize("columns", [["id", "nope"], ["id", "id"]], ids=str)
def test_columns_must_be_there_once(folder: Path, columns: list[str]) -> None:
    store = create(folder / "t", define("id BIGINT, name STRING", ("id",)))
    with pytest.raises((NotFound, InvalidRequest)):
        plan_scan(store.state(), columns)


def test_a_file_that_is_gone_is_named(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT", ("id",)))
    write(store, [{"id": 1}])
    path = next(iter(store.state().files)).path
    (folder / "t" / path).unlink()
    with pytest.raises(NotFound, match=path):
        scanned(store)


def test_polars_types_are_those_of_the_files(folder: Path) -> None:
    """`frames.polars_schema` predicts the types of a file's columns: a condition is checked against them beforehand."""
    definition = define(COLUMNS, ("id",))
    store = create(folder / "t", definition)
    write(store, [{"id": 1, "day": dt.date(2024, 1, 1)}])
    frame = next(scan_frames(store.table_files(store.state()), plan_scan(store.state())))
    schema: Schema = definition.schema
    assert dict(frame.schema) == dict(pl.from_arrow(schema.to_arrow().empty_table()).schema)  # type: ignore[union-attr]
    path = next(iter(store.state().files)).path
    assert pq.read_schema(folder / "t" / path).names == list(schema.names)
