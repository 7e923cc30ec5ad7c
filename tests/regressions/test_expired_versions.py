"""Versions that expire while other things happen to the table."""

from __future__ import annotations

from pathlib import Path

from filestore.doctor import Invariant, examine
from filestore.life.expiry import expire
from filestore.table import FileStore
from tests.tables import Clock, create, define, seeded, write

HOUR_MS = 3_600_000
RETENTION = {"snapshot_num__retained_min": 2, "snapshot_time__retained": "1 h"}


def worn(folder: Path, **options: object) -> FileStore:
    clock = Clock(step_ms=HOUR_MS)
    definition = define("id BIGINT, v INT", ["id"], **RETENTION, **options)
    store = create(folder / "t", definition, ambient=seeded(1, clock))
    for v in range(6):
        write(store, [{"id": 1, "v": v}])
    return store


def test_the_doctor_asks_for_change_data_of_retained_versions_only(folder: Path) -> None:
    """Entries of the log stay until a checkpoint stands for them; the change files that they name go before."""
    store = worn(folder, changelog__producer="lookup")
    gone = [path for path in expire(store).files if path.startswith("_change_data/")]
    assert len(gone) > 1
    assert 0 in store.log.versions(), "no checkpoint stands for the entries yet"
    assert examine(store).healthy
    kept = next(Path(store.location, "_change_data").iterdir())
    kept.unlink()
    assert [f.path for f in examine(store).problems if f.code is Invariant.CHANGE_FILE] == [f"_change_data/{kept.name}"]
