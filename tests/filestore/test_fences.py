"""Fences in tables: the feature that keeps older writers out, what readers make of it, and how long a fence counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from filestore import layout
from filestore.commit.fence import fence, fence_since
from filestore.delta import actions
from filestore.delta.actions import FENCES, check_protocol
from filestore.errors import Conflict, InvalidRequest, Unsupported
from filestore.life.expiry import expire
from filestore.model.changes import RenameColumn, SetOption
from filestore.model.snapshot import Operation
from filestore.operations.alter import alter
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FaultyStorage
from tests.filestore.surgery import edit_entry
from tests.simulation.memory import MemoryStorage
from tests.tables import (
    Clock,
    assert_healthy,
    create,
    define,
    in_order,
    prepare,
    read,
    read_deltalake,
    read_polars,
    reopen,
    seeded,
    write,
)

IDENTITY = {"system": "kafka", "topic": "t", "topic_id": "i", "cluster_id": "c"}
ROWS = [{"id": n, "v": "a"} for n in range(20)]


def features(store: FileStore, version: int = 0) -> list[str]:
    entry = store.delta_log.read_entry(version)
    assert entry is not None
    return next(a["protocol"]["writerFeatures"] for a in entry.actions if "protocol" in a)  # type: ignore[no-any-return]


@pytest.mark.parametrize("identity", [IDENTITY, None])
@pytest.mark.parametrize("location", ["mem://lake/t", "/lake/t"])
def test_every_new_table_has_the_feature(location: str, identity: dict[str, str] | None) -> None:
    storage = MemoryStorage(lambda: 1)
    definition = define("id BIGINT, v STRING", ["id"], schema_evolution__mode="metadata")
    store = FileStore.create(storage, location, definition, "t", seeded(1), identity)
    assert FENCES in features(store) and store.state().fences
    alter(store, [SetOption("schema.evolution-mode", "metadata"), RenameColumn("v", "w")])
    assert FENCES in features(store, 1) and store.state().fences, "a change of the schema keeps it"
    assert "columnMapping" in features(store, 1)


@pytest.mark.parametrize("wrong", ["999 ms", "0 s", "soon"])
def test_a_time_out_is_a_second_at_least(wrong: str) -> None:
    """Signs of life come four times as often, and each is a request."""
    with pytest.raises(InvalidRequest, match="a duration"):
        define("id BIGINT", log_lease__timeout=wrong)
    assert define("id BIGINT", log_lease__timeout="1 s").options.milliseconds("log.lease-timeout") == 1000


@pytest.fixture
def fenced(folder: Path) -> FileStore:
    """A table that an older version of ours has made, with a fence, and a checkpoint behind it."""
    store = create(folder / "t", define("id BIGINT, v STRING", ["id"], bucket=2, checkpoint_interval=2))
    edit_entry(store, 0, lambda actions: actions[1]["protocol"]["writerFeatures"].remove(FENCES))
    store = reopen(store)
    assert not store.state().fences
    write(store, ROWS)
    fence(store, ["given-up"])
    write(store, [{"id": 1, "v": "b"}])
    write(store, [{"id": 2, "v": None, "_kind": "-D"}])
    return reopen(store)


def test_the_first_fence_of_a_table_adds_the_feature(fenced: FileStore) -> None:
    assert FENCES not in features(fenced) and FENCES in features(fenced, 2)
    assert [s.operation for s in fenced.snapshots()][2:4] == [Operation.FENCE, Operation.WRITE]
    assert fenced.snapshot(2).fenced == ("given-up",)
    fence(fenced, ["another"])
    newest = fenced.delta_log.read_entry(fenced.state().version)
    assert newest is not None and [next(iter(action)) for action in newest.actions] == ["commitInfo"]
    assert_healthy(fenced)


def test_every_reader_goes_on_reading(fenced: FileStore) -> None:
    expected = in_order(read(fenced))
    assert len(expected) == 19
    assert in_order(read_deltalake(fenced.location)) == in_order(read_polars(fenced.location)) == expected


def test_checkpoints_are_written_and_contain_the_feature(fenced: FileStore) -> None:
    assert fenced.delta_log.checkpoints() == [2, 4]
    assert all(fenced.delta_log.checkpoint(version).fences for version in (2, 4))
    Path(fenced.location, layout.log_entry_path(0)).unlink()
    assert reopen(fenced).state().fences


def test_other_writers_stay_out(fenced: FileStore) -> None:
    table = deltalake.DeltaTable(fenced.location)
    with pytest.raises(DeltaError, match="tablestore"):
        deltalake.write_deltalake(table, pa.table({"id": [9], "v": ["x"]}), mode="append")


def test_a_version_of_ours_that_knows_no_fences_refuses_the_table(
    fenced: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "FENCES", "another")
    with pytest.raises(Unsupported, match=r"'tablestore\.fences'") as refused:
        check_protocol({"writerFeatures": [*features(fenced), FENCES]})
    assert refused.value.code == "unknown-feature"


@pytest.mark.slow
def test_delta_spark_reads_it(fenced: FileStore, spark: SparkSession) -> None:
    found = [row.asDict() for row in spark.read.format("delta").load(fenced.location).collect()]
    assert in_order(found) == in_order(read(fenced))


def test_a_fence_is_found_from_the_base_on(fenced: FileStore) -> None:
    log = fenced.delta_log
    assert [fence_since(log, log.at(version), "given-up") for version in range(5)] == [2, 2, None, None, None]
    assert fence_since(log, log.at(0), "other") is None


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("call", range(1, 12))
def test_a_fence_that_expires_refuses_all_the_same(folder: Path, call: int) -> None:
    """Entries expire oldest first: if that of the fence is gone, so is that of the version on which its commit rests.

    The expiry comes before any call of the sleeper's commit, and has removed any number of entries by then.
    """
    for gone in range(1, 7):
        store = create(folder / f"t{gone}", define("id BIGINT, v STRING", ["id"], bucket=1, checkpoint_interval=2))
        write(store, ROWS)
        storage = FaultyStorage(LocalStorage())
        asleep = prepare(reopen(store, storage), [{"id": 1, "v": "sleeper"}])
        fence(store, [asleep.proposal.commit_id])
        for number in range(4):
            write(store, [{"id": 50 + number, "v": "c"}])
        left = [version for version in store.delta_log.versions() if version >= gone]
        calls = itertools.count(1)

        def expire_now(made: Call, gone: int = gone, calls: Iterator[int] = calls, store: FileStore = store) -> None:
            if not made.done and next(calls) == call:
                for version in range(gone):
                    Path(store.location, layout.log_entry_path(version)).unlink()

        storage.hook = expire_now
        with pytest.raises(Conflict) as refused:
            asleep.commit()
        assert refused.value.code in ("fenced", "base-expired")
        if next(calls) > call:
            assert store.delta_log.versions() == left, "what it wrote where entries have expired is gone"


def test_an_expiry_keeps_its_order(folder: Path) -> None:
    """What the test above takes for granted."""
    clock = Clock()
    options = {"snapshot_time__retained": "1 h", "snapshot_num__retained_min": 1, "checkpoint_interval": 2}
    store = create(folder / "t", define("id BIGINT, v STRING", ["id"], bucket=1, **options), ambient=seeded(1, clock))
    for number in range(6):
        write(store, [{"id": number, "v": "c"}])
    removed: list[int] = []
    delete = store.storage.delete

    def note(path: str) -> None:
        name = layout.parse_log_entry(path.rpartition("/")[2])
        if name is not None and not name.checkpoint:
            removed.append(name.version)
        delete(path)

    store.storage.delete = note  # type: ignore[method-assign]
    clock.ms += 10**8
    expire(store)
    assert removed == sorted(removed) and len(removed) >= 4
