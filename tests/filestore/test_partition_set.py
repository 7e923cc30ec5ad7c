"""Sets of partitions, and what users may write to name them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.partition_set import ALL_PARTITIONS, NO_PARTITIONS, PartitionSet
from filestore.rows.partitions import partition_set, partition_values, partitions_of
from tests.names import PEOPLES
from tests.tables import define, to_arrow

COLUMNS = ("day", "region", "n")
VALUES = st.none() | st.sampled_from(["a", "b"])
PARTITIONS = st.tuples(VALUES, VALUES, VALUES).map(lambda values: tuple(zip(COLUMNS, values, strict=True)))
SPECS = st.builds(
    lambda partition, kept: tuple(pair for pair, keep in zip(partition, kept, strict=True) if keep),
    PARTITIONS,
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
DEFINITION = define(
    "id BIGINT, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, n INT, price DECIMAL(10,2), yes BOOLEAN, region STRING",
    (),
    ["day", "at", "local", "n", "price", "yes", "region"],
)


@given(st.lists(SPECS, max_size=4), PARTITIONS)
def test_a_partition_is_in_the_set_if_it_agrees_with_a_spec(
    specs: list[tuple[tuple[str, str | None], ...]], partition: tuple[tuple[str, str | None], ...]
) -> None:
    chosen = PartitionSet.of(specs)
    assert (partition in chosen) == any(set(spec) <= set(partition) for spec in specs)
    assert bool(chosen) == bool(specs)
    assert chosen.whole_table == (() in specs)
    assert PartitionSet.from_json(chosen.to_json(), COLUMNS) == chosen


def test_all_and_none() -> None:
    for partition in ((), (("p", None),), (("p", "x"), ("q", ""))):
        assert partition in ALL_PARTITIONS
        assert partition not in NO_PARTITIONS


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"day": date(2026, 1, 31)}, "2026-01-31"),
        ({"day": "2026-01-31"}, "2026-01-31"),
        ({"at": datetime(2026, 1, 31, 12, tzinfo=UTC)}, "2026-01-31T12:00:00.000000Z"),
        ({"at": "2026-01-31 12:00"}, "2026-01-31T12:00:00.000000Z"),
        ({"at": "2026-01-31T13:00:00+01:00"}, "2026-01-31T12:00:00.000000Z"),
        ({"local": "2026-01-31 12:00"}, "2026-01-31 12:00:00.000000"),
        ({"n": 7}, "7"),
        ({"n": "7"}, "7"),
        ({"price": Decimal("1.5")}, "1.50"),
        ({"price": "1.5"}, "1.50"),
        ({"price": 2}, "2.00"),
        ({"yes": True}, "true"),
        ({"yes": "false"}, "false"),
        ({"region": "eu"}, "eu"),
        ({"region": None}, None),
        ({"day": None}, None),
    ],
    ids=str,
)
def test_a_value_has_one_text_however_it_is_given(given: dict[str, Any], text: str | None) -> None:
    [(name, value)] = given.items()
    assert partition_set([given], DEFINITION) == PartitionSet.of([((name, text),)])
    if not isinstance(value, str):  # and it is the text that a write gives it
        rows = to_arrow(DEFINITION, [{"id": 1, **given}])
        assert partition_values(rows, [name]) == ((name, text),)


@pytest.mark.parametrize(
    ("specs", "code"),
    [
        ([], "no-partition"),
        ([{}], "no-partition"),
        ([{"n": 1}, {}], "no-partition"),
        ([{"id": 1}], "unknown-partition-column"),
        ([{"day": "yesterday"}], "bad-partition-value"),
        ([{"day": datetime(2026, 1, 31, 12)}], "bad-partition-value"),
        ([{"at": datetime(2026, 1, 31, 12)}], "bad-partition-value"),
        ([{"local": datetime(2026, 1, 31, 12, tzinfo=UTC)}], "bad-partition-value"),
        ([{"day": 20_000}], "bad-partition-value"),
        ([{"local": datetime(2026, 1, 31, tzinfo=UTC)}], "bad-partition-value"),
        ([{"n": 1.5}], "bad-partition-value"),
        ([{"n": True}], "bad-partition-value"),
        ([{"n": 2**40}], "bad-partition-value"),
        ([{"n": 10**30}], "bad-partition-value"),
        ([{"n": "x"}], "bad-partition-value"),
        ([{"price": "1.555"}], "bad-partition-value"),
        ([{"price": "x"}], "bad-partition-value"),
        ([{"yes": 1}], "bad-partition-value"),
        ([{"yes": "no"}], "bad-partition-value"),
        ([{"region": 5}], "bad-partition-value"),
        ([{"region": ""}], "empty-partition-value"),
    ],
    ids=str,
)
def test_what_names_no_partition_is_refused(specs: list[Mapping[str, Any]], code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        partition_set(specs, DEFINITION)
    assert caught.value.code == code


def test_an_unpartitioned_table_has_none_to_name() -> None:
    with pytest.raises(InvalidRequest) as caught:
        partition_set([{"id": 1}], define("id BIGINT, v INT", ["id"]))
    assert caught.value.code == "not-partitioned"


@pytest.mark.parametrize("name", PEOPLES)
def test_the_partitions_of_a_column_of_any_name(name: str) -> None:
    """Arrow took a name with dots for a path: an INSERT OVERWRITE of a partition of ``..`` failed."""
    rows = pa.table({name: ["x", None, "x"], f"{name}.": ["y", "y", "z"]})
    found = set(partitions_of(rows, rows.column_names))
    assert found == {((name, x), (f"{name}.", y)) for x, y in (("x", "y"), (None, "y"), ("x", "z"))}


def test_the_partitions_of_rows() -> None:
    rows = pa.table({"p": ["x", None, "x", "y"], "q": [1, 1, 1, None], "v": [1, 2, 3, 4]})
    assert set(partitions_of(rows, ["p", "q"])) == {
        (("p", "x"), ("q", "1")),
        (("p", None), ("q", "1")),
        (("p", "y"), ("q", None)),
    }
