"""A normalizer returns exactly the changes, for any input and any number of restarts."""

from __future__ import annotations

import os
import pickle
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.commit.proposal import AppVersion
from filestore.errors import Conflict, InvalidRequest, NotFound
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.snapshot import Operation
from tablestore import Normalizer, NormalizerSpec, Store
from tablestore.normalizing.normalizer import expiry_due
from tablestore.normalizing.progress import goes_on
from tests.folders import memory_folder
from tests.tables import assert_healthy, read, seeded
from tests.tablestore.normalizing.upserts import (
    BUSY,
    Known,
    Upsert,
    after,
    between,
    changed,
    known,
    replayed,
    rows_of,
    spec,
)

KINDS = st.sampled_from(["+I", "+U", "+U", "-D", "-U"])
UPSERTS = st.lists(st.tuples(KINDS, st.integers(0, 9), st.none() | st.integers(0, 2)), max_size=12)
STEPS = st.lists(st.tuples(UPSERTS, st.sampled_from(["go on", "go on", "begin again", "once more"])), max_size=8)


@pytest.mark.slow
@given(steps=STEPS)
def test_any_history_gives_what_changed(steps: Sequence[tuple[list[Upsert], str]]) -> None:
    with memory_folder() as folder:
        normalizer = Normalizer(spec(folder / "state"))
        rows: Known = {}
        given_before: dict[int, list[Upsert]] = {}
        for number, (batch, then) in enumerate(steps):
            found = normalizer.apply(rows_of(batch), {"0": number})
            now = after(rows, batch)
            assert found.number == number
            assert changed(found) == between(rows, now)
            assert replayed(rows, changed(found)) == now
            given_before[number], rows = changed(found), now
            if then == "begin again":
                normalizer = Normalizer(spec(folder / "state"))
                assert normalizer.positions == {"0": number}
                last = normalizer.last()
                assert last is not None
                assert (last.number, changed(last)) == (number, given_before[number])
            elif then == "once more":
                again = normalizer.apply(rows_of([("+U", 1, 77)]), {"0": max(0, number - 1)})
                assert changed(again) == given_before[max(0, number - 1)]
        assert known(normalizer) == rows
        assert_healthy(spec(folder / "state").opened(seeded()))


SEQUENCED = st.lists(st.tuples(KINDS, st.integers(0, 4), st.integers(0, 9)), max_size=8)


def _is_former(batch: Sequence[Upsert], place: int) -> bool:
    """Whether it is the row before an update whose new row is directly behind it: that one decides."""
    kinds_and_keys = [(kind, key) for kind, key, _ in batch[place : place + 2]]
    return kinds_and_keys == [("-U", batch[place][1]), ("+U", batch[place][1])]


@example(batches=[[("-U", 1, 1), ("+U", 1, 0)]])
@given(batches=st.lists(SEQUENCED, max_size=8))
def test_rows_that_are_late_give_nothing(batches: Sequence[list[Upsert]]) -> None:
    """The value is the sequence: the highest one of a key counts, of equal ones the last; deletes are remembered."""
    with memory_folder() as folder:
        normalizer = Normalizer.open(
            str(folder / "s"), "id BIGINT, v INT", ["id"], sequence_field="v", options=BUSY | {"bucket": "3"}
        )
        highest: dict[int, tuple[int, bool]] = {}
        rows: Known = {}
        for number, batch in enumerate(batches):
            for place, (kind, key, sequence) in enumerate(batch):
                assert sequence is not None
                if _is_former(batch, place):
                    continue
                if sequence >= highest.get(key, (-1, False))[0]:
                    highest[key] = sequence, kind in ("+I", "+U")
            now = {key: sequence for key, (sequence, there) in highest.items() if there}
            changes = changed(normalizer.apply(rows_of(batch), {"0": number}))
            assert Counter(changes) == Counter(between(rows, now))
            assert replayed(rows, changes) == now
            rows = now


def test_deletes_of_unknown_keys_and_rows_as_they_were_give_nothing(folder: Path) -> None:
    normalizer = Normalizer(spec(folder))
    assert changed(normalizer.apply(rows_of([("-D", 1, None)]), {"0": 1})) == []
    assert changed(normalizer.apply(rows_of([("+I", 1, None), ("+I", 2, 5)]), {"0": 2})) == [
        ("+I", 1, None),
        ("+I", 2, 5),
    ]
    assert changed(normalizer.apply(rows_of([("+U", 1, None), ("+U", 2, 5), ("-D", 3, 1)]), {"0": 3})) == []
    assert changed(normalizer.apply(rows_of([("-U", 2, 5), ("+U", 2, 6)]), {"0": 4})) == [("-U", 2, 5), ("+U", 2, 6)]
    assert changed(normalizer.apply(rows_of([("-D", 1, 8), ("-D", 2, None)]), {"0": 5})) == [
        ("-D", 1, None),
        ("-D", 2, 6),
    ]
    assert changed(normalizer.apply(rows_of([("+U", 2, 6)]), {"0": 6})) == [("+I", 2, 6)]


