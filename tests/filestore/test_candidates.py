"""Files are chosen many at once, by columns, as they are one by one; for each type, and for each of its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.delta.add_files import rows_of
from filestore.delta.batch import Batch, Memo
from filestore.delta.by_slot import BySlot
from filestore.delta.columns import ColumnFiles
from filestore.delta.state import TableState
from filestore.files.batch_bounds import batch_bounds
from filestore.files.bounds import file_bounds
from filestore.files.statistics import StatisticsBuilder
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot
from filestore.reading.candidates import Wanted
from filestore.reading.predicate import Condition
from filestore.reading.scan import plan_scan
from filestore.rows.partitions import partition_values
from tests.depth import sampled
from tests.tables import define

pytestmark = pytest.mark.usefixtures("few_files_are_judged")
COLUMNS = (
    "p STRING, q INT, d DATE, k BIGINT, i INT, f DOUBLE, r FLOAT, s STRING, day DATE, at TIMESTAMP, local "
    "TIMESTAMP_NTZ, m DECIMAL(9,2), b BOOLEAN, x BINARY, l ARRAY<INT>, `odd.name` INT"
)
DEFINITION = define(COLUMNS, ["p", "q", "d", "k"], ["p", "q", "d"], bucket=2)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)) | st.sampled_from([datetime(2026, 1, 1)])
DAYS = st.dates() | st.just(date(2026, 1, 1))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
            "i": st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2),
            "f": st.none() | st.floats() | st.sampled_from([0.0, -0.0, 1.5, 1e300]),
            "r": st.none() | st.floats(width=32) | st.sampled_from([0.0, -0.0, 0.5]),
            "s": st.none() | st.text() | st.sampled_from(["", "b", "\U0010ffff" * 70, 'a"\\\n', "x" * 65]),
            "day": st.none() | DAYS,
            "at": st.none() | MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
            "local": st.none() | MOMENTS,
            "m": st.none() | st.decimals(-10, 10, places=2),
            "b": st.none() | st.booleans(),
            "x": st.none() | st.binary(max_size=3),
            "l": st.none() | st.just([1]),
            "odd.name": st.none() | st.integers(-2, 2),
        }
    ),
    min_size=1,
    max_size=3,
)
PARTITIONS = st.fixed_dictionaries(
    {
        "p": st.none() | st.sampled_from(["a", "b", "%/ü"]),
        "q": st.none() | st.integers(-1, 1),
        "d": st.none() | st.sampled_from([date(2026, 1, 1), date(1, 1, 1)]),
    }
)
CONDITIONS = [
    *(f"{name} {op} {value}" for name, value in (("k", 0), ("i", 1), ("f", 0.0), ("r", 0.5), ("m", 1.5), ("q", 0))
      for op in ("=", "<", "<=", ">", ">=", "<>")),
    *(f"s {op} '{value}'" for value in ("", "b", "é") for op in ("=", "<", ">=")),
    *(f"day {op} DATE '2026-01-01'" for op in ("=", "<", ">")),
    *(f"local {op} TIMESTAMP '2026-01-01 00:00:00'" for op in ("=", "<", ">")),
    *(f"{name} IS NULL" for name in ("p", "q", "d", "k", "i", "s", "at", "m", "x", "l", "b")),
    *(f"{name} IS NOT NULL" for name in ("p", "q", "d", "k", "i", "s", "at", "m", "x", "l", "b")),
    "p = 'a'", "p <> 'a'", "p IN ('b', '%/ü')", "p LIKE '%a%'", "d = DATE '2026-01-01'", "q + 1 = 1",
    "p = 'a' AND k > 0", "p = 'a' OR k = 0", "NOT (p = 'a')", "k IN (0, 1)", "k BETWEEN -1 AND 1", "b",
    '"odd.name" = 1', "i = k", "p = s", "q = 0 AND k = 0 AND p = 'a' AND d = DATE '2026-01-01'",
]  # fmt: skip


@pytest.fixture(scope="module")
def few_files_are_judged() -> Iterator[None]:
    """Has few files chosen by columns, too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("filestore.delta.columns._FEW_TO_JUDGE", 0)
        yield


def file(number: int, partition: dict[str, Any], bucket: int, rows: Sequence[dict[str, Any]]) -> DataFile:
    """A file as a write makes it, but for its keys: these would be looked at, too."""
    table = pa.Table.from_pylist([row | partition for row in rows], DEFINITION.schema.to_arrow())
    builder = StatisticsBuilder(table.drop_columns(["p", "q", "d"]).schema)
    builder.add(table)
    slot = Slot(partition_values(table, DEFINITION.partition_by), bucket)
    return DataFile(f"{number}.parquet", slot, 1, len(rows), 1, builder.to_json())


FILES = st.lists(st.tuples(PARTITIONS, st.integers(0, 1), ROWS), max_size=6).map(
    lambda drawn: [file(number, *one) for number, one in enumerate(drawn)]
)


