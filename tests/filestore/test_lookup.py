"""Look-ups find exactly the live rows of the probed keys: every key type, several row groups, dead rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.lookup import FileLookup
from filestore.model.definition import TableDefinition
from filestore.model.schema import Column, Schema
from tests.filestore.arrays import KEY_TYPES, key_values
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import NO_LOG, create, define, read, write

Keys = list[tuple[Any, ...]]


def definition_of(kinds: list[pa.DataType], rows_a_group: int) -> TableDefinition:
    # a struct with fields of the keys' names stands first: its leaves must not be taken for the keys
    inner = pa.struct([(f"k{n}", pa.string()) for n in range(len(kinds))])
    keys = [Column(f"k{n}", kind, nullable=False) for n, kind in enumerate(kinds)]
    schema = Schema((Column("s", inner), *keys, Column("v", pa.int64())))
    options = NO_LOG | {"row-group.rows": str(rows_a_group)}
    return TableDefinition.of(schema, [column.name for column in keys], options=options)


def rows_of(keys: Keys, value: int, kind: str = "+I") -> list[dict[str, Any]]:
    return [{**{f"k{n}": part for n, part in enumerate(key)}, "v": value, "_kind": kind} for key in keys]


def check(folder: Path, kinds: list[pa.DataType], stored: Keys, dead: Keys, probes: list[Keys], group: int) -> None:
    definition = definition_of(kinds, group)
    store = create(folder / "t", definition)
    write(store, rows_of(stored, 1))
    write(store, rows_of(dead, 0, "-D"))
    live = set(stored) - set(dead)
    table, files = store.files(store.state()), tuple(store.state().files.values())
    lookups = [FileLookup(table, file, ["v"]) for file in files]
    schema = pa.schema([definition.schema.to_arrow().field(name) for name in definition.primary_key])
    found: list[tuple[Any, ...]] = []
    for chunk in probes:
        if not chunk:
            continue
        probed = pa.table(
            [pa.array(part, f.type) for part, f in zip(zip(*chunk, strict=True), schema, strict=True)], schema=schema
        )
        for lookup in lookups:
            for match in lookup.find(probed):
                assert match.values is not None
                assert match.values.column("v").to_pylist() == [1] * len(match.positions)
                assert match.positions.tolist() == sorted(match.positions.tolist())
                found += [chunk[probe] for probe in match.probes]
    assert sorted(map(repr, found)) == sorted(repr(key) for chunk in probes for key in chunk if key in live)


@pytest.mark.parametrize(
    "kinds",
    [
        *([kind] for kind in KEY_TYPES),
        [pa.string(), pa.int32()],
        [pa.int64(), pa.binary()],
        [pa.date32(), pa.decimal128(18, 0), pa.string()],
    ],
    ids=str,
)
def test_against_a_set(kinds: list[pa.DataType]) -> None:
    keys = st.tuples(*(key_values(kind, few=True) | key_values(kind) for kind in kinds))

    @settings(max_examples=12)
    @given(st.data(), st.integers(1, 4))
    def matches(data: st.DataObject, group: int) -> None:
        stored = data.draw(st.lists(keys, min_size=1, max_size=15, unique=True))
        dead = data.draw(st.lists(st.sampled_from(stored), max_size=5, unique=True))
        more = data.draw(st.lists(keys, max_size=6, unique=True))
        wanted = sorted(set(more) | set(stored[:5]))
        cut = data.draw(st.integers(0, len(wanted)))
        with tiny_row_groups(), memory_folder() as folder:
            check(folder, kinds, stored, dead, [wanted[:cut], wanted[cut:]], group)

    matches()


def test_keys_longer_than_parquet_keeps_bounds_for(folder: Path) -> None:
    long = [("x" * 5000 + letter,) for letter in "abc"]
    with tiny_row_groups():
        check(folder, [pa.string()], long, [long[1]], [long], 1)


def test_a_file_outside_the_probes_is_not_opened(folder: Path) -> None:
    store = create(folder / "t", definition_of([pa.int64()], 1024))
    write(store, rows_of([(n,) for n in range(10)], 1))
    (file,) = store.state().files.values()
    (Path(store.location) / file.path).unlink()
    lookup = FileLookup(store.files(store.state()), file)
    assert list(lookup.find(pa.table({"k0": pa.array([10, 99], pa.int64())}))) == []


def test_columns_may_be_called_as_the_kernel_calls_its_own(folder: Path) -> None:
    schema = "row BIGINT, probe STRING, `0` INT, v INT"
    store = create(folder / "t", define(schema, ["row", "probe", "0"]))
    rows = [{"row": 1, "probe": "a", "0": 1, "v": 1}, {"row": 1, "probe": "a", "0": 2, "v": 1}]
    write(store, rows)
    write(store, [rows[0] | {"v": 2}])
    assert [row["v"] for row in read(store)] == [2, 1]
