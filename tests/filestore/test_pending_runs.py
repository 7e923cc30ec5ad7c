"""Runs on storage: how the doctor reports damaged ones, and the orders that runs must keep (FORMAT.md section 11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from filestore.delta.actions import RUN_DOMAIN
from filestore.delta.by_slot import LookupFiles
from filestore.doctor import Invariant, examine
from filestore.errors import InvalidRequest
from filestore.model.files import PendingRun, Slot
from filestore.sorting.order import sort_rows
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from filestore.writing.pending import PendingRunWriter, pending_chunks
from filestore.writing.write import WriteResult, write_sorted
from tests.filestore.surgery import edit_entry
from tests.tables import assert_healthy, create, define, prepare, seeded, to_arrow, write

LATER = {"write__mode": "merge-on-read"}


@pytest.fixture
def store(folder: Path) -> FileStore:
    made = create(folder / "t", define("id BIGINT, v STRING", ["id"], bucket=2, **LATER), ambient=seeded(5))
    for start in (0, 10):
        append(made, [{"id": n, "v": "x"} for n in range(start, start + 30)])
    assert_healthy(made)
    return made


def append(store: FileStore, rows: list[dict[str, Any]]) -> None:
    prepare(store, rows, later=True).commit()


def runs_of(store: FileStore) -> list[PendingRun]:
    return list(store.state().pending)


def on_file(change: Callable[[pa.Table], pa.Table]) -> Callable[[FileStore], None]:
    def damage(store: FileStore) -> None:
        run = runs_of(store)[0]
        path = Path(store.location, run.path)
        pq.write_table(change(pq.read_table(path)), path)
        on_run(lambda value: value.update(size=path.stat().st_size))(store)

    return damage


def on_run(edit: Callable[[dict[str, Any]], object]) -> Callable[[FileStore], None]:
    """Changes the log's entry about the first run."""

    def damage(store: FileStore) -> None:
        run = runs_of(store)[0]

        def change(actions: list[dict[str, Any]]) -> None:
            for action in actions:
                domain = action.get("domainMetadata", {})
                if domain.get("domain") == RUN_DOMAIN + run.id:
                    value = json.loads(domain["configuration"])
                    edit(value)
                    domain["configuration"] = json.dumps(value)

        edit_entry(store, run.version, change)

    return damage


def again(store: FileStore) -> None:
    """Makes a version add a run that is pending already."""
    action = next(a for a in store.delta_log.read_entry(1).actions if "domainMetadata" in a)
    edit_entry(store, 2, lambda actions: actions.append(action))


