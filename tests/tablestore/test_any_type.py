"""Rows of any type that a table can have: merged, read by scan and key, and compared between versions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.model.types import canonical
from tablestore import Table
from tests.depth import sampled
from tests.filestore.arrays import data_types, stored, values
from tests.tables import assert_healthy
from tests.warehouses import changes, warehouse

Row = dict[str, Any]

ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "last value": {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"},
    "first-row": {"merge-engine": "first-row"},
}
_IDS = st.integers(0, 5)


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
@pytest.mark.parametrize("engine", sampled(ENGINES, fast=4, test=2))
def test_rows_of_any_type_are_found_as_they_were_written(engine: str, mode: str) -> None:
    options = ENGINES[engine] | {"write-mode": mode, "changelog-producer": "lookup", "log.system": "none"}

    @settings(max_examples=max(4, settings.default.max_examples // 10))
    @given(st.data(), data_types())
    def found(data: st.DataObject, kind: pa.DataType) -> None:
        with warehouse() as store:
            schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", canonical(kind))])
            table = store.create_table("shop.t", schema, primary_key=["id"], options=options)
            held: dict[int, Any] = {}
            for batch in data.draw(st.lists(st.dictionaries(_IDS, values(kind), min_size=1), min_size=1, max_size=4)):
                ids, column = pa.array(batch, pa.int64()), stored([*batch.values()], schema.field("v").type)
                table.write(pa.table({"id": ids, "v": column}))
                for key, value in zip(batch, column.to_pylist(), strict=True):
                    if not (key in held and (engine == "first-row" or (engine == "partial-update" and value is None))):
                        held[key] = value
                check(table, held)
            table.compact(full=True)
            check(table, held)
            assert_healthy(table.filestore)

    found()


def check(table: Table, held: dict[int, Any]) -> None:
    """Compares what each way of reading yields; as texts, since NaN is not equal to itself."""
    expected = {key: shown(value) for key, value in held.items()}
    assert by_id(table.scan().to_arrow().to_pylist()) == expected
    assert by_id(table.get([{"id": key} for key in range(6)]).to_pylist()) == expected
    null = {key: text for key, text in expected.items() if text == "None"}
    assert by_id(table.scan(where="v IS NULL").to_arrow().to_pylist()) == null
    assert by_id(changes(table, version=0, mode="changelog")) == expected
    differences = table.system("changes", from_version=0).to_arrow().to_pylist()
    assert by_id(differences) == expected
    assert by_id(table.lookup(pa.table({"k": pa.array(expected, pa.int64())}), on={"k": "id"}).to_pylist()) == expected


def by_id(rows: list[Row]) -> dict[int, str]:
    """Returns the last value of each key; rows without one have no match."""
    return {row.get("id", row.get("k")): shown(row["v"]) for row in rows}


def shown(value: Any) -> str:
    return repr(value).replace("-0.0", "0.0")  # which are equal, so one does not replace the other