def test_what_delta_rs_reads_of_the_state_is_what_was_given(folder: Path) -> None:
    normalizer = Normalizer(spec(folder / "s"))
    given_now: dict[int, Counter[Any]] = {}
    for number in range(6):
        batch = [("-D" if key == number else "+U", key, key % (number + 1)) for key in range(number, number + 5)]
        changes = normalizer.apply(rows_of(batch), {"0": number})
        given_now[changes.version] = Counter(changed(changes))
    kinds = {"insert": "+I", "update_preimage": "-U", "update_postimage": "+U", "delete": "-D"}
    feed = deltalake.DeltaTable(str(folder / "s")).load_cdf(starting_version=1)
    found: dict[int, Counter[Any]] = {}
    for row in pa.table(feed.read_all()).to_pylist():
        change = kinds[row["_change_type"]], row["id"], row["v"]
        found.setdefault(row["_commit_version"], Counter())[change] += 1
    assert found == {version: changes for version, changes in given_now.items() if changes}


def test_polars_frames_without_a_kind_are_put(folder: Path) -> None:
    with Normalizer.open(str(folder / "s"), pa.schema([("id", pa.int64()), ("v", pa.string())]), ["id"]) as normalizer:
        changes = list(normalizer.apply(pl.DataFrame({"id": [2, 1, 2], "v": ["a", "b", "c"]}), {"a": 3, "b": 0}))
        assert [batch.schema for batch in changes] == [normalizer.schema]
        assert normalizer.schema.names == ["id", "v", KIND_COLUMN]
        assert [row["v"] for batch in changes for row in batch.to_pylist()] == ["b", "c"]
        assert normalizer.positions == {"a": 3, "b": 0}
        assert not list(normalizer.apply(pl.DataFrame({"id": [1], "v": ["b"]}), {"b": 1}))
        assert normalizer.positions == {"a": 3, "b": 1}
        normalizer.apply(pl.DataFrame(schema={"id": pl.Int64, "v": pl.String}), {"a": 9})
        assert normalizer.positions == {"a": 9, "b": 1}, "a batch without rows takes the input further, too"


def test_a_large_batch_comes_in_small_ones_each_with_whole_pairs(folder: Path) -> None:
    normalizer = Normalizer(spec(folder, **{"row-group.rows": "1024", "bucket": "2", "target-file-size": "20 kb"}))
    ids = np.random.default_rng(1).permutation(5000)
    normalizer.apply(pa.table({"id": ids, "v": np.zeros(5000, dtype=np.int32)}), {"0": 0})
    changes = normalizer.apply(pa.table({"id": ids, "v": ids.astype(np.int32) % 3}), {"0": 1})
    assert len(list(changes)) >= 4
    assert max(batch.num_rows for batch in changes) <= 2 * 1024
    for batch in changes:
        changed = pl.DataFrame(batch)
        before, now = changed[::2], changed[1::2]
        assert set(before["_kind"]) == {"-U"}
        assert set(now["_kind"]) == {"+U"}
        assert before["id"].equals(now["id"])
    assert sum(batch.num_rows for batch in changes) == 2 * int(np.count_nonzero(ids % 3))


def test_rows_of_every_kind_of_column_come_as_they_were(folder: Path) -> None:
    columns = (
        "k STRING, d DATE, a ARRAY<INT>, m MAP<STRING, BIGINT>, s STRUCT<x: INT, y: STRING>, n DECIMAL(20,3), "
        "f DOUBLE, b BINARY, t TIMESTAMP"
    )
    normalizer = Normalizer.open(str(folder), columns, ["k", "d"], options=BUSY)
    schema = pa.schema(list(normalizer.schema)[:-1])
    row: dict[str, Any] = {"k": "a", "d": date(2026, 1, 1), "a": [1, None], "m": [("x", 1)], "s": {"x": 1, "y": None}}
    row |= {"n": Decimal("1.500"), "f": 0.5, "b": b"\0", "t": datetime(2026, 1, 1, tzinfo=UTC)}
    other = row | {"a": [], "m": [("x", 2)], "s": None, "f": None}

    def rows(*listed: dict[str, Any]) -> pa.Table:
        return pa.Table.from_pylist(list(listed), schema=schema)

    def found(*listed: dict[str, Any], at: int) -> list[dict[str, Any]]:
        return [r for batch in normalizer.apply(rows(*listed), {"0": at}) for r in batch.to_pylist()]

    assert found(row, at=0) == [row | {"_kind": "+I"}]
    assert found(row, row, at=1) == []
    assert found(other, at=2) == [row | {"_kind": "-U"}, other | {"_kind": "+U"}]
    assert found(other | {"d": date(2026, 1, 2)}, at=3) == [other | {"d": date(2026, 1, 2), "_kind": "+I"}]


