"""Versions that expire while other operations change the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from filestore.doctor import Invariant, examine
from filestore.life.expiry import expire
from filestore.life.orphans import find_orphans
from filestore.life.tags import create_tag, delete_tag
from filestore.model.change_text import parse_changes
from filestore.operations.alter import alter
from filestore.retention.rules import first_retained, tags_of
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tablestore.writing.writer import TableWriter
from tests.faults import Call, FaultyStorage
from tests.tables import Clock, create, define, reopen, seeded, write

HOUR_MS = 3_600_000
RETENTION = {"snapshot_num__retained_min": 2, "snapshot_time__retained": "1 h"}


def worn(folder: Path, storage: FaultyStorage | None = None, **options: object) -> FileStore:
    clock = Clock(step_ms=HOUR_MS)
    definition = define("id BIGINT, v INT", ["id"], **RETENTION, **options)
    store = create(folder / "t", definition, storage, seeded(1, clock))
    for v in range(6):
        write(store, [{"id": 1, "v": v}])
    return store


def test_the_doctor_asks_for_change_data_of_retained_versions_only(folder: Path) -> None:
    """Log entries stay until a checkpoint replaces them; the change files that they name are removed before."""
    store = worn(folder, changelog__producer="lookup")
    gone = [path for path in expire(store).files if path.startswith("_change_data/")]
    assert len(gone) > 1
    assert 0 in store.delta_log.versions(), "no checkpoint replaces the entries yet"
    assert examine(store).healthy
    kept = next(Path(store.location, "_change_data").iterdir())
    kept.unlink()
    assert [f.path for f in examine(store).problems if f.code is Invariant.CHANGE_FILE] == [f"_change_data/{kept.name}"]


def expires(store: FileStore) -> None:
    assert expire(store).versions > 0
    assert first_retained(store.state()) > 0


def tags(store: FileStore) -> None:
    assert create_tag(store, "b", 5).version == 5
    assert set(tags_of(store.state())) == {"a", "b"}


def untags(store: FileStore) -> None:
    delete_tag(store, "a")
    assert not tags_of(store.state())


@pytest.mark.parametrize("step", [expires, tags, untags], ids=lambda step: step.__name__)
def test_a_column_that_comes_meanwhile_stops_neither_expiry_nor_tags(
    folder: Path, step: Callable[[FileStore], None]
) -> None:
    storage = FaultyStorage(LocalStorage())
    store = worn(folder, storage)
    create_tag(store, "a", 6)

    def alter_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            alter(reopen(store), parse_changes(["ADD COLUMN w INT"]))

    storage.hook = alter_first
    step(store)
    assert [column.name for column in store.state().definition.schema] == ["id", "v", "w"]
    assert examine(store).healthy


@pytest.mark.slow
def test_change_data_of_the_oldest_version_that_is_left_is_no_orphan_and_expires(folder: Path) -> None:
    """A checkpoint does not name change data, so those of a retained version were removed as orphans."""
    store = worn(folder, changelog__producer="lookup", checkpoint_interval=1)
    first = expire(store).first
    assert store.delta_log.versions()[0] == first > 1
    named = [action["cdc"]["path"] for action in store.required(first).actions if "cdc" in action]
    assert named
    assert not find_orphans(store, store.ambient.now_ms() + 1000 * HOUR_MS, lambda: None)
    assert not examine(store).orphans
    for v in range(6):
        write(store, [{"id": 1, "v": -v}])
    assert set(named) <= set(expire(store).files)
    assert not examine(store).findings


def test_a_file_that_a_rollback_restores_has_the_columns_of_its_own_time(folder: Path) -> None:
    """Once the file's own entry had expired, the doctor took the columns of the rollback's entry."""
    store = worn(folder, checkpoint_interval=2)
    alter(store, parse_changes(["ADD COLUMN w INT"]))
    create_tag(store, "wide")
    target = store.state()
    write(store, [{"id": 2, "v": 2, "w": 2}], overwrite=True)
    assert expire(store).log_entries, "the entries that added the files are gone"
    TableWriter(store, lambda _: None, store.ambient).rollback(target.version)
    assert store.state().files.keys() == target.files.keys()
    assert not examine(store).problems
