"""What libraries raise on damaged bytes is an error of the tree with the file and what to do, and nothing worse.

Log entries, checkpoints, consumers' files and the embedded log's own file, each damaged in every way that a disk, a
copy cut short or a mistake of an operator leaves: readers, writers, the doctor and a compactor say which file it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tablestore
from catalog_service.client import connect
from compaction.compactor import Compactor
from compaction.duties import FOLD
from filestore.ambient import system_ambient
from filestore.decoding import decoding, is_panic, well_formed
from filestore.errors import Corrupt, TableStoreError, Unavailable
from filestore.storage.locations import Storages
from tablestore import Store, Table
from tests.depth import Depth, sampled
from tests.opened import again
from tests.warehouses import rows
from tests.writers import put

Damage = Callable[[bytes, random.Random], bytes]

OTHER_JSON = [
    b"[]", b"5", b'"text"', b"null", b"{}", b'{"add": 5}', b'{"add": {}}', b'{"metaData": {"configuration": null}}',
    b'{"txn": null}\n{"commitInfo": {"tablestore": 5}}', b'{"commitInfo": []}', b'{"domainMetadata": {}}',
    b'{"protocol": []}', b"[" * 100_000, b'{"remove": {"path": "%zz", "partitionValues": 1}}',
]  # fmt: skip


def bit(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


DAMAGE: dict[str, Damage] = {
    "empty": lambda _, __: b"",
    "cut short": lambda data, chance: data[: chance.randrange(1, len(data))],
    "zeros": lambda data, _: bytes(len(data)),
    "noise": lambda data, chance: chance.randbytes(len(data)),
    "not UTF-8": lambda data, _: data.replace(b"e", b"\xff"),
    "other JSON": lambda _, chance: chance.choice(OTHER_JSON),
    "one bit": bit,
}

FILES = {
    "first entry": "_delta_log/00000000000000000000.json",
    "entry": "_delta_log/00000000000000000003.json",
    "newest entry": "_delta_log/00000000000000000005.json",
    "checkpoint": "_delta_log/00000000000000000004.checkpoint.parquet",
    "last checkpoint": "_delta_log/_last_checkpoint",
    "log": "_log/log.json",
}


def made(store: Store, name: str, first: int = 1) -> Table:
    """A table whose versions 1 to 5 put a row each, and whose version 6 is a tag."""
    options = {"checkpoint.interval": "4", "write-mode": "merge-on-read"}
    table = store.create_table(name, "id BIGINT, name STRING", primary_key=["id"], options=options)
    for number in range(first, first + 5):
        put(table, number)
    table.create_tag("kept", 2)
    return table


@pytest.fixture
def table(store: Store) -> Table:
    return made(store, "shop.t")


def reached(table: Table) -> Iterator[Callable[[], object]]:
    """What readers, writers and operators do, each with a table that knows nothing yet."""
    yield lambda: rows(again(table))
    yield lambda: rows(again(table), 2)
    yield lambda: list(again(table).follow(version=0, stop=5))
    yield lambda: again(table).snapshots()
    yield lambda: again(table).recover()
    yield lambda: again(table).compact()
    yield lambda: again(table).tags()


@pytest.mark.few(6)
@pytest.mark.parametrize(("file", "damage"), sampled(product(FILES, DAMAGE), fast=10, test=3, names=2))
def test_damage_raises_an_error_of_the_tree(store: Store, table: Table, file: str, damage: str, depth: Depth) -> None:
    path = Path(table.location, FILES[file])
    whole = path.read_bytes()
    for seed in range(depth.times(1, deep=20)):
        path.write_bytes(DAMAGE[damage](whole, random.Random(seed)))
        errors = []
        for act in reached(table):
            try:
                act()
            except TableStoreError as error:
                assert len(error.message) > 20, error
                errors.append(error.message)
        with tablestore.connect(store.target) as stranger:
            report = stranger.examine("shop.t")
        assert report.problems or not errors, errors
        path.write_bytes(whole)
    assert len(rows(again(table))) == 5


def test_a_damaged_checkpoint_is_read_around_and_the_doctor_names_it(table: Table) -> None:
    expected = rows(table)
    checkpoint = Path(table.location, FILES["checkpoint"])
    checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    assert rows(again(table)) == expected
    assert rows(again(table), 4) == rows(table, 4)
    put(again(table), 6)
    [finding] = [f for f in again(table).examine().findings if f.code == "checkpoint"]
    assert checkpoint.name in finding.message


def test_the_doctor_goes_on_behind_an_entry_that_cannot_be_read(store: Store, table: Table) -> None:
    """The table cannot be opened, yet all that is wrong is listed, and each cause once."""
    Path(table.location, FILES["checkpoint"]).unlink()
    Path(table.location, FILES["entry"]).write_bytes(b'{"commitInfo')
    for lost in (1, 2):
        Path(table.location, f"_delta_log/{lost:020}.json").unlink()
    with tablestore.connect(store.target) as stranger:
        report = stranger.examine("shop.t")
    assert [(f.code, f.message.split(":")[0]) for f in report.findings] == [
        ("version-gap", "there is one of version 3, and no entries of versions 1 to 2"),
        ("log-entry", "version 3 cannot be read"),
        ("log-entry", "version 6 cannot be built, so its files were not checked"),
    ]
    assert report.version == -1


def test_the_log_is_examined_behind_an_older_entry_that_is_damaged(table: Table) -> None:
    """Its versions can be read from a checkpoint on, so writes succeed, and the doctor must not say that they fail."""
    Path(table.location, FILES["entry"]).write_bytes(b"")
    put(again(table), 6)
    assert [(f.code, f.message.split(":")[0]) for f in again(table).examine().findings] == [
        ("log-entry", "version 3 cannot be read")
    ]


def test_a_checkpoint_of_another_table_is_not_taken_for_the_tables_own(store: Store, table: Table) -> None:
    other = made(store, "shop.other", 11)
    expected = rows(table)
    foreign = Path(other.location, FILES["checkpoint"])
    Path(table.location, FILES["checkpoint"]).write_bytes(foreign.read_bytes())
    assert rows(again(table)) == expected


def test_a_damaged_checkpoint_without_older_entries_is_an_error_with_its_file(table: Table) -> None:
    for version in range(4):
        Path(table.location, f"_delta_log/{version:020}.json").unlink()
    checkpoint = Path(table.location, FILES["checkpoint"])
    checkpoint.write_bytes(b"PAR1 no more PAR1")
    with pytest.raises(Corrupt, match=checkpoint.name) as caught:
        rows(again(table))
    assert caught.value.code == "bad-delta-checkpoint"


def test_a_compactor_goes_on_with_other_tables(tmp_path: Path) -> None:
    target = str(tmp_path / "warehouse")
    with tablestore.connect(target) as store, connect(target) as catalog:
        store.create_database("shop")
        damaged, whole = (made(store, name) for name in ("shop.damaged", "shop.whole"))
        Path(damaged.location, FILES["newest entry"]).write_bytes(b'{"add": {"path": 5}}\n')
        outcomes = {o.table: o for o in Compactor(catalog, Storages(), system_ambient()).run(FOLD)}
        assert isinstance(outcomes["shop.damaged"].error, Corrupt)
        assert outcomes["shop.whole"].done == "version 7: 5 rows folded"
        assert len(rows(whole)) == 5


def test_a_panic_of_rust_is_damage_and_no_end_of_a_thread() -> None:
    def panicking() -> None:
        raise pl.exceptions.PanicException("index out of bounds: the len is 0")

    with pytest.raises(Corrupt, match="index out of bounds") as caught, decoding("the file x", code="data-file"):
        panicking()
    assert caught.value.code == "data-file"
    assert is_panic(caught.value.__cause__ or caught.value)


def test_a_panic_in_a_checkpoint_leaves_the_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit has succeeded already, and a checkpoint only makes reading faster."""

    def panicking(*_: object) -> None:
        raise pl.exceptions.PanicException("index out of bounds: the len is 0")

    monkeypatch.setattr("filestore.table.write_checkpoint", panicking)
    assert [put(table, 7), put(table, 8)] == [7, 8]
    assert len(rows(again(table))) == 7


def test_a_disk_that_does_not_read_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(Unavailable), decoding("the file x", code="data-file"):
        (tmp_path / "missing" / "x").read_bytes()
    with pytest.raises(MemoryError), decoding("the file x", code="data-file"):
        raise MemoryError
    with pytest.raises(ZeroDivisionError), decoding("the file x", code="data-file"):
        1 / 0  # noqa: B018  # a mistake of ours is no damage
    with pytest.raises(Corrupt), well_formed("the file x", code="bad"):
        {}["member"]


def test_names_of_columns_that_are_no_text_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"name_of_column": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"name_of_column", b"name\xff\xfe_column"))
    with pytest.raises(Corrupt, match="damaged"), decoding(f"{path}", code="data-file"):
        pq.ParquetFile(path).schema_arrow  # noqa: B018
