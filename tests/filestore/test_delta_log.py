"""How entries of the Delta log are found and read: side by side, and from the last checkpoint on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from filestore import layout
from filestore.delta.log import DeltaLog
from filestore.errors import Conflict, Corrupt
from filestore.life.expiry import expire
from filestore.parquet.whole import parquet_bytes
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


def test_regression_a_checkpoint_whose_files_are_in_sidecars_is_not_one_without_files(folder: Path) -> None:
    """Another writer may make one of the classic name: a reader that knows no sidecars had no file, and no error."""
    store = table(folder, 9, checkpoint_interval=4)
    path = Path(store.location, layout.checkpoint_path(8))
    rows = pq.read_table(path)
    names = [name for name in rows.column_names if name != "sidecar"]
    sidecar = pa.array([None] * (rows.num_rows - 1) + [{"path": "x.parquet", "sizeInBytes": 7}])
    no_adds = pa.nulls(rows.num_rows, pa.struct([("path", pa.string())]))
    without = rows.select(names).set_column(names.index("add"), "add", no_adds)
    path.write_bytes(parquet_bytes(without.append_column("sidecar", sidecar)))
    with pytest.raises(Corrupt, match=r"_sidecars/x\.parquet .* does not exist"):
        store.delta_log.checkpoint(8)
    assert reopen(store).state() == store.state()


@pytest.mark.parametrize("text", [pa.large_string(), pa.string_view()], ids=str)
def test_a_checkpoint_may_have_other_types_of_text(folder: Path, text: pa.DataType) -> None:
    """Its writer chooses them; and members that no file has may be left out."""
    store = table(folder, 9, checkpoint_interval=4)
    path = Path(store.location, layout.checkpoint_path(8))
    rows = pq.read_table(path)
    adds = rows.column("add").combine_chunks()
    names = [field.name for field in adds.type if field.name not in ("deletionVector", "baseRowId")]
    members = [adds.field(name) for name in names]
    members = [member.cast(text) if pa.types.is_string(member.type) else member for member in members]
    changed = pa.StructArray.from_arrays(members, names, mask=pc.is_null(adds))
    path.write_bytes(parquet_bytes(rows.set_column(rows.column_names.index("add"), "add", changed)))
    before = list(store.delta_log.checkpoint(8).files)
    assert {file.path for file in before} == {file.path for file in store.state(8).files} != set()
    assert reopen(store).state().files == store.state().files


def test_regression_a_checkpoint_that_lacks_partition_values_is_not_one_without_files(folder: Path) -> None:
    """Its files were not found by key, and a write put a second row of the key beside them."""
    store = create(folder / "p", define("p STRING, id BIGINT", ["p", "id"], partition_by=["p"], checkpoint_interval=2))
    for number in range(4):
        write(store, [{"p": "x", "id": number}])
    path = Path(store.location, layout.checkpoint_path(4))
    rows = pq.read_table(path)
    adds = [add and add | {"partitionValues": []} for add in rows.column("add").to_pylist()]
    changed = pa.array(adds, rows.schema.field("add").type)
    path.write_bytes(parquet_bytes(rows.set_column(rows.column_names.index("add"), "add", changed)))
    with pytest.raises(Corrupt, match="has no value of p"):
        store.delta_log.checkpoint(4)
    assert reopen(store).state() == store.state()


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
