"""Changelog producers: the change data of a commit, as delta-rs reads it (FORMAT.md section 13)."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.compact import compact_table
from filestore.changelog.images import recorded
from filestore.doctor import Invariant, examine
from filestore.errors import InvalidRequest
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.changes import Changes, assert_exact, by_deltalake
from tests.depth import Depth
from tests.faults import FailAt, FaultyStorage, Killed
from tests.filestore.surgery import edit_entry
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import (
    assert_healthy,
    create,
    define,
    prepare,
    read,
    read_deltalake,
    read_polars,
    reopen,
    seeded,
    to_arrow,
    write,
)

Row = dict[str, Any]


def feed(folder: Path, columns: str = "id BIGINT, v STRING", producer: str = "lookup", **options: object) -> FileStore:
    return create(folder / "t", define(columns, ["id"], changelog__producer=producer, **options), ambient=seeded(1))


def changes(store: FileStore, version: int) -> list[tuple[str, Row]]:
    """What a version's change files hold."""
    found = []
    for action in store.delta_log.read_entry(version).actions:
        if "cdc" in action:
            assert action["cdc"]["dataChange"] is False
            for row in pq.read_table(Path(store.location) / action["cdc"]["path"], partitioning=None).to_pylist():
                found.append((row.pop("_change_type"), row))
    return found


def change_files(store: FileStore) -> set[str]:
    return {path.name for path in Path(store.location).glob("_change_data/*")}


# ------------------------------------------------------------------------------------------------------------- lookup


def test_a_commit_has_the_images_of_what_it_changed(folder: Path) -> None:
    store = feed(folder)
    write(store, [{"id": n, "v": "a"} for n in range(4)])
    write(store, [{"id": 0, "v": "b"}, {"id": 1, "v": "a"}, {"id": 2, "_kind": "-D"}, {"id": 9, "_kind": "-D"}])
    write(store, [{"id": 2, "v": "c"}])
    assert changes(store, 1) == [], "rows of the first write are inserts, as readers infer"
    assert changes(store, 2) == [
        ("update_preimage", {"id": 0, "v": "a"}),
        ("delete", {"id": 2, "v": "a"}),
        ("update_postimage", {"id": 0, "v": "b"}),
    ]
    assert changes(store, 3) == [("insert", {"id": 2, "v": "c"})]
    assert_exact(store, by_deltalake(store))
    assert_healthy(store)


def test_writing_the_same_rows_again_changes_nothing(folder: Path) -> None:
    """Not even a file: the rows that are stored stay."""
    store = feed(folder)
    rows = [{"id": n, "v": f"{n % 3}"} for n in range(50)]
    write(store, rows)
    files = store.state().files
    committed = write(store, rows)
    assert committed.state.files == files
    assert by_deltalake(store)[2] == Changes()
    assert {action for entry in store.delta_log.read_entry(2).actions for action in entry} == {"commitInfo"}


def test_a_delete_that_has_all_values_of_the_row_deletes_it(folder: Path) -> None:
    """As the -D of a changelog has them. A put with these values would change nothing."""
    store = feed(folder)
    write(store, [{"id": n, "v": "a"} for n in range(3)])
    write(store, [{"id": 0, "v": "a"}, {"id": 1, "v": "a", "_kind": "-D"}, {"id": 2, "v": "b"}])
    assert changes(store, 2) == [
        ("delete", {"id": 1, "v": "a"}),
        ("update_preimage", {"id": 2, "v": "a"}),
        ("update_postimage", {"id": 2, "v": "b"}),
    ]
    assert read(store) == [{"id": 0, "v": "a"}, {"id": 2, "v": "b"}]
    assert_healthy(store)