def test_a_table_takes_each_batch_once(store: Store, folder: Path) -> None:
    """From upserts to a copy, though the process between them dies after any step."""
    copy = store.create_table("shop.copy", "id BIGINT, v INT", primary_key=["id"])
    batches = [[("+U", 1, 1), ("+U", 2, 1)], [("+U", 1, 2), ("-D", 2, None)], [("+U", 3, 3)]]
    for number, batch in enumerate(batches):
        for _ in range(2):
            changes = Normalizer(spec(folder)).apply(rows_of(batch), {"0": number})
            if found := list(changes):
                copy.write(pa.Table.from_batches(found), app=("normalized", changes.number))
    assert sorted(copy.scan().to_polars().iter_rows()) == [(1, 2), (3, 3)]
    assert sum(s.operation is Operation.WRITE for s in copy.snapshots()) == 3


@pytest.mark.parametrize(
    ("positions", "why"),
    [({}, "needs the position"), ({"0": -1}, "whole numbers"), ({"0": 2**63}, "whole")],
)
def test_positions_that_cannot_be_kept_are_refused(folder: Path, positions: dict[str, int], why: str) -> None:
    normalizer = Normalizer(spec(folder))
    with pytest.raises(InvalidRequest, match=why) as caught:
        normalizer.apply(rows_of([("+I", 1, 1)]), positions)
    assert caught.value.code == "bad-positions"
    assert normalizer.last() is None
    assert not read(normalizer.spec.opened(seeded()))


def test_whether_a_batch_goes_on() -> None:
    assert goes_on({}, {"0": 0})
    assert goes_on({"0": 5, "1": 5}, {"0": 6})
    assert goes_on({"0": 5}, {"0": 5, "1": 0})
    assert not goes_on({"0": 5}, {"0": 5})
    assert not goes_on({"0": 5, "1": 5}, {"0": 6, "1": 4})


def test_a_batch_that_was_never_taken_and_is_behind_the_state_is_refused(folder: Path) -> None:
    normalizer = Normalizer(spec(folder))
    normalizer.apply(rows_of([("+I", 1, 1)]), {"0": 10, "1": 10})
    for end in ({"0": 9}, {"0": 10}, {"0": 11, "1": 9}):
        with pytest.raises(InvalidRequest, match="has applied its input up to") as caught:
            normalizer.apply(rows_of([("+I", 2, 1)]), end)
        assert caught.value.code == "positions-already-applied"
    assert known(normalizer) == {1: 1}