def planned(files: BySlot[DataFile], condition: str, definition: TableDefinition = DEFINITION) -> set[str]:
    return {file.path for file in plan_scan(TableState(1, 1, "t", definition, files), None, condition).files}


@pytest.mark.few(12)
@pytest.mark.parametrize("condition", sampled(CONDITIONS, fast=8, test=2))
@given(files=FILES, later=FILES)
def test_the_same_files_are_chosen_by_columns_and_one_by_one(
    condition: str, files: list[DataFile], later: list[DataFile]
) -> None:
    columns = BySlot.on(ColumnFiles(rows_of(files), DEFINITION.partition_by, sorted_by_key=False))
    assert planned(columns, condition) == planned(BySlot(files), condition)
    assert planned(columns, condition) == planned(BySlot(files), condition), "by what the first plan has left"
    gone = [(file.path, file.slot) for file in files[1::2]]
    changed = (some.changed(gone, later) for some in (columns, BySlot(files)))
    assert len({frozenset(planned(some, condition)) for some in changed}) == 1


SOME = {"p": "a", "q": 0, "d": date(2026, 1, 1)}
ROW = {
    "k": 5, "i": 5, "f": 5.5, "r": 5.5, "s": "m", "day": date(2026, 1, 5), "at": datetime(2026, 1, 5, tzinfo=UTC),
    "local": datetime(2026, 1, 5), "m": Decimal("5.00"), "b": True, "x": b"m", "l": [1], "odd.name": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    "condition",
    [
        "p = 'b'", "q = 1", "d = DATE '2027-01-01'", "p IS NULL", "k = 6", "k < 5", "i > 5", "f = 5.0", "r > 6",
        "s < 'm'", "day = DATE '2026-01-06'", "local > TIMESTAMP '2026-01-06 00:00:00'", "i IS NULL", '"odd.name" = 1',
        "p = 'b' AND m = 5.00", "k = 6 OR q = 1", "m = 6.00", "m < 4.99", "m > 5.01",
    ],
)  # fmt: skip
def test_no_file_becomes_an_object_that_the_columns_leave_out(condition: str) -> None:
    """Otherwise a plan would take as long as before, and nobody would notice."""
    found = Condition.of(condition, DEFINITION.schema)
    wanted = Wanted(found.expression, found.columns, None, DEFINITION)
    columns = ColumnFiles(rows_of([file(1, SOME, 0, [ROW])]), DEFINITION.partition_by, sorted_by_key=False)
    assert [list(some) for some in columns.candidates(wanted)] == []
    other = Condition.of("b OR x IS NULL", DEFINITION.schema)
    kept = Wanted(other.expression, other.columns, None, DEFINITION)
    assert sum(len(some) for some in columns.candidates(kept)) == 1, "what is not decoded exactly is looked at"


def test_only_files_of_wanted_buckets_are_looked_at() -> None:
    columns = ColumnFiles(
        rows_of([file(n, SOME, n % 2, [ROW]) for n in range(4)]), DEFINITION.partition_by, sorted_by_key=False
    )
    wanted = Wanted(pl.lit(True), [], {1}, DEFINITION)
    assert [{file.slot.bucket for file in some} for some in columns.candidates(wanted)] == [{1}]


def test_a_batch_is_decoded_once() -> None:
    found = Condition.of("k > 3 AND p = 'a'", DEFINITION.schema)
    wanted = Wanted(found.expression, found.columns, {0}, DEFINITION)
    adds, memo, reads = rows_of([file(1, SOME, 0, [ROW])]), Memo(), list[int]()

    def read() -> pa.StructArray:
        reads.append(1)
        return adds

    for _ in range(3):
        assert wanted(Batch(1, read, DEFINITION.partition_by, memo)).tolist() == [True]
    assert len(reads) == 1
    assert 40 <= memo.size <= 200


