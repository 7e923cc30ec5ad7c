"""A drill: a part of a warehouse is destroyed and restored by the commands of docs/restoring.md."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import tablestore
from filestore.errors import Corrupt, NotFound, TableStoreError
from tablestore import Table
from tests.docs.pages import PageRun, blocks_of, commands_of, environment
from tests.warehouses import changes, replay, rows

LOST = ["The catalog's database", "A table's log", "A file with rows", "A checkpoint"]
EXPIRING = {"checkpoint.interval": "2", "snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s"}


def put(table: Table, low: int, high: int, status: str) -> None:
    table.write(pa.table({"id": range(low, high), "status": [status] * (high - low)}))


def fill(table: Table) -> None:
    """Leaves files with vectors, and a checkpoint without which the table cannot be read."""
    put(table, 0, 1000, "OPEN")
    put(table, 500, 1500, "PAID")
    table.write(pa.table({"id": range(0, 1500, 7), "_kind": ["-D"] * len(range(0, 1500, 7))}))
    put(table, 7, 8, "OPEN")
    table.expire()
    while table.filestore.state().version % 2:
        put(table, 1, 2, "OPEN")
    table.expire()


def use() -> None:
    """Reads and writes the table, as programs do."""
    with tablestore.connect("warehouse") as store:
        table = store.table("shop.orders")
        rows(table)
        put(table, 1, 2, "OPEN")


@pytest.mark.slow
@pytest.mark.parametrize("lost", LOST)
def test_what_is_lost_is_restored_as_the_page_says(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tablestore.connect("warehouse") as store:
        store.create_database("shop")
        options = {name: value for name, value in EXPIRING.items() if lost == "A checkpoint" or "snapshot" not in name}
        store.create_table("shop.orders", "id BIGINT, status STRING", primary_key=["id"], options=options)
        table = store.table("shop.orders")
        fill(table)
        before = rows(table)
    shutil.copytree("warehouse", "backup")
    blocks = [block for block in blocks_of("docs/restoring.md") if block.heading == lost and block.language == "bash"]
    page, lines = PageRun("docs/restoring.md", None), [(line, b) for b in blocks for line in commands_of(b.text)]
    (destroy, block), *restore = lines
    assert destroy.startswith("rm ") and restore
    with environment():
        page.run_line(destroy, block)
        with pytest.raises(TableStoreError):
            use()
        for line, block in restore:
            page.run_line(line, block)
    with tablestore.connect("warehouse") as store:
        table = store.table("shop.orders")
        assert rows(table) == before
        assert table.examine().healthy
        version = table.filestore.state().version
        put(table, 2000, 2100, "NEW")
        assert len(changes(table, version=version)) == 100
        assert replay(changes(table), ["id"]) == rows(table)
        assert len(rows(table)) == len(before) + 100


@pytest.mark.slow
def test_a_file_without_a_backup_is_replaced_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tablestore.connect("warehouse") as store:
        store.create_database("shop")
        store.create_table("shop.orders", "id BIGINT, status STRING", primary_key=["id"])
        table = store.table("shop.orders")
        for low in (0, 500, 1000):
            put(table, low, low + 1000, "OPEN")
        before = rows(table)
        changes(table, version=0, consumer="behind")
    page, found = PageRun("docs/restoring.md", None), blocks_of("docs/restoring.md")
    blocks = [block for block in found if block.heading == "A file without a backup" and block.language == "bash"]
    write, damage, *restore = [(line, block) for block in blocks for line in commands_of(block.text)]
    with environment():
        for line, block in (write, damage):
            page.run_line(line, block)
        with pytest.raises(Corrupt, match="roll the table back"):
            use()
        for line, block in restore:
            page.run_line(line, block)
    use()
    with tablestore.connect("warehouse") as store:
        table = store.table("shop.orders")
        assert rows(table) == [row | {"status": "OPEN"} for row in before]
        assert table.examine().healthy
        version = table.filestore.state().version
        put(table, 2000, 2100, "NEW")
        assert len(changes(table, version=version)) == 100
        with pytest.raises(NotFound, match="scan='full'"):
            changes(table, consumer="behind")
        assert replay(changes(table, consumer="behind", on_log_gap="rescan"), ["id"]) == rows(table)
