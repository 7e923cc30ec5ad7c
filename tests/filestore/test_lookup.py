"""Look-ups find exactly the live rows of the probed keys: every key type, several row groups, dead rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.cache.columns import LookupCache
from filestore.files.parquet import ParquetReader
from filestore.lookup.file_lookup import FileLookup
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.model.schema import Column, Schema
from filestore.table import FileStore
from tests.filestore.arrays import KEY_TYPES, key_values
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import NO_LOG, assert_healthy, create, define, read, write

Keys = list[tuple[Any, ...]]


def definition_of(kinds: list[pa.DataType], rows_a_group: int) -> TableDefinition:
    # a struct with fields of the keys' names stands first: its leaves must not be taken for the keys
    inner = pa.struct([(f"k{n}", pa.string()) for n in range(len(kinds))])
    keys = [Column(f"k{n}", kind, nullable=False) for n, kind in enumerate(kinds)]
    schema = Schema((Column("s", inner), *keys, Column("v", pa.int64())))
    options = NO_LOG | {"row-group.rows": str(rows_a_group), "file.bloom-filter": str(rows_a_group % 2 == 0)}
    options |= {"lookup.cache-max-memory-size": "1 b"}  # all columns go to the disk
    return TableDefinition.of(schema, [column.name for column in keys], options=options)


def rows_of(keys: Keys, value: int, kind: str = "+I") -> list[dict[str, Any]]:
    return [{**{f"k{n}": part for n, part in enumerate(key)}, "v": value, "_kind": kind} for key in keys]


def check(folder: Path, kinds: list[pa.DataType], stored: Keys, dead: Keys, probes: list[Keys], group: int) -> None:
    definition = definition_of(kinds, group)
    store = create(folder / "t", definition)
    write(store, rows_of(stored, 1))
    write(store, rows_of(dead, 0, "-D"))
    live = set(stored) - set(dead)
    table, files = store.table_files(store.state()), tuple(store.state().files)

    def look_up(cache: LookupCache | None, chunks: list[Keys]) -> None:
        check_found(definition, [FileLookup(table, file, ["v"], cache) for file in files], live, chunks)

    cache = table.cache
    assert cache is not None
    look_up(None, probes)
    look_up(cache, probes)
    for _ in range(3):  # read, written, used
        look_up(cache, [sorted(set(stored))])
    assert cache.disk_bytes > 0 or not files
    look_up(cache, probes)


def check_found(definition: TableDefinition, lookups: list[FileLookup], live: set[Any], probes: list[Keys]) -> None:
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
                names = ["v", *definition.primary_key]
                rows = lookup.rows_at(match.positions, names)
                assert rows.schema.equals(pa.schema([definition.schema.to_arrow().field(name) for name in names]))
                assert list(zip(*(rows.column(n).to_pylist() for n in names[1:]), strict=True)) == [
                    chunk[probe] for probe in match.probes
                ]
                found += [chunk[probe] for probe in match.probes]
    assert sorted(map(repr, found)) == sorted(repr(key) for chunk in probes for key in chunk if key in live)


@pytest.mark.few(8)
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

    @settings(max_examples=settings.default.max_examples // 3 + 1)
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
    (file,) = store.state().files
    (Path(store.location) / file.path).unlink()
    lookup = FileLookup(store.table_files(store.state()), file)
    assert list(lookup.find(pa.table({"k0": pa.array([10, 99], pa.int64())}))) == []


def test_columns_may_be_called_as_the_kernel_calls_its_own(folder: Path) -> None:
    schema = "row BIGINT, probe STRING, `0` INT, v INT"
    store = create(folder / "t", define(schema, ["row", "probe", "0"]))
    rows = [{"row": 1, "probe": "a", "0": 1, "v": 1}, {"row": 1, "probe": "a", "0": 2, "v": 1}]
    write(store, rows)
    write(store, [rows[0] | {"v": 2}])
    assert [row["v"] for row in read(store)] == [2, 1]


def with_filters(folder: Path) -> tuple[FileStore, DataFile]:
    """One file of four row groups, with Bloom filters; only odd numbers are keys."""
    with tiny_row_groups():
        definition = define(
            "id BIGINT, `a.b` STRING, v INT", ["id", "a.b"], row__group_rows=100, file_bloom__filter="true"
        )
        store = create(folder / "t", definition)
        write(store, [{"id": 2 * n + 1, "a.b": str(n), "v": n} for n in range(400)])
    (file,) = store.state().files
    return store, file


def groups_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are read from now on."""
    groups: list[int] = []
    read = ParquetReader.read

    def spied(self: ParquetReader, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        groups.append(group)
        return read(self, group, columns)

    monkeypatch.setattr(ParquetReader, "read", spied)
    return groups


@pytest.mark.slow
def test_a_filter_spares_row_groups(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, file = with_filters(folder)
    read_groups = groups_read(monkeypatch)
    state = store.state()

    def found(*ids: int) -> list[int]:
        read_groups.clear()
        probes = pa.table({"id": pa.array(ids, pa.int64()), "a.b": [str(n // 2) for n in ids]})
        return [p for m in FileLookup(store.table_files(state), file).find(probes) for p in m.positions.tolist()]

    absent = [found(2 * n) for n in range(1, 400)]
    assert absent == [[]] * 399
    denied = sum(not found(2 * n) and not read_groups for n in range(1, 400))
    assert denied > 380, "a filter lets about one of a hundred pass"
    assert [found(2 * n + 1) for n in range(0, 400, 7)] == [[n] for n in range(0, 400, 7)]
    assert found(*range(1, 800)) == list(range(400)), "many probes do not ask it"
    assert [found(2 * n, 2 * n + 1) for n in range(1, 400, 40)] == [[n] for n in range(1, 400, 40)], "one is enough"


def test_row_groups_between_the_probes_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, file = with_filters(folder)
    groups = groups_read(monkeypatch)
    probes = pa.table({"id": pa.array([1, 799], pa.int64()), "a.b": ["0", "399"]})
    (first, last) = FileLookup(store.table_files(store.state()), file).find(probes)
    assert groups == [0, pq.read_metadata(Path(store.location) / file.path).num_row_groups - 1]
    assert (first.positions.tolist(), last.positions.tolist()) == ([0], [399])


def test_filters_are_for_keys_that_can_have_one(folder: Path) -> None:
    with tiny_row_groups():
        definition = define(
            "p INT, x BOOLEAN, s STRING, `a.b` INT, v INT",
            ["p", "x", "s", "a.b"],
            ["p"],
            row__group_rows=2,
            file_bloom__filter="true",
        )
        store = create(folder / "t", definition)
        write(store, [{"p": 1, "x": bool(n % 2), "s": f"{n}", "a.b": n, "v": n} for n in range(6)])
    (file,) = store.state().files
    footer = pq.read_metadata(Path(store.location) / file.path)
    for group in range(footer.num_row_groups):
        chunks = [footer.row_group(group).column(n) for n in range(footer.num_columns)]
        assert [c.path_in_schema for c in chunks if c.bloom_filter_offset is not None] == ["s"]
    assert_healthy(store)
