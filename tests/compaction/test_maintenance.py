"""Repeated maintenance does little, and the doctor finds nothing afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compaction.duties import LIFE
from compaction.maintenance import maintain
from filestore import layout
from filestore.doctor import examine
from filestore.life.expiry import expire
from filestore.life.tags import create_tag
from filestore.reading.overlay import pending_slots
from filestore.reading.overlay_table import commit_overlay, overlay_location, overlay_slot
from filestore.retention.overlays import old_overlays
from filestore.retention.rules import first_retained
from filestore.storage.interface import FileInfo
from filestore.table import FileStore
from tests.opened import under_a_name
from tests.tables import assert_healthy, create, define, prepare, seeded, write

KEEP = {"snapshot_num__retained_min": 1, "snapshot_time__retained": "0 ms", "checkpoint_interval": 4}
DAY = 86_400_000


def test_maintenance_waits_until_an_expiry_frees_something(folder: Path) -> None:
    """Maintenance reported versions as expired, though it had done nothing."""
    store = create(folder / "t", define("id BIGINT", **KEEP))
    for number in range(5):
        write(store, [{"id": number}])
    assert maintain(under_a_name(store)).expiry.versions == 0
    assert (store.state().version, first_retained(store.state())) == (5, 0)
    done = expire(store)
    assert (done.versions, done.first) == (5, 5)
    assert (store.state().version, first_retained(store.state())) == (6, 5)


@pytest.mark.slow
def test_the_doctor_does_not_miss_the_change_data_of_expired_versions(folder: Path) -> None:
    """Log entries of expired versions stay for as long as a tag needs them; their change data do not."""
    store = create(folder / "t", define("id BIGINT, v INT", ["id"], changelog__producer="lookup", **KEEP))
    for number in range(13):
        write(store, [{"id": 1, "v": number}])
        if number == 2:
            create_tag(store, "early", 3)
    assert expire(store).files
    assert 4 in store.delta_log.versions()
    assert_healthy(store)
    write(store, [{"id": 1, "v": 99}])
    newest = store.delta_log.read_entry(store.state().version)
    assert newest is not None
    (path,) = (action["cdc"]["path"] for action in newest.actions if "cdc" in action)
    Path(store.location, path).unlink()
    assert {finding.code for finding in examine(store).problems} == {"change-file"}


def test_old_overlays_go_with_maintenance(folder: Path) -> None:
    definition = define("id BIGINT, v INT", ["id"], write__mode="merge-on-read")
    store = create(folder / "t", definition, ambient=seeded(1))
    prepare(store, [{"id": 1, "v": 1}], later=True).commit()
    state = store.state()
    table = store.table_files(state)
    overlay = overlay_location(table, state.version)
    named = [file for slot in pending_slots(state) for file in overlay_slot(table, slot, overlay)]
    commit_overlay(table, state, set(state.pending.slots), named, overlay)
    written = max(info.modified_ms for info in store.storage.walk(overlay))
    assert examine(later(store, written + DAY)).orphans == (), "a reader may need it"
    assert maintain(under_a_name(later(store, written + DAY))).overlays == 0
    assert Path(overlay).is_dir()
    orphans = examine(later(store, written + DAY + 1)).orphans
    assert {layout.join(store.location, found.path or "").rpartition("/_delta_log")[0] for found in orphans} == {
        overlay
    }
    assert maintain(under_a_name(later(store, written + DAY + 1))).overlays == 1
    assert not Path(overlay).exists()


@pytest.mark.parametrize("consistency", ["transactional", "eventual"])
def test_whether_readers_may_leave_overlays(folder: Path, consistency: str) -> None:
    """Fresh reads of an eventual log leave overlays; no other reads do."""
    store = create(folder / "t", define("id BIGINT", ["id"], log_consistency=consistency), ambient=seeded(1))
    assert LIFE.due(store.state(), 0) is (consistency == "eventual")


def later(store: FileStore, now_ms: int) -> FileStore:
    return FileStore.open(store.storage, store.location, replace(store.ambient, now_ms=lambda: now_ms))


def test_an_overlay_is_as_old_as_its_newest_file() -> None:
    files = [FileInfo(f"t/_overlays/{name}", 1, ms) for name, ms in (("1/a", 5), ("1/b", 9), ("2/a", 6), ("2/_x/b", 7))]
    assert old_overlays("t/_overlays", files, 9) == ["t/_overlays/2"]
    assert old_overlays("t/_overlays", files, 10) == ["t/_overlays/1", "t/_overlays/2"]