def test_what_was_decoded_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts of a dozen columns were twenty times as large as the files."""
    monkeypatch.setattr("filestore.delta.columns._MEMO_BYTES", 500)
    rows = [file(number, SOME, 0, [ROW | {"s": "x" * 60}]) for number in range(3)]
    columns = ColumnFiles(rows_of(rows), DEFINITION.partition_by, sorted_by_key=False)
    kept = []
    for condition in ("s > 'a'", "k > 0", "i > 0", "f > 0", "day > DATE '2025-01-01'", "r > 0") * 2:
        found = Condition.of(condition, DEFINITION.schema)
        assert sum(map(len, columns.candidates(Wanted(found.expression, found.columns, None, DEFINITION)))) == 3
        kept.append(sum(memo.size for memo in columns._memos.values()))
    assert 0 in kept and max(kept) <= 500


def test_statistics_of_another_type_choose_nothing() -> None:
    odd = file(1, SOME, 0, [ROW])
    files = [DataFile(odd.path, odd.slot, 1, 1, 1, text) for text in (odd.stats.replace('"k":5', '"k":"five"'),)]
    found = Condition.of("k = 6", DEFINITION.schema)
    wanted = Wanted(found.expression, found.columns, None, DEFINITION)
    columns = ColumnFiles(rows_of(files), DEFINITION.partition_by, sorted_by_key=False)
    assert sum(len(some) for some in columns.candidates(wanted)) == 1


EACH_TYPE = (
    "p BOOLEAN, q TIMESTAMP, d DECIMAL(5,2), n TIMESTAMP_NTZ, g BIGINT, s STRING, k BIGINT, i INT, short SMALLINT, "
    'tiny TINYINT, f DOUBLE, r FLOAT, t STRING, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, `a."b` STRING, '
    "`numRecords` BIGINT"
)
OF_EACH = define(EACH_TYPE, ["p", "q", "d", "n", "g", "s", "k"], ["p", "q", "d", "n", "g", "s"])
LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 2**53 + 1, 2**63 - 1, -(2**63)])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3).map(lambda text: text * 30)
FLOATS = st.floats(allow_nan=False) | st.sampled_from([-0.0, 0.0, 5e-324, 1e22, 1.7976931348623157e308])
AWARE = MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))
VALUES = {
    **{"p": st.booleans(), "q": AWARE, "d": st.decimals(-999, 999, places=2), "n": MOMENTS, "g": LONGS},
    **{"s": st.sampled_from(["a", "é%/", "\U0010ffff"]), "k": LONGS, "i": st.integers(-(2**31), 2**31 - 1)},
    **{"short": st.integers(-(2**15), 2**15 - 1), "tiny": st.integers(-128, 127), "f": FLOATS},
    **{"r": st.floats(width=32), "t": TEXTS, "day": DAYS, "at": AWARE, "local": MOMENTS, 'a."b': TEXTS},
    "numRecords": LONGS,
}


@given(st.lists(st.fixed_dictionaries({n: v if n == "k" else st.none() | v for n, v in VALUES.items()}), max_size=5))
def test_bounds_of_many_files_are_those_of_each(rows: list[dict[str, Any]]) -> None:
    """Value by value: a wrong zone, sign or digit would leave out files with wanted rows."""
    files = []
    for number, row in enumerate(rows):
        table = pa.Table.from_pylist([row], OF_EACH.schema.to_arrow())
        builder = StatisticsBuilder(table.drop_columns(list(OF_EACH.partition_by)).schema)
        builder.add(table)
        files.append(
            DataFile(f"{number}", Slot(partition_values(table, OF_EACH.partition_by), 0), 1, 1, 1, builder.to_json())
        )
    batch = Batch(len(files), lambda: rows_of(files), OF_EACH.partition_by, Memo())
    found, expected = (
        bounds(some, list(VALUES), OF_EACH) for bounds, some in ((batch_bounds, batch), (file_bounds, files))
    )  # type: ignore[operator]
    assert found.rows.to_list() == expected.rows.to_list() == [1] * len(files)
    assert found.exact == expected.exact and set(found.low.columns) == set(VALUES)
    for one, other in ((found.low, expected.low), (found.high, expected.high), (found.nulls, expected.nulls)):
        assert repr(one.to_dicts()) == repr(other.select(one.columns).to_dicts())
        assert one.schema == other.select(one.columns).schema


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (1, 1), (9, 2), (15, 0), (15, 7), (15, 15)])
@given(data=st.data())
def test_bounds_of_decimals_are_wider_by_one_in_the_last_place(precision: int, scale: int, data: st.DataObject) -> None:
    """Their statistics are numbers of JSON, which polars decodes as doubles; at the type's ends nothing is known."""
    most = 10**precision - 1
    numbers = data.draw(st.lists(st.integers(-most, most) | st.sampled_from([-most, most, 0]), min_size=1, max_size=8))
    values = [Decimal(number).scaleb(-scale) for number in numbers]
    definition = define(f"k BIGINT, m DECIMAL({precision},{scale})", ["k"])
    files = []
    for number, value in enumerate(values):
        table = pa.Table.from_pylist([{"k": number, "m": value}], definition.schema.to_arrow())
        builder = StatisticsBuilder(table.schema)
        builder.add(table)
        files.append(DataFile(f"{number}", Slot((), 0), 1, 1, 1, builder.to_json()))
    found = batch_bounds(Batch(len(files), lambda: rows_of(files), (), Memo()), ["m"], definition)
    unit, top = Decimal(1).scaleb(-scale), Decimal(most).scaleb(-scale)
    assert found.low["m"].to_list() == [value - unit if value - unit >= -top else None for value in values]
    assert found.high["m"].to_list() == [value + unit if value + unit <= top else None for value in values]


def test_decimals_too_long_for_a_double_choose_nothing() -> None:
    definition = define("k BIGINT, m DECIMAL(16,2)", ["k"])
    some = DataFile(
        "a", Slot((), 0), 1, 1, 1, '{"numRecords":1,"minValues":{"m":1.5},"maxValues":{"m":1.5},"nullCount":{}}'
    )
    found = batch_bounds(Batch(1, lambda: rows_of([some]), (), Memo()), ["m"], definition)
    assert "m" not in found.low.columns
