"""Fresh reads: a snapshot with the log's tail merged in equals the table after a write of the tail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore import layout
from filestore.ambient import system_ambient
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.reading.overlay_table import commit_overlay
from filestore.reading.tail_overlay import overlay_changes
from filestore.sorting.order import sort_rows
from tablestore import Table
from tablestore.reading.scan import Scan
from tests.tables import in_order, read_deltalake
from tests.warehouses import rows, to_arrow, warehouse

AMBIENT = system_ambient()
Row = dict[str, Any]
SHAPES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "sequence": {"sequence.field": "s", "sequence.tombstone-retention": "0 s"},
    "merge-on-read": {"write-mode": "merge-on-read"},
}
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 5),
        "s": st.none() | st.integers(0, 3),
        "v": st.none() | st.integers(0, 9),
        "_kind": st.sampled_from(["+I", "+U", "-D"]),
    }
)


@dataclass(frozen=True, slots=True)
class Tail:
    """Records that no snapshot covers yet, in some batches."""

    table: Table
    found: list[list[Row]]

    def changes(self, state: TableState) -> Iterator[pa.Table]:
        assert state.version == self.table.filestore.state().version
        return (to_arrow(self.table, [{"_kind": "+I", **row} for row in batch]) for batch in self.found if batch)


def fresh(table: Table, tail: list[list[Row]], where: str | None = None, columns: list[str] | None = None) -> list[Row]:
    scan = Scan(table.filestore, table.filestore.state(), columns, where, Tail(table, tail))
    return in_order(scan.to_arrow().to_pylist())


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("options", SHAPES.values(), ids=list(SHAPES))
@given(stored=st.lists(ROW, max_size=8), tail=st.lists(st.lists(ROW, max_size=5), max_size=3))
def test_it_is_what_the_next_commit_makes_of_the_table(
    options: Mapping[str, str], stored: list[Row], tail: list[list[Row]]
) -> None:
    with warehouse() as store:
        table = store.create_table(
            "shop.t", "id BIGINT, s BIGINT, v BIGINT", primary_key=["id"], options={"bucket": "2", **options}
        )
        table.write(to_arrow(table, stored))
        found, some = fresh(table, tail), fresh(table, tail, "v > 4 OR s = 1", ["v"])
        assert fresh(table, tail, "1 = 1") == found
        table.write(to_arrow(table, [row for batch in tail for row in batch]))
        assert found == rows(table)
        assert some == in_order(table.scan(["v"], "v > 4 OR s = 1").to_arrow().to_pylist())


def overlaid(table: Table, tail: list[list[Row]]) -> list[Row]:
    """The same by an overlay, as Spark reads it, seen by a reader of Delta that is not ours."""
    state, found = table.filestore.state(), [row for batch in tail for row in batch]
    if not found:
        return in_order(read_deltalake(table.location))
    files, folder = table.filestore.table_files(state), layout.fresh_overlay_path(state.version, AMBIENT.new_id())
    rows = to_arrow(table, [{"_kind": "+I", **row} for row in found])
    ordered = sort_rows(rows.append_column(ORDINAL_COLUMN, pa.array(range(len(found)))), table.definition)
    base = state.lookup_files(AMBIENT.now_ms())
    slots = list(overlay_changes(files, base, ordered.to_batches(max_chunksize=3), folder))
    named = [file for _, listed in slots for file in listed]
    commit_overlay(files, state, {slot for slot, _ in slots}, named, files.path(folder))
    return in_order(read_deltalake(files.path(folder)))


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sequence.field": "s", "sequence.tombstone-retention": "0 s"},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
        {"schema.evolution-mode": "metadata"},
    ],
    ids=["last", "newest", "summed", "renamed"],
)
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@given(stored=st.lists(ROW, max_size=8), tail=st.lists(st.lists(ROW, max_size=5), max_size=3))
def test_an_overlay_of_the_tail_is_the_same_to_any_reader_of_delta(
    options: Mapping[str, str], partitioned: bool, stored: list[Row], tail: list[list[Row]]
) -> None:
    """A tail holds rows that are merged already, so with every engine the last one of a key stands."""
    key = ["id", "p"] if partitioned else ["id"]
    stored, tail = by_partition(stored), [by_partition(batch) for batch in tail]
    with warehouse() as store:
        table = store.create_table(
            "shop.t",
            "id BIGINT, s BIGINT, v BIGINT, p BIGINT",
            primary_key=key,
            partition_by=key[1:],
            options={"bucket": "2", "log.system": "none", **options},
        )
        table.write(to_arrow(table, [row | {"_kind": "+U"} for row in stored]))
        if "schema.evolution-mode" in options:
            table.alter("ADD COLUMN w BIGINT")
        assert overlaid(table, tail) == fresh(table, tail)


def by_partition(found: list[Row]) -> list[Row]:
    return [row | {"p": row["id"] % 2} for row in found]


def test_a_transactional_log_shows_nothing_before_its_snapshot_and_pending_runs_are_read(orders: Table) -> None:
    orders.write(pa.table({"id": [1], "name": ["a"]}))
    assert orders.scan(fresh=True).to_arrow().to_pylist() == [{"id": 1, "name": "a"}]


@pytest.mark.parametrize(
    "how", [{"version": 1}, {"timestamp": datetime(2026, 1, 1, tzinfo=UTC)}, {"tag": "x"}], ids=str
)
def test_fresh_and_an_older_state_exclude_each_other(orders: Table, how: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        orders.scan(fresh=True, **how)
    assert caught.value.code == "bad-time-travel"
