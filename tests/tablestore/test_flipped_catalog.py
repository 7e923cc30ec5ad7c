"""Flipped bits of the embedded catalog's database: each call works, or says which database is damaged."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import tablestore
from filestore.errors import TableStoreError
from tablestore import Store
from tests.depth import Depth
from tests.folders import memory_folder
from tests.tablestore.flip_trials import TrialProcess

CALLS: dict[str, Callable[[Store], object]] = {
    "list": lambda store: (store.list_databases(), store.list_tables("shop")),
    "open": lambda store: [store.table(name).definition for name in ("shop.a", "shop.c")],
    "view": lambda store: store.view("shop.w"),
    "create": lambda store: store.create_table("shop.n", "id BIGINT", options={"log.system": "none"}),
    "rename": lambda store: store.rename_table("shop.b", "shop.e"),
    "register": lambda store: store.register(),
    "drop": lambda store: store.drop_table("shop.c"),
    "drop all": lambda store: store.drop_database("shop", cascade=True),
}


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with memory_folder() as folder:
        with tablestore.connect(folder / "lake") as store:
            store.create_database("shop")
            options = {"log.system": "none"}
            for name in ("a", "b", "c"):
                store.create_table(f"shop.{name}", "id BIGINT, v INT", primary_key=["id"], options=options)
            store.create_view("shop.w", "SELECT * FROM shop.a", columns="id BIGINT, v INT")
        yield folder / "lake"


def flip(database: Path, dice: random.Random) -> None:
    """Flips bits of bytes that are used: most of an SQLite file is empty."""
    data = bytearray(database.read_bytes())
    used = [at for at, byte in enumerate(data) if byte]
    for at in dice.sample(used, dice.choice((1, 1, 3))):
        data[at] ^= 1 << dice.randrange(8)
    database.write_bytes(data)


def serve(base: Path, orders: Connection) -> None:
    """Runs trials, each given by its seed, until the other end is closed."""
    while True:
        try:
            seed: str = orders.recv()
        except EOFError:
            return
        orders.send(dict(verdicts(base, seed)))


def verdicts(base: Path, seed: str) -> Iterator[tuple[str, str]]:
    """Yields what became of each call; a further one follows in what the one before has left."""
    with memory_folder() as folder:
        copy = shutil.copytree(base, folder / "lake")
        flip(copy / "catalog.db", random.Random(seed))
        for name, call in CALLS.items():
            try:
                with tablestore.connect(copy) as store:
                    call(store)
                yield name, "done"
            except TableStoreError as error:
                yield name, error.code
            except BaseException as error:  # noqa: BLE001  # that none passes is what is tested
                yield name, f"{type(error).__name__}: {error}"


@pytest.mark.slow
def test_each_call_works_or_says_what_is_damaged(base: Path, depth: Depth) -> None:
    trials = TrialProcess(base, serve)
    try:
        found = {seed: trials.run(f"catalog {seed}") for seed in range(depth.times(10, deep=600))}
    finally:
        trials.close()
    raw = {seed: each for seed, each in found.items() if any(": " in verdict for verdict in each.values())}
    assert not raw and not any("process" in each for each in found.values()), raw
    codes = {verdict for each in found.values() for verdict in each.values()}
    assert "catalog-corrupt" in codes


def test_a_row_of_another_type_is_damage(base: Path) -> None:
    """SQLite stores any type in any column."""
    for change, wanted in {
        "UPDATE tables SET created_at_ms = 'x'": "the row of table shop.a in the catalog's database is damaged",
        "UPDATE tables SET state = 'ACTIVF'": "shop.a",
        "UPDATE tables SET definition = substr(definition, 1, 40)": "shop.a",
        "UPDATE tables SET definition = CAST(x'ff' AS TEXT)": "catalog.db",
        "UPDATE databases SET created_at_ms = x'00'": "database shop",
    }.items():
        with memory_folder() as folder:
            copy = shutil.copytree(base, folder / "lake")
            connection = sqlite3.connect(copy / "catalog.db")
            connection.execute(change)
            connection.commit()
            connection.close()
            with tablestore.connect(copy) as store, pytest.raises(TableStoreError) as caught:
                store.list_databases()
                store.table("shop.a")
            assert (caught.value.code, wanted in caught.value.message) == ("catalog-corrupt", True), caught.value