def test_rows_that_do_not_fit_change_nothing(folder: Path) -> None:
    normalizer = Normalizer(spec(folder))
    normalizer.apply(rows_of([("+I", 1, 1)]), {"0": 0})
    for rows, code in (
        (pa.table({"id": [1], "other": [1]}), "unknown-column"),
        (pa.table({"v": [1]}), "missing-column"),
        (pa.table({"id": pa.array([None], pa.int64()), "v": [1]}), "null-key"),
        (pa.table({"id": [2], "v": [2**40]}), "bad-value"),
        (pa.table({"id": [2], "v": [1], "_kind": ["+X"]}), "bad-row-kind"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            normalizer.apply(rows, {"0": 1})
        assert caught.value.code == code
    assert normalizer.positions == {"0": 0}
    assert changed(normalizer.apply(rows_of([("+I", 1, 2)]), {"0": 1})) == [("-U", 1, 1), ("+U", 1, 2)]


def test_two_processes_with_one_batch_give_the_same(folder: Path) -> None:
    first, second = Normalizer(spec(folder)), Normalizer(spec(folder))
    batch = rows_of([("+I", 1, 1)])
    assert changed(first.apply(batch, {"0": 1})) == changed(second.apply(batch, {"0": 1})) == [("+I", 1, 1)]
    assert first.positions == second.positions == {"0": 1}


@pytest.mark.parametrize("same", [True, False])
def test_a_process_that_is_overtaken_gives_the_same_or_fails(folder: Path, same: bool) -> None:
    slow, fast = Normalizer(spec(folder)), Normalizer(spec(folder))
    slow.apply(rows_of([("+I", 1, 1)]), {"0": 1})
    write = slow._writer.write

    def overtaken(*args: Any, **named: Any) -> Any:
        fast.apply(rows_of([("+U", 1, 2)]), {"0": 2 if same else 3})
        return write(*args, **named)

    slow._writer.write = overtaken  # type: ignore[method-assign]
    if same:
        assert changed(slow.apply(rows_of([("+U", 1, 2)]), {"0": 2})) == [("-U", 1, 1), ("+U", 1, 2)]
        return
    with pytest.raises(Conflict, match="let only one process continue") as caught:
        slow.apply(rows_of([("+U", 1, 5)]), {"0": 2})
    assert caught.value.code == "other-batch"
    assert known(slow) == {1: 2}


@pytest.mark.slow
def test_the_state_stays_as_large_as_its_keys(folder: Path) -> None:
    normalizer = Normalizer(spec(folder / "s"))
    sizes = []
    for number in range(45):
        normalizer.apply(rows_of([("+U", key, number) for key in range(50)]), {"0": number})
        sizes.append(sum(1 for path in (folder / "s").rglob("*") if path.is_file()))
        assert not expiry_due(normalizer._state.state())
    assert max(sizes[30:]) <= max(sizes[:30])
    for number in (43, 44):
        assert len(changed(normalizer.apply(rows_of([]), {"0": number}))) == 100
    with pytest.raises(InvalidRequest, match="none of the batches that it still knows"):
        normalizer.apply(rows_of([]), {"0": 3})
    assert_healthy(normalizer.spec.opened(seeded()))


@pytest.mark.slow
def test_changes_that_were_let_go_say_so(folder: Path) -> None:
    normalizer = Normalizer(spec(folder))
    first = normalizer.apply(rows_of([("+U", 1, 0)]), {"0": 0})
    for number in range(1, 25):
        normalizer.apply(rows_of([("+U", 1, number)]), {"0": number})
    with pytest.raises(NotFound) as caught:
        changed(first)
    assert caught.value.code == "snapshot-expired"


@pytest.mark.slow
def test_what_dead_processes_left_goes_after_a_day(folder: Path) -> None:
    normalizer = Normalizer(spec(folder))
    normalizer.apply(rows_of([("+U", 1, 0)]), {"0": 0})
    yesterday = time.time() - 90_000
    old, young = (folder / "_change_data" / f"{uuid.uuid4()}.parquet" for _ in range(2))
    old.parent.mkdir(exist_ok=True)
    for path in (old, young):
        path.write_bytes(b"torn")
    os.utime(old, (yesterday, yesterday))
    for number in range(1, 20):
        normalizer.apply(rows_of([("+U", 1, number)]), {"0": number})
    assert not old.exists()
    assert young.exists()


@pytest.mark.slow
def test_a_compaction_beside_changes_nothing(folder: Path) -> None:
    options = {"compaction.in-writer": "true"}
    with Normalizer(spec(folder, **options)) as normalizer:
        rows: Known = {}
        for number in range(15):
            batch: list[Upsert] = [("+U", key, number) for key in range(number, number + 20)]
            now = after(rows, batch)
            assert changed(normalizer.apply(rows_of(batch), {"0": number})) == between(rows, now)
            rows = now
    operations = {snapshot.operation for snapshot in normalizer._state.snapshots()}
    assert Operation.COMPACT in operations
    assert known(normalizer) == rows
    assert_healthy(normalizer.spec.opened(seeded()))


def test_a_failed_compaction_fails_no_batch(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(store: object) -> None:
        raise Conflict("another was faster")

    monkeypatch.setattr("tablestore.normalizing.normalizer.compact_table", lost)
    normalizer = Normalizer(spec(folder))
    assert changed(normalizer.apply(rows_of([("+U", 1, 0)]), {"0": 0})) == [("+I", 1, 0)]
    assert "compacted later" in caplog.text


# ---------------------------------------------------------------------------------------------- what it is, and was


def test_a_spec_travels_and_has_parts(folder: Path) -> None:
    whole = spec(folder)
    part = pickle.loads(pickle.dumps(whole.part("3")))
    assert (part.state, part.definition) == (str(folder / "3"), whole.definition)
    for at in range(2):
        changed(Normalizer(part).apply(rows_of([("+I", 1, at)]), {"3": at}))
    assert Normalizer(part).positions == {"3": 1}
    assert Normalizer(whole.part("4")).positions == {}
    for name in ("", "..", "a/b"):
        with pytest.raises(InvalidRequest, match="not a name for a part"):
            whole.part(name)


def test_a_key_is_needed_and_some_options_are_not_ours_to_change(folder: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        NormalizerSpec.of(str(folder), "id BIGINT", [])
    assert caught.value.code == "no-primary-key"
    for options, code in (
        ({"changelog-producer": "input"}, "normalizer-option"),
        ({"log.system": "embedded"}, "normalizer-option"),
        ({"buckets": "1"}, "unknown-option"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            NormalizerSpec.of(str(folder), "id BIGINT", ["id"], options=options)
        assert caught.value.code == code
    assert not list(folder.iterdir())


def test_new_columns_and_options_come_by_themselves(folder: Path) -> None:
    Normalizer(spec(folder)).apply(rows_of([("+I", 1, 1)]), {"0": 1})
    wider = NormalizerSpec.of(
        str(folder), "a STRING, id BIGINT, v INT, z INT", ["id"], options=BUSY | {"target-file-size": "1 mb"}
    )
    normalizer = Normalizer(wider)
    assert normalizer.schema.names == ["a", "id", "v", "z", KIND_COLUMN]
    row: dict[str, Any] = {"a": None, "id": 1, "v": 1, "z": None}
    last = normalizer.last()
    assert last is not None
    assert [r for batch in last for r in batch.to_pylist()] == [row | {"_kind": "+I"}], "read in the columns of now"
    changes = normalizer.apply(pa.table({"id": [1], "v": [1], "z": [3]}), {"0": 2})
    assert [r for batch in changes for r in batch.to_pylist()] == [
        row | {"_kind": "-U"},
        row | {"z": 3, "_kind": "+U"},
    ]
    assert normalizer._state.state().definition.options["target-file-size"] == 1 << 20
    assert Normalizer(wider)._state.state().version == normalizer._state.state().version, "there is nothing to change"


@pytest.mark.parametrize(
    ("columns", "key", "why"),
    [
        ("id BIGINT", ["id"], "column 'v' differs"),
        ("id BIGINT, v BIGINT", ["id"], "column 'v' differs"),
        ("id BIGINT, v INT, w INT NOT NULL", ["id"], "column 'w' differs"),
        ("id BIGINT NOT NULL, v INT NOT NULL", ["id", "v"], "column 'v' differs"),
    ],
)
def test_another_state_is_refused(folder: Path, columns: str, key: list[str], why: str) -> None:
    before = Normalizer(spec(folder))._state.state()
    with pytest.raises(InvalidRequest, match=why) as caught:
        Normalizer.open(str(folder), columns, key)
    assert caught.value.code == "other-state"
    assert Normalizer(spec(folder))._state.state() == before


def test_an_option_that_rows_rest_on_stays(folder: Path) -> None:
    Normalizer(spec(folder))
    with pytest.raises(InvalidRequest) as caught:
        Normalizer(spec(folder, bucket="4"))
    assert caught.value.code == "fixed-option"


def test_columns_are_dropped_and_widened_when_asked(folder: Path) -> None:
    normalizer = Normalizer.open(str(folder), "id BIGINT, v INT, w INT", ["id"], options=BUSY)
    normalizer.apply(pa.table({"id": [1, 2], "v": [1, 2], "w": [1, 2]}), {"0": 1})
    normalizer.alter("DROP COLUMN w", "ALTER COLUMN v TYPE BIGINT")
    changes = normalizer.apply(pa.table({"id": [1, 2], "v": [2**40, 2]}), {"0": 2})
    assert changed(changes) == [("-U", 1, 1), ("+U", 1, 2**40)]
    assert Normalizer.open(str(folder), "id BIGINT, v BIGINT", ["id"], options=BUSY).positions == {"0": 2}


def test_a_state_that_others_write_is_known_by_its_positions(folder: Path) -> None:
    """A commit that is no batch is none: the last batch is looked for behind it."""
    normalizer = Normalizer(spec(folder))
    normalizer.apply(rows_of([("+I", 1, 1)]), {"0": 1})
    normalizer._writer.write(lambda job: [], app=AppVersion("other", 1))
    last = normalizer.last()
    assert last is not None
    assert changed(last) == [("+I", 1, 1)]