DAMAGES: dict[str, Callable[[FileStore], None]] = {
    "a run is gone": lambda store: Path(store.location, runs_of(store)[0].path).unlink(),
    "a run is garbage": lambda store: Path(store.location, runs_of(store)[0].path).write_bytes(b"PAR1"),
    "another size": on_run(lambda value: value.update(size=3)),
    "another number of rows": on_run(lambda value: value.update(rows=3)),
    "another bucket": on_run(lambda value: value.update(bucket=1 - value["bucket"])),
    "another first key": on_run(lambda value: value.update(minKey="[-7]")),
    "another version": on_run(lambda value: value.update(version=7)),
    "a column is gone": on_file(lambda rows: rows.drop_columns(["v"])),
    "rows in another order": on_file(lambda rows: rows.take(pa.array(range(rows.num_rows)[::-1]))),
    "a kind that does not exist": on_file(
        lambda rows: rows.set_column(2, rows.schema.field(2), pa.array(["?"] * rows.num_rows))
    ),
    "a run that is pending twice": again,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_damaged_runs_are_found(store: FileStore, damage: Callable[[FileStore], None]) -> None:
    damage(store)
    report = examine(FileStore(LocalStorage(), store.location, store.ambient))
    assert Invariant.PENDING_RUN in {finding.code for finding in report.problems}


def on_tombstones(edit: Callable[[dict[str, Any]], object]) -> Callable[[FileStore], None]:
    """Changes the log's entry about the first run of deleted keys, which version 1 remembers."""

    def change(actions: list[dict[str, Any]]) -> None:
        domain = next(a["domainMetadata"] for a in actions if "domainMetadata" in a)
        value = json.loads(domain["configuration"])
        edit(value)
        domain["configuration"] = json.dumps(value)

    return lambda store: edit_entry(store, 1, change)


DAMAGED_TOMBSTONES: dict[str, Callable[[FileStore], None]] = {
    "tombstones are gone": lambda store: next(Path(store.location).glob("_runs/*/*.parquet")).unlink(),
    "another number of rows": on_tombstones(lambda value: value.update(rows=3)),
    "another last key": on_tombstones(lambda value: value.update(maxKey="[99]")),
    "tombstones that are remembered twice": lambda store: edit_entry(
        store,
        2,
        lambda actions: actions.append(next(a for a in store.delta_log.read_entry(1).actions if "domainMetadata" in a)),
    ),
}


def test_a_run_that_is_cut_off_is_named_with_its_size(store: FileStore) -> None:
    path = runs_of(store)[0].path
    Path(store.location, path).write_bytes(b"PAR1")
    messages = [finding.message for finding in examine(store).findings if finding.path == path]
    assert any(" has 4 bytes, the log says " in message for message in messages)


@pytest.mark.parametrize("damage", DAMAGED_TOMBSTONES.values(), ids=list(DAMAGED_TOMBSTONES))
def test_damaged_tombstones_are_found(folder: Path, damage: Callable[[FileStore], None]) -> None:
    made = create(folder / "t", define("id BIGINT, s BIGINT", ["id"], sequence_field="s"), ambient=seeded(5))
    write(made, [{"id": n, "s": 3, "_kind": "-D"} for n in range(5)])
    write(made, [{"id": 7, "s": 1}])
    assert_healthy(made)
    damage(made)
    report = examine(FileStore(LocalStorage(), made.location, made.ambient))
    assert Invariant.TOMBSTONES in {finding.code for finding in report.problems}


def test_a_run_that_goes_without_its_configuration_is_found(folder: Path) -> None:
    """A writer that lost against that commit would not know which slot the removed run belonged to."""
    made = create(folder / "t", define("id BIGINT, s BIGINT", ["id"], sequence_field="s"), ambient=seeded(5))
    write(made, [{"id": 1, "s": 3, "_kind": "-D"}])
    write(made, [], overwrite=True)
    assert_healthy(made)

    def empty(actions: list[dict[str, Any]]) -> None:
        (domain,) = (a["domainMetadata"] for a in actions if "domainMetadata" in a)
        assert domain["removed"]
        domain["configuration"] = "{}"

    edit_entry(made, 2, empty)
    report = examine(FileStore(LocalStorage(), made.location, made.ambient))
    assert {finding.code for finding in report.problems} == {Invariant.TOMBSTONES}


def test_changes_of_one_key_keep_the_order_of_runs_and_rows(folder: Path) -> None:
    """The order holds, too, if a key's rows cross the end of a row group and continue in the next run."""
    definition = define("id BIGINT, v BIGINT", ["id"], merge__engine="partial-update", **LATER)
    made = create(folder / "t", definition, ambient=seeded(6))
    table = made.table_files(made.state())
    runs = []
    for start in (0, 40_000, 80_000):
        with PendingRunWriter(table, Slot((), 0)) as writer:
            rows = [{"id": 1 + (n > 30_000), "v": start + n, "_kind": "+U"} for n in range(35_000)]
            writer.write(to_arrow(definition, rows))
            runs += writer.finish()
    chunks = list(pending_chunks(table, Slot((), 0), runs))
    for key, count in ((1, 3 * 30_001), (2, 3 * 4_999)):
        (chunk,) = [c.filter(pc.equal(c.column("id"), key)) for c in chunks if key in c.column("id").to_pylist()]
        ordered = chunk.sort_by("_ordinal").column("v").to_pylist()
        assert len(ordered) == count
        assert ordered == sorted(ordered)


def test_writing_a_run_that_fails_leaves_no_file(store: FileStore) -> None:
    before = {info.path for info in store.storage.walk(store.location)}
    state = store.state()
    batches = prepare_batches(store, [{"id": 1, "v": "a", "_kind": "+I"}, {"id": 3, "v": "a", "_kind": "?"}])
    with pytest.raises(InvalidRequest, match="give each row one of"):
        WriteResult(tuple(write_sorted(store.table_files(state), LookupFiles(), batches, later=True)))
    assert {info.path for info in store.storage.walk(store.location)} == before


def prepare_batches(store: FileStore, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    definition = store.state().definition
    return sort_rows(to_arrow(definition, rows), definition).to_batches()