def test_deletes_between_puts_do_not_move_the_kinds_of_their_changes(folder: Path) -> None:
    """Whether a key is stored is known for all rows of a chunk, and asked for puts only: deletes stand between them."""
    store = feed(folder)
    write(store, [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    write(store, [{"id": 0, "_kind": "-D"}, {"id": 1, "v": "b"}, {"id": 2, "_kind": "-D"}, {"id": 3, "v": "b"}])
    assert changes(store, 2) == [
        ("update_preimage", {"id": 1, "v": "a"}),
        ("delete", {"id": 2, "v": "a"}),
        ("update_postimage", {"id": 1, "v": "b"}),
        ("insert", {"id": 3, "v": "b"}),
    ]
    assert_exact(store, by_deltalake(store))
    assert_healthy(store)


def test_a_row_that_was_the_same_is_none_once_another_commit_changed_it(folder: Path) -> None:
    store = feed(folder)
    write(store, [{"id": n, "v": "a"} for n in range(6)])
    mine = prepare(reopen(store), [{"id": n, "v": "a"} for n in range(3)])
    write(store, [{"id": 1, "v": "b"}, {"id": 2, "_kind": "-D"}])
    assert mine.commit().snapshot.version == 3
    assert sorted(map(str, changes(store, 3))) == sorted(
        map(
            str,
            [
                ("update_preimage", {"id": 1, "v": "b"}),
                ("update_postimage", {"id": 1, "v": "a"}),
                ("insert", {"id": 2, "v": "a"}),
            ],
        )
    )
    assert_exact(reopen(store), by_deltalake(reopen(store)))
    assert_healthy(reopen(store))


def test_the_first_write_that_lost_its_race_writes_all_its_changes(folder: Path) -> None:
    """Begun on an empty table it left them to be inferred; now one slot has images, so the others have them too."""
    store = feed(folder, bucket=4)
    mine = prepare(reopen(store), [{"id": n, "v": "mine"} for n in range(20)])
    assert all(result.changes is None for result in mine.result.results)
    write(store, [{"id": 0, "v": "other"}])
    mine.commit()
    assert len(mine.rebases) == 1
    assert len(mine.rebases[0]) == 1
    assert len(changes(store, 2)) == 21
    assert_exact(reopen(store), by_deltalake(reopen(store)))
    assert_healthy(reopen(store))


def test_a_late_row_in_a_table_that_only_remembers_deletes_is_no_insert(folder: Path) -> None:
    """The table had no file, so all rows of the write were left to be taken for inserts, the late ones too."""
    store = feed(folder, "id BIGINT, s INT, v STRING", sequence_field="s")
    write(store, [{"id": 1, "s": 5, "_kind": "-D"}])
    write(store, [{"id": 1, "s": 4, "v": "late"}, {"id": 2, "s": 1, "v": "a"}])
    assert changes(store, 2) == [("insert", {"id": 2, "s": 1, "v": "a"})]
    assert_exact(store, by_deltalake(store))


def test_an_overwrite_changes_the_rows_that_differ(folder: Path) -> None:
    store = feed(folder)
    write(store, [{"id": n, "v": "a"} for n in range(4)])
    write(store, [{"id": 3, "v": "dead"}])
    write(
        store, [{"id": 0, "v": "a"}, {"id": 1, "v": "b"}, {"id": 3, "v": "dead"}, {"id": 9, "v": "a"}], overwrite=True
    )
    assert sorted(map(str, changes(store, 3))) == [
        "('delete', {'id': 2, 'v': 'a'})",
        "('insert', {'id': 9, 'v': 'a'})",
        "('update_postimage', {'id': 1, 'v': 'b'})",
        "('update_preimage', {'id': 1, 'v': 'a'})",
    ]
    write(store, read(store), overwrite=True)
    files = [action["cdc"]["path"] for action in store.delta_log.read_entry(4).actions if "cdc" in action]
    assert [pq.read_metadata(Path(store.location) / path).num_rows for path in files] == [0], "none, and it says so"
    write(store, [], overwrite=True)
    write(store, [{"id": 1, "v": "a"}], overwrite=True)
    assert [len(changes(store, version)) for version in (4, 5, 6)] == [0, 0, 0], "the last two are inferred"
    assert_exact(store, by_deltalake(store))
    for first in range(1, 7):
        assert by_deltalake(store, first, 6) == {v: found for v, found in by_deltalake(store).items() if v >= first}
    assert_healthy(store)


TYPES = (
    "id BIGINT, b BOOLEAN, d DOUBLE, m DECIMAL(20,2), t TIMESTAMP, n TIMESTAMP_NTZ, y DATE, x BINARY, "
    "l ARRAY<INT>, s STRUCT<a: INT, c: STRING>, k MAP<STRING, INT>"
)
VALUES: Mapping[str, tuple[Any, Any]] = {
    "b": (True, False),
    "d": (float("nan"), 1.5),
    "m": (Decimal("1.00"), Decimal("123456789012345678.90")),
    "t": (datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
    "n": (datetime.datetime(2024, 1, 1), datetime.datetime(9999, 12, 31)),
    "y": (datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)),
    "x": (b"\xff", b""),
    "l": ([1, None], []),
    "s": ({"a": 1, "c": None}, {"a": 1, "c": ""}),
    "k": ([("a", 1)], [("a", None)]),
}


@pytest.mark.few(12)
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("null", ["never", "before", "after"])
def test_values_of_all_types_are_compared(folder: Path, name: str, null: str) -> None:
    store = feed(folder, TYPES)
    one, other = VALUES[name]
    before, after = None if null == "before" else one, None if null == "after" else other
    whole = {column: pair[0] for column, pair in VALUES.items()}
    write(store, [{"id": n, **whole, name: before} for n in range(3)])
    write(store, [{"id": n, **whole, name: before} for n in range(3)])
    write(store, [{"id": 0, **whole, name: before}, {"id": 1, **whole, name: after}])
    assert changes(store, 2) == []
    assert [(kind, row["id"], str(row[name])) for kind, row in changes(store, 3)] == [
        ("update_preimage", 1, str(before)),
        ("update_postimage", 1, str(after)),
    ]
    assert_healthy(store)


def test_a_late_row_changes_nothing(folder: Path) -> None:
    store = feed(folder, "id BIGINT, s INT, v STRING", sequence_field="s")
    write(store, [{"id": 1, "s": 5, "v": "a"}, {"id": 2, "s": 5, "v": "a"}])
    write(store, [{"id": 1, "s": 4, "v": "b"}, {"id": 2, "s": 4, "_kind": "-D"}])
    write(store, [{"id": 1, "s": 6, "v": "a"}, {"id": 2, "s": 5, "v": "b"}])
    assert changes(store, 2) == []
    assert len(changes(store, 3)) == 4, "another sequence is another row"
    assert_exact(store, by_deltalake(store))


@pytest.mark.slow
def test_change_files_end_at_the_target_size_and_hold_no_slot_of_another(folder: Path) -> None:
    definition = define(
        "id BIGINT, p STRING, v STRING",
        ["id", "p"],
        ["p"],
        bucket=2,
        changelog__producer="lookup",
        target__file__size="1 b",
        row__group_rows=1024,
    )
    store = create(folder / "t", definition)
    rows = [{"id": n, "p": "xy"[n % 2], "v": "a"} for n in range(5000)]
    write(store, rows)
    write(store, [row | {"v": "b"} for row in rows])
    files = [action["cdc"] for action in store.delta_log.read_entry(2).actions if "cdc" in action]
    assert len(files) > 4
    for file in files:
        held = pq.read_table(Path(store.location) / file["path"], partitioning=None)
        assert held.column("p").unique().to_pylist() == [file["partitionValues"]["p"]]
    assert_exact(store, by_deltalake(store))
    assert_healthy(store)


# -------------------------------------------------------------------------------------------------------------- input


def test_input_is_written_as_it_arrived(folder: Path) -> None:
    store = feed(folder, "id BIGINT, v STRING", "input", row__group_rows=1024)
    write(
        store,
        [
            {"id": 1, "v": "b", "_kind": "+I"},
            {"id": 0, "v": "a", "_kind": "+I"},
            {"id": 1, "v": "b", "_kind": "-U"},
            {"id": 1, "v": "c", "_kind": "+U"},
            {"id": 0, "v": "z", "_kind": "-D"},
        ],
    )
    write(store, [{"id": 5, "v": "z"}])
    assert changes(store, 1) == [
        ("insert", {"id": 0, "v": "a"}),
        ("delete", {"id": 0, "v": "z"}),
        ("insert", {"id": 1, "v": "b"}),
        ("update_preimage", {"id": 1, "v": "b"}),
        ("update_postimage", {"id": 1, "v": "c"}),
    ]
    assert changes(store, 2) == [("insert", {"id": 5, "v": "z"})]
    assert read(store) == [{"id": 1, "v": "c"}, {"id": 5, "v": "z"}]
    assert_healthy(store)


def test_input_keeps_every_row_of_one_key(folder: Path) -> None:
    """Without the producer, of a key with more rows than a chunk only the winner is kept in memory."""
    store = feed(folder, "id BIGINT, v STRING", "input", row__group_rows=1024)
    table = to_arrow(store.state().definition, [{"id": 1, "v": f"{n}"} for n in range(5000)])
    order = pa.array(range(5000), pa.int64())
    shuffled = table.append_column(ORDINAL_COLUMN, order).take(pa.array([*range(1, 5000, 2), *range(0, 5000, 2)]))
    write(store, shuffled)
    assert [row["v"] for _, row in changes(store, 1)] == [f"{n}" for n in range(5000)]
    assert read(store) == [{"id": 1, "v": "4999"}]


def _changed(store: FileStore, version: int, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes a version's only change file anew."""

    def edit(actions: list[dict[str, Any]]) -> None:
        cdc = next(action["cdc"] for action in actions if "cdc" in action)
        path = Path(store.location) / cdc["path"]
        pq.write_table(change(pq.read_table(path, partitioning=None)), path)
        cdc["size"] = path.stat().st_size

    edit_entry(store, version, edit)


def _without_values(rows: pa.Table) -> pa.Table:
    """The deletes of before decision 119, with nothing but their key."""
    return rows.set_column(1, "v", pa.nulls(rows.num_rows, pa.string()))


@pytest.mark.parametrize("need", ["", " NOT NULL"])
def test_the_doctor_finds_removed_rows_that_never_were(folder: Path, need: str) -> None:
    store = feed(folder / "old", f"id BIGINT, v STRING{need}", producer="input")
    write(store, [{"id": n, "v": "a"} for n in range(4)])
    write(store, [{"id": n, "v": None, "_kind": "-D"} for n in (1, 3)])
    assert changes(store, 2) == [("delete", {"id": 1, "v": "a"}), ("delete", {"id": 3, "v": "a"})]
    assert_healthy(store)
    _changed(store, 2, _without_values)
    (found,) = examine(reopen(store)).problems
    assert found.code is Invariant.CHANGE_ROW
    assert "version 2" in found.message
    assert "says of 2 removed or replaced rows" in found.message
    assert "expire" in found.message


def test_a_removed_row_with_a_null_may_be_true(folder: Path) -> None:
    store = feed(folder, producer="input")
    write(store, [{"id": 1, "v": None}, {"id": 2, "v": "a"}])
    write(store, [{"id": 1, "v": None, "_kind": "-D"}, {"id": 7, "v": None, "_kind": "-D"}])
    assert changes(store, 2) == [("delete", {"id": 1, "v": None})]
    assert_healthy(store)


def _changes(rows: list[tuple[int, str, str | None]]) -> pa.Table:
    types = {"-U": "update_preimage", "+U": "update_postimage", "-D": "delete"}
    columns = {"id": [row[0] for row in rows], "v": [row[2] for row in rows]}
    schema = pa.schema({"id": pa.int64(), "v": pa.string(), "_change_type": pa.string()})
    return pa.table({**columns, "_change_type": [types[row[1]] for row in rows]}, schema)


def test_a_row_that_the_same_commit_put_and_removed_is_true(folder: Path) -> None:
    """The doctor compared it with the version before, and accused feeds of before decision 119."""
    store = feed(folder, producer="input")
    write(store, [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    arrived = [("-U", "a"), ("+U", None), ("-D", None)]
    write(store, [{"id": key, "v": value, "_kind": kind} for key in (1, 2) for kind, value in arrived])
    untrue = [(2, "-U", "a"), (2, "+U", "b"), (2, "-D", None)]
    _changed(store, 2, lambda _: _changes([(1, *change) for change in arrived] + untrue))
    (found,) = examine(reopen(store)).problems
    assert found.code is Invariant.CHANGE_ROW
    assert "says of 1 removed or replaced rows" in found.message
    _changed(store, 2, lambda _: _changes([(key, *change) for key in (1, 2) for change in arrived]))
    assert_healthy(reopen(store))


def test_input_stays_as_it_arrived_after_a_lost_race(folder: Path) -> None:
    store = feed(folder, producer="input")
    write(store, [{"id": 1, "v": "a"}])
    mine = prepare(reopen(store), [{"id": 1, "v": "b", "_kind": "+U"}])
    write(store, [{"id": 1, "v": "other"}])
    mine.commit()
    assert changes(store, 3) == [("update_postimage", {"id": 1, "v": "b"})]
    assert_healthy(reopen(store))


# ------------------------------------------------------------------------------------------------- who writes nothing


@pytest.mark.parametrize("producer", ["input", "lookup"])
def test_rows_without_a_key_are_inserts(folder: Path, producer: str) -> None:
    store = create(folder / "t", define("a INT", changelog__producer=producer))
    for _ in range(2):
        write(store, [{"a": 1}, {"a": None}])
    assert change_files(store) == set()
    found = by_deltalake(store)
    assert [sorted(kind for kind, _ in found[version].elements()) for version in (1, 2)] == [["insert"] * 2] * 2
    assert_healthy(store)


def test_what_has_to_be_written_down() -> None:
    def of(producer: str, key: list[str]) -> TableDefinition:
        return define("id BIGINT, v STRING", key, changelog__producer=producer)

    for producer in ("none", "input", "lookup"):
        for key in (["id"], []):
            definition = of(producer, key)
            assert recorded(definition, empty=False, overwrite=True) is ChangelogProducer.NONE
            wanted = ChangelogProducer(producer) if key else ChangelogProducer.NONE
            assert recorded(definition, empty=False, overwrite=False) is wanted
    assert recorded(of("lookup", ["id"]), empty=True, overwrite=False) is ChangelogProducer.NONE
    assert recorded(of("input", ["id"]), empty=True, overwrite=False) is ChangelogProducer.INPUT


def test_a_table_without_a_producer_has_no_feed(folder: Path) -> None:
    store = feed(folder, producer="none")
    write(store, [{"id": 1, "v": "a"}])
    write(store, [{"id": 1, "v": "b"}])
    metadata = next(a["metaData"] for a in store.delta_log.read_entry(0).actions if "metaData" in a)
    assert "delta.enableChangeDataFeed" not in metadata["configuration"]
    assert change_files(store) == set()


@pytest.mark.parametrize(
    "options",
    [
        {"changelog__producer": "full-compaction"},
        {"changelog__producer": "lookup", "full__compaction_delta__commits": 3},
        {"changelog__producer_compaction__interval": "1 h"},
    ],
)
def test_what_merge_on_write_cannot_do_is_refused(options: Mapping[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        define("id BIGINT, v STRING", ["id"], **options)
    assert caught.value.code == "changelog-producer"


# ------------------------------------------------------------------------------------------------------------- faults


@pytest.mark.slow
def test_a_failure_at_any_call_leaves_no_half_change(folder: Path, depth: Depth) -> None:
    """Storage fails before or after each call of a write that looks again: then all of it is there, or nothing."""
    for after in (False, True):
        for number in depth.counting(7):
            if not _fails_whole(folder / f"{after}-{number}", FailAt(number, Killed("injected"), after)):
                break


def _fails_whole(folder: Path, fault: FailAt) -> bool:
    store = feed(folder, bucket=2)
    write(store, [{"id": n, "v": "a"} for n in range(8)])
    storage = FaultyStorage(LocalStorage())
    mine = reopen(store, storage)
    storage.hook = fault
    try:
        prepared = prepare(mine, [{"id": n, "v": "b"} for n in range(2, 10)])
        storage.hook = lambda call: None
        write(store, [{"id": 3, "v": "other"}, {"id": 4, "_kind": "-D"}])
        storage.hook = fault
        prepared.commit()
    except Killed:
        pass
    found = reopen(store)
    assert_healthy(found)
    assert_exact(found, by_deltalake(found))
    return fault.fired


# ---------------------------------------------------------------------------------------------------------- histories

ENGINES: Mapping[str, Mapping[str, object]] = {
    "deduplicate": {},
    "sequence": {"sequence_field": "s", "sequence_tombstone__retention": "0 s"},  # the dict forgets
    "partial-update": {
        "merge__engine": "partial-update",
        "partial__update_remove__record__on__delete": "true",
        "fields_s_sequence__group": "v",
    },
    "aggregation": {
        "merge__engine": "aggregation",
        "aggregation_remove__record__on__delete": "true",
        "fields_v_aggregate__function": "max",
        "fields_s_aggregate__function": "sum",
    },
    "first-row": {"merge__engine": "first-row", "ignore__delete": "true"},
}

_ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 12), "s": st.none() | st.integers(0, 4), "v": st.none() | st.sampled_from("abc")},
        optional={"_kind": st.sampled_from(["+I", "+U", "-D"])},
    ),
    max_size=8,
)
_STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "race", "compact", "compact under", "overwrite"]), _ROWS, _ROWS),
    min_size=2,
    max_size=7,
)


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", ENGINES)
def test_before_and_changes_make_after(engine: str) -> None:
    @settings(max_examples=settings.default.max_examples // 2)
    @given(steps=_STEPS)
    def holds(steps: list[tuple[str, list[Row], list[Row]]]) -> None:
        with tiny_row_groups(), memory_folder() as folder:
            options = {"bucket": 2, "row__group_rows": 3, "target__file__size": "1 b", **ENGINES[engine]}
            store = feed(folder, "id BIGINT, s INT, v STRING", **options)
            for kind, rows, others in steps:
                live(store, kind, rows, others)
            assert_exact(store, by_deltalake(store))
            assert_healthy(store)
            assert read(store) == read_polars(store.location) == read_deltalake(store.location)

    holds()


def live(store: FileStore, kind: str, rows: list[Row], others: list[Row]) -> None:
    """One step of a table's life."""
    if kind.startswith("compact"):
        mine = prepare(reopen(store), rows) if "under" in kind else None
        compact_table(store, full=True)
        if mine is not None:
            mine.commit()
            store.state()
    elif kind == "race" and not store.state().definition.merges_values:
        mine = prepare(reopen(store), rows)
        write(store, others)
        mine.commit()
        store.state()
    else:
        write(store, rows, overwrite=kind == "overwrite")


@pytest.fixture(autouse=True)
def no_leftovers(folder: Path) -> Iterator[None]:
    """Every test leaves tables that the doctor finds whole, whatever it looked at."""
    yield
    if (folder / "t").exists():
        assert_healthy(FileStore.open(LocalStorage(), str(folder / "t"), seeded()))
