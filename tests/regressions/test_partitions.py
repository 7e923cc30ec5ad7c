"""Partitions: bugs that the model test and odd values found."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from filestore.errors import InvalidRequest
from tests.tables import assert_healthy, create, define, read, read_deltalake, read_polars, write


@pytest.mark.parametrize("value", ["New York", "Zürich", "50%", "a/b", "x=y", "2024-01-01 00:00:00"])
def test_polars_sees_dead_rows_dead_in_partitions_with_odd_names(folder: Path, value: str) -> None:
    """polars matches deletion vectors by a path that it encodes twice: it returned replaced rows.

    Without ``p=v`` in the path it reads the partition's value from the file, so paths need no encoding.
    """
    store = create(folder / "t", define("id BIGINT, p STRING, v INT", ["id", "p"], ["p"]))
    write(store, [{"id": n, "p": value, "v": 1} for n in range(6)])
    write(store, [{"id": 2, "p": value, "v": 2}])
    assert len(read(store)) == 6
    assert read_polars(store.location) == read_deltalake(store.location) == read(store)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("STRING", "é" * 300),  # the folder's name was too long for the file system
        ("TIMESTAMP_NTZ", datetime.datetime(999, 1, 1)),  # it was written as year '999', which no reader parses
        ("TIMESTAMP", datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
        ("DECIMAL(20,8)", Decimal("0.00000000")),  # it was written as '0E-8'
        ("DECIMAL(20,8)", Decimal("0.00000001")),
    ],
)
def test_values_that_could_not_be_written_or_read(folder: Path, kind: str, value: Any) -> None:
    store = create(folder / "t", define(f"id BIGINT, p {kind}", ["id", "p"], ["p"]))
    write(store, [{"id": 1, "p": value}])
    assert read(store) == read_polars(store.location) == read_deltalake(store.location) == [{"id": 1, "p": value}]
    (action,) = (a["add"] for a in store.delta_log.read_entry(1).actions if "add" in a)
    assert "E" not in action["partitionValues"]["p"]
    assert_healthy(store)


def test_a_key_of_partition_columns_only_is_refused() -> None:
    """It was accepted, and the second write failed with an IndexError."""
    with pytest.raises(InvalidRequest) as caught:
        define("p STRING, v INT", ["p"], ["p"])
    assert caught.value.code == "key-is-partition"


def test_a_sequence_among_the_partition_columns_is_refused() -> None:
    """It was accepted, and the second write failed with a KeyError, as files did not have the column."""
    with pytest.raises(InvalidRequest) as caught:
        define("id BIGINT, p INT", ["id", "p"], ["p"], sequence_field="p")
    assert caught.value.code == "sequence-field"
