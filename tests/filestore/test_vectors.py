"""Deletion vectors: bytes as the page says, read by others, and never believed when broken (FORMAT.md section 5)."""

from __future__ import annotations

import itertools
import re
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import filestore
from filestore.checks.report import Invariant
from filestore.delta.vectors import VectorFileBuilder, bitmap_of, positions, vector_file
from filestore.doctor import examine
from filestore.errors import Corrupt, NotFound, Unsupported
from filestore.files.dead_rows import DeadRows
from filestore.model.files import DeletionVector
from filestore.storage.local import LocalStorage
from tests.folders import memory_folder
from tests.tables import create, define, read, read_deltalake, read_polars, write

UUID = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"
POSITIONS = st.lists(st.integers(0, 2**40), unique=True, max_size=50) | st.builds(
    lambda start, count: list(range(start, start + count)), st.integers(0, 2**33), st.integers(1, 3000)
)


def built(*vectors: list[int], vector_id: str = UUID) -> tuple[VectorFileBuilder, list[DeletionVector]]:
    builder = VectorFileBuilder(vector_id)
    return builder, [builder.add(bitmap_of(np.array(v, dtype=np.uint64))) for v in vectors]


def test_the_example_of_the_page_is_what_we_write() -> None:
    page = (Path(filestore.__file__).parent / "FORMAT.md").read_text()
    block = page.split(f"UUID `{UUID}`")[1].split("```")[1]
    expected = bytes.fromhex("".join(re.findall(r"^ *((?:[0-9a-f]{2} ?)+)(?: {2,}|$)", block, re.MULTILINE)))
    builder, (first, second) = built([1, 4], list(range(100)))
    assert builder.content == expected
    assert f"`{first.location}`" in page
    assert (first.offset, first.size, first.cardinality) == (1, 36, 2)
    assert (second.offset, second.size, second.cardinality) == (45, 31, 100)


@given(st.uuids())
def test_z85_names_come_back(name: uuid.UUID) -> None:
    builder, (vector,) = built([1], vector_id=str(name))
    assert len(vector.location) == 20
    assert vector_file(vector) == builder.path


@given(st.lists(POSITIONS.filter(bool), min_size=1, max_size=4))
def test_positions_come_back(vectors: list[list[int]]) -> None:
    builder, described = built(*vectors)
    with memory_folder() as folder:
        storage = LocalStorage()
        storage.write_new(f"{folder}/{builder.path}", builder.content)
        for wanted, vector in zip(vectors, described, strict=True):
            assert positions(storage, str(folder), vector).tolist() == sorted(wanted)
            assert vector.cardinality == len(wanted)


def test_no_vector_is_no_position(folder: Path) -> None:
    assert positions(LocalStorage(), str(folder), None).tolist() == []
    assert VectorFileBuilder(UUID).empty


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data, v: (data[:-1], v),
        lambda data, v: (b"\x05" + data[1:], v),
        lambda data, v: (data[:20] + bytes([data[20] ^ 1]) + data[21:], v),
        lambda data, v: (data[:-1] + bytes([data[-1] ^ 1]), v),
        lambda data, v: (data, replace(v, cardinality=v.cardinality + 1)),
        lambda data, v: (data, replace(v, offset=v.offset + 1)),
        lambda data, v: (data, replace(v, size=v.size - 1)),
    ],
)
def test_a_broken_vector_is_never_believed(folder: Path, spoil: Any) -> None:
    builder, (vector,) = built([1, 5, 100_000])
    data, vector = spoil(builder.content, vector)
    LocalStorage().write_new(f"{folder}/{builder.path}", data)
    with pytest.raises(Corrupt):
        positions(LocalStorage(), str(folder), vector)


def test_the_doctor_looks_at_the_version_of_every_file_of_vectors(folder: Path) -> None:
    """Other readers refuse a file of another version, and the doctor called it healthy."""
    store = create(folder / "t", define("id INT", ["id"], bucket="1"))
    write(store, [{"id": n} for n in range(9)])
    write(store, [{"id": n + 9} for n in range(9)])
    write(store, [{"id": 0, "_kind": "-D"}, {"id": 9, "_kind": "-D"}])
    offsets = [file.vector.offset for file in store.state().files if file.vector is not None]
    assert sorted(offsets) == [1, max(offsets)], "the second one is read without the file's beginning"
    (path,) = {vector_file(file.vector) for file in store.state().files if file.vector is not None}
    whole = (folder / "t" / path).read_bytes()
    (folder / "t" / path).write_bytes(b"\x05" + whole[1:])
    vectors = [finding for finding in examine(store).findings if finding.code is Invariant.VECTOR]
    assert len(vectors) == 2
    assert all("begins with" in finding.message for finding in vectors)


def test_a_missing_vector_file_is_named(folder: Path) -> None:
    _, (vector,) = built([1])
    with pytest.raises(NotFound, match=UUID):
        positions(LocalStorage(), str(folder), vector)


@pytest.mark.parametrize(
    "vector",
    [
        DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6),
        DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6),
    ],
)
def test_vectors_of_other_writers_are_refused(vector: DeletionVector) -> None:
    with pytest.raises(Unsupported):
        vector_file(vector)


@pytest.mark.parametrize("dead", [{0}, {8}, {7, 9, 15, 16}, set(range(3, 29)), set(range(30))])
def test_any_part_of_a_file_has_the_same_rows_dead(folder: Path, dead: set[int]) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"]))
    write(store, [{"id": i, "v": 0} for i in range(31)])
    write(store, [{"id": i, "v": 0, "_kind": "-D"} for i in dead])
    (file,) = store.state().files
    alive = [row not in dead for row in range(31)]
    for start, end in itertools.combinations(range(32), 2):
        rows = DeadRows(store.storage, store.location, file)
        assert rows.alive_between(start, end).tolist() == alive[start:end]
        assert rows.alive(np.arange(start, end)).tolist() == alive[start:end]


@pytest.mark.parametrize("dead", [[0], [4999], [0, 4999], list(range(0, 5000, 2)), list(range(1, 5000))])
def test_others_see_the_same_rows_dead(folder: Path, dead: list[int]) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"], row__group_rows=1024))
    write(store, [{"id": i, "v": 0} for i in range(5000)])
    write(store, [{"id": i, "v": 0, "_kind": "-D"} for i in dead])
    expected = sorted(set(range(5000)) - set(dead))
    for rows in (read(store), read_polars(store.location), read_deltalake(store.location)):
        assert sorted(row["id"] for row in rows) == expected
