"""Point reads give what filtering a scan gives: every key type, partitions, dead rows, with a cache and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.model.definition import TableDefinition
from filestore.model.schema import Column, Schema
from filestore.reading.get import get_rows
from filestore.table import FileStore
from tests.depth import sampled
from tests.faults import FaultyStorage
from tests.filestore.arrays import KEY_TYPES, key_values
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import NO_LOG, create, define, read, reopen, to_arrow, write

KEYS: list[tuple[list[pa.DataType], int]] = [
    *(([kind], 0) for kind in KEY_TYPES),
    ([pa.string(), pa.int32()], 0),
    ([pa.string(), pa.int32()], 1),
    ([pa.date32(), pa.decimal128(38, 10), pa.binary()], 1),
    ([pa.decimal128(9, 2), pa.timestamp("us", "UTC"), pa.int64(), pa.bool_()], 2),
]


def definition_of(kinds: list[pa.DataType], partitions: int, buckets: int) -> TableDefinition:
    keys = [Column(f"k{n}", kind, nullable=False) for n, kind in enumerate(kinds)]
    nested = Column("tags", pa.list_(pa.field("element", pa.string())))
    schema = Schema((Column("s", pa.string()), *keys, Column("v", pa.int64()), nested))
    names = [column.name for column in keys]
    options = NO_LOG | {"row-group.rows": "3", "bucket": str(buckets)}
    return TableDefinition.of(schema, names, names[:partitions], options)


def row_of(key: tuple[Any, ...], value: int, kind: str = "+I") -> dict[str, Any]:
    content = {"s": f"text {value}", "v": value, "tags": None if value % 2 else ["a", None]}
    return {f"k{n}": part for n, part in enumerate(key)} | content | {"_kind": kind}


def get(
    store: FileStore,
    asked: pa.Table,
    columns: list[str] | None = None,
    *,
    version: int | None = None,
    cached: bool = False,
) -> pa.Table:
    state = store.state(version)
    table = store.table_files(state)
    return get_rows(table if cached else replace(table, cache=None), state, asked, columns)


def asked_of(definition: TableDefinition, keys: list[tuple[Any, ...]]) -> pa.Table:
    rows = [{f"k{n}": part for n, part in enumerate(key)} for key in keys]
    return to_arrow(definition, rows).select(list(definition.primary_key))


def expected(store: FileStore, asked: pa.Table, version: int | None = None) -> list[dict[str, Any]]:
    names = store.state().definition.primary_key
    stored = {tuple(row[n] for n in names): row for row in read(store, version)}
    wanted = dict.fromkeys(tuple(key.values()) for key in asked.to_pylist())
    return [stored[key] for key in wanted if key in stored]


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "partitions"), sampled(KEYS, 4, test=2, names=2), ids=str)
def test_it_gives_what_a_filtered_scan_gives(kinds: list[pa.DataType], partitions: int) -> None:
    # an empty text is no partition
    texts = key_values(pa.string()).filter(bool)
    plain = [texts if n < partitions and pa.types.is_string(k) else key_values(k) for n, k in enumerate(kinds)]
    few = [key_values(k, few=True).filter(lambda v: v != "") for k in kinds]
    key = st.tuples(*few) | st.tuples(*plain)
    steps = st.lists(st.lists(st.tuples(key, st.sampled_from(["+I", "+I", "-D"])), max_size=8), min_size=1, max_size=4)

    @settings(max_examples=max(4, settings.default.max_examples // 3))
    @given(steps, st.lists(key, max_size=6), st.sampled_from([1, 3]), st.randoms(use_true_random=False))
    def same(batches: list[Any], more: list[Any], buckets: int, dice: Any) -> None:
        with tiny_row_groups(), memory_folder() as folder:
            definition = definition_of(kinds, partitions, buckets)
            store = create(folder / "t", definition)
            for number, batch in enumerate(batches):
                if batch:
                    write(store, [row_of(one, number, kind) for one, kind in batch])
            keys = [one for batch in batches for one, _ in batch] + more
            dice.shuffle(keys)
            asked = asked_of(definition, keys + keys[:2])
            for cached in (False, True, True, True):
                found = get(store, asked, cached=cached)
                assert found.schema.equals(definition.schema.to_arrow())
                assert found.to_pylist() == expected(store, asked)
                names = ["tags", "k0"]
                assert get(store, asked, names, cached=cached).equals(found.select(names))
                only_keys = list(definition.primary_key)
                assert get(store, asked, only_keys, cached=cached).equals(found.select(only_keys))
            before = store.state().version // 2
            assert get(store, asked, version=before).to_pylist() == expected(store, asked, before)

    same()


def test_an_empty_text_is_in_no_partition(folder: Path) -> None:
    store = create(folder / "t", define("p STRING, id BIGINT, v INT", ["p", "id"], ["p"]))
    write(store, [{"p": "a", "id": 1, "v": 1}])
    asked = pa.table({"p": ["", "a"], "id": [1, 1]})
    assert get(store, asked).to_pylist() == [{"p": "a", "id": 1, "v": 1}]


def test_every_key_is_found_alone(folder: Path) -> None:
    """The first and the last ones of files and row groups, too, in Parquet and in the cache."""
    with tiny_row_groups():
        store = create(folder / "t", definition_of([pa.int64()], 0, 1))
        write(store, [row_of((n,), n) for n in range(6)])
        for cached in (False, True, True, True):
            for n in range(6):
                assert get(store, pa.table({"k0": [n]}), ["k0", "v"], cached=cached).to_pylist() == [{"k0": n, "v": n}]


def test_nothing_asked_nothing_given(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"]))
    none = pa.table({"id": pa.array([], pa.int64())})
    assert get(store, none).num_rows == 0
    assert get(store, pa.table({"id": [1]})).num_rows == 0
    write(store, [{"id": 1, "v": 1}])
    assert get(store, none, ["v"]).schema.equals(pa.schema([("v", pa.int32())]))


def test_commits_that_come_are_seen(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"]))
    asked = pa.table({"id": [1, 2, 3]})
    other = reopen(store)
    for v in range(6):
        write(other, [{"id": n, "v": v} for n in (1, 2, 3)] if v % 2 else [{"id": 2, "v": v}, {"id": 3, "_kind": "-D"}])
        assert get(store, asked, cached=True).to_pylist() == expected(store, asked)


class Opened:
    """Which data files a storage was asked for."""

    def __init__(self, store: FileStore) -> None:
        self.storage = FaultyStorage(store.storage)
        self.store = reopen(store, self.storage)
        self.store.state()

    def by(self, asked: pa.Table, *, cached: bool = False) -> set[str]:
        self.storage.calls.clear()
        get(self.store, asked, cached=cached)
        return {call.path for call in self.storage.calls if call.path.endswith(".parquet") and "bucket-" in call.path}


def test_it_opens_only_files_that_may_hold_the_key(folder: Path) -> None:
    store = create(folder / "t", define("p INT, id BIGINT, v INT", ["p", "id"], ["p"], bucket=4))
    write(store, [{"p": p, "id": n, "v": 0} for p in range(3) for n in range(100)])
    write(store, [{"p": 1, "id": n, "v": 1} for n in range(0, 40)])
    write(store, [{"p": 1, "id": n, "v": 2} for n in range(200, 240)])
    assert len(store.state().files) == 20
    opened = Opened(store)
    assert len(opened.by(pa.table({"p": pa.array([2], pa.int32()), "id": [50]}))) == 1
    assert len(opened.by(pa.table({"p": pa.array([1], pa.int32()), "id": [70]}))) == 1, (
        "the ranges of the others end before"
    )
    assert len(opened.by(pa.table({"p": pa.array([7], pa.int32()), "id": [70]}))) == 0
    assert len(opened.by(pa.table({"p": pa.array([1], pa.int32()), "id": [10]}))) == 2, "both have it in their range"
    assert len(opened.by(pa.table({"p": pa.array([1], pa.int32()), "id": [90]}))) == 1, "found in the largest: no more"
