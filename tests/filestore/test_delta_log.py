"""How entries of the Delta log are found and read: side by side, and from the last checkpoint on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from filestore import layout
from filestore.delta.log import DeltaLog
from filestore.errors import Conflict, Corrupt
from filestore.life.expiry import expire
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FaultyStorage
from tests.tables import Clock, assert_healthy, create, define, prepare, reopen, seeded, write

COLUMNS = "id BIGINT, v INT"
HOUR_MS = 3_600_000


class Asked(LocalStorage):
    """Local files; it notes which entries are read together, and from which name on folders are listed."""

    def __init__(self) -> None:
        self.together: list[list[int]] = []
        self.listed: list[str] = []

    def read_each(self, paths: Sequence[str]) -> list[bytes | None]:
        names = [layout.parse_log_entry(path.rpartition("/")[2]) for path in paths]
        self.together.append([name.version for name in names if name is not None])
        return super().read_each(paths)

    def list_names(self, path: str, after: str = "") -> list[str]:
        self.listed.append(after)
        return super().list_names(path, after)


def table(folder: Path, versions: int, **options: object) -> FileStore:
    store = create(folder / "t", define(COLUMNS, ["id"], **options), ambient=seeded(1, Clock(step_ms=HOUR_MS)))
    for v in range(versions):
        write(store, [{"id": v % 3, "v": v}])
    return store


def hint(store: FileStore) -> Path:
    return Path(store.location) / layout.LAST_CHECKPOINT


def test_later_entries_are_read_as_many_at_once_as_were_found_before(folder: Path) -> None:
    store, asked = table(folder, 12), Asked()
    found = [entry.version for entry in DeltaLog(asked, store.location).read_entries_after(0)]
    assert found == list(range(1, 13))
    assert asked.together == [[1], [2], [3, 4], [5, 6, 7, 8], list(range(9, 17))]


def test_entries_behind_a_gap_are_not_later_ones(folder: Path) -> None:
    """What follows a missing entry was committed after the others were looked for, or is damage."""
    store = table(folder, 5)
    (Path(store.location) / layout.log_entry_path(4)).unlink()
    assert [entry.version for entry in store.delta_log.read_entries_after(1)] == [2, 3]
    with pytest.raises(Corrupt, match=r"lacks the log entry of version 4, .*/0*4\.json from a backup") as caught:
        list(store.delta_log.required(range(6)))
    assert caught.value.code == "version-gap"


def test_a_table_is_opened_from_its_last_checkpoint_on(folder: Path) -> None:
    store, asked = table(folder, 9, checkpoint_interval=4), Asked()
    assert json.loads(hint(store).read_text())["version"] == 8
    assert DeltaLog(asked, store.location).latest() == store.state()
    assert asked.listed == [f"{8:020d}"]
    assert [0] not in asked.together
    assert store.delta_log.versions() == list(range(10)), "older versions are there"


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"version": "8"}',
        '{"version": null}',
        '{"version": -1}',
        '{"version": 8.0}',
        '{"version": true}',
        '{"version": 6}',
        '{"version": 99}',
        '{"version": 4}',
        b"\xff\xfe",
    ],
)
def test_a_wrong_hint_only_costs_a_listing(folder: Path, text: str | bytes) -> None:
    store = table(folder, 9, checkpoint_interval=4)
    hint(store).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert reopen(store).state() == store.state()
    hint(store).unlink()
    assert reopen(store).state() == store.state()


@pytest.mark.slow
def test_a_hint_of_a_checkpoint_that_expires_while_the_table_is_opened(folder: Path) -> None:
    life = {"snapshot_num__retained_min": 2, "snapshot_time__retained": "1 h"}
    store = table(folder, 9, checkpoint_interval=4, **life)
    storage = FaultyStorage(LocalStorage())

    def expires(call: Call) -> None:
        if call.operation == "list_names":
            storage.hook = lambda _: None
            for v in range(20):
                write(store, [{"id": 0, "v": v}])
            assert expire(reopen(store)).log_entries
            assert 8 not in store.delta_log.checkpoints()

    storage.hook = expires
    assert DeltaLog(storage, store.location).latest() == store.state()


@pytest.mark.slow
def test_a_base_that_expires_right_after_it_was_read_is_no_base(folder: Path) -> None:
    """A commit reads its base and the version after it side by side: the latter may be missing since it has expired."""
    store = table(folder, 3, checkpoint_interval=4, snapshot_num__retained_min=2, snapshot_time__retained="1 h")
    storage = FaultyStorage(LocalStorage())
    prepared = prepare(reopen(store, storage), [{"id": 77, "v": 1}])
    base = prepared.base.version

    def expires(call: Call) -> None:
        if call.done and call.path.endswith(layout.log_entry_path(base)):
            storage.hook = lambda _: None
            for v in range(30):
                write(store, [{"id": 0, "v": v}])
            expire(reopen(store))

    storage.hook = expires
    with pytest.raises(Conflict) as caught:
        prepared.commit()
    assert caught.value.code == "base-expired"
    assert min(store.delta_log.versions()) > base + 1, "what was written there is taken back"
    assert_healthy(store)
