"""A maintained join, step by step: what each change writes, who may write, and what happens to the tables beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Barrier, Event, get_ident
from typing import Any

import pytest

import tablestore
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from log.table.store import LogStore
from tablestore import Table
from tablestore.views.holds import Holds
from tablestore.views.joins import join_work
from tablestore.views.joins.bucket_work import BucketWork
from tablestore.views.opening import drop_view
from tablestore.views.tasks import in_own_threads
from tablestore.views.view import InputLag, View
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.tables import assert_healthy, to_arrow
from tests.tablestore.views.own_tasks import forged, running
from tests.warehouses import Row, rows, warehouse

KEPT = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "0 s"}


@dataclass
class Sides:
    """Two tables, and the join of both in each kind."""

    store: tablestore.Store
    left: Table
    right: Table

    def view(self, kind: str = "left", into: str = "", **how: object) -> View:
        asked: dict[str, object] = {"select": ["l.k", "l.x", "r.y"], "on": "x"} | how
        return self.store.maintain_join(into or f"shop.{kind}", left="shop.l", right="shop.r", kind=kind, **asked)  # type: ignore[arg-type]

    def put(self, table: Table, *values: tuple[object, ...]) -> None:
        names = table.schema.names
        table.write(to_arrow(table.definition, [dict(zip(names, value, strict=True)) for value in values]))

    def delete(self, table: Table, key: object) -> None:
        table.write([{table.schema.names[0]: key, "_kind": "-D"}])


@pytest.fixture
def sides() -> Iterator[Sides]:
    with warehouse() as store:
        left = store.create_table("shop.l", "k BIGINT, x BIGINT", primary_key=["k"], options={"bucket": "2"} | KEPT)
        right = store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"], options=KEPT)
        right.write([{"id": 1, "y": "foo"}])
        yield Sides(store, left, right)


def written(view: View, step: Callable[[], object]) -> list[tuple[object, ...]]:
    """The changes of the view's rows by a refresh after a step; it is checked that nothing else was written."""
    before = view.table.filestore.state().version
    step()
    view.refresh()
    feed = view.table.follow(mode="changelog", version=before, stop=lambda: True)
    found = [(row.pop("_kind"), *row.values()) for batch in feed for row in batch.to_pylist()]
    metrics = view.table.snapshots(1)[0].metrics
    assert metrics["rows_written"] == sum(kind in ("+I", "+U") for kind, *_ in found)
    assert metrics["rows_deleted"] == sum(kind == "-D" for kind, *_ in found)
    return found


def named(view: View) -> dict[int, str | None]:
    return {row["k"]: row["y"] for row in rows(view.table)}


@pytest.mark.few(2)
@pytest.mark.parametrize("small_bytes", [1 << 20, 1])
@pytest.mark.parametrize("kind", ["left", "inner"])
def test_a_foreign_key_that_only_a_widened_column_can_have_matches_nothing(
    monkeypatch: pytest.MonkeyPatch, small_bytes: int, kind: str
) -> None:
    monkeypatch.setattr("tablestore.reading.keyed_rows.SMALL_BYTES", small_bytes)
    with warehouse() as store:
        left = store.create_table("shop.l", "k BIGINT, x INT", primary_key=["k"], options={"bucket": "2"})
        right = store.create_table("shop.r", "id INT, y STRING", primary_key=["id"])
        sides = Sides(store, left, right)
        view = sides.view(kind, select=["l.k", "r.y"])
        sides.put(left, (1, 1))
        sides.put(right, (1, "foo"))
        view.refresh()
        left.alter("ALTER COLUMN x TYPE BIGINT")
        sides.put(left, (2, 1 << 40), (3, 1), (4, None))
        without: dict[int, str | None] = {2: None, 4: None} if kind == "left" else {}
        view = store.maintained_view(f"shop.{kind}")
        view.refresh()
        assert named(view) == {1: "foo", 3: "foo"} | without
        sides.put(right, (1, "bar"))
        view.refresh()
        assert named(view) == {1: "bar", 3: "bar"} | without
        assert view.examine().healthy


@pytest.mark.slow
def test_the_table_of_kip_213(sides: Sides) -> None:
    inner, left = sides.view("inner"), sides.view("left")
    inner.refresh(), left.refresh()
    steps: list[tuple[Callable[[], object], list[object], list[object]]] = [
        (lambda: sides.put(sides.left, (7, 1)), [("+I", 7, 1, "foo")], [("+I", 7, 1, "foo")]),
        (
            lambda: sides.put(sides.left, (7, 2)),
            [("-D", 7, 1, "foo")],
            [("-U", 7, 1, "foo"), ("+U", 7, 2, None)],
        ),
        (lambda: sides.put(sides.left, (7, 3)), [], [("-U", 7, 2, None), ("+U", 7, 3, None)]),
        (
            lambda: sides.put(sides.right, (3, "bar")),
            [("+I", 7, 3, "bar")],
            [("-U", 7, 3, None), ("+U", 7, 3, "bar")],
        ),
        (lambda: sides.delete(sides.left, 7), [("-D", 7, 3, "bar")], [("-D", 7, 3, "bar")]),
        (lambda: sides.put(sides.left, (7, 1)), [("+I", 7, 1, "foo")], [("+I", 7, 1, "foo")]),
        (lambda: sides.put(sides.left, (8, 10)), [], [("+I", 8, 10, None)]),
        (
            lambda: sides.put(sides.right, (10, "baz")),
            [("+I", 8, 10, "baz")],
            [("-U", 8, 10, None), ("+U", 8, 10, "baz")],
        ),
        (
            lambda: sides.delete(sides.right, 10),
            [("-D", 8, 10, "baz")],
            [("-U", 8, 10, "baz"), ("+U", 8, 10, None)],
        ),
    ]
    for step, of_inner, of_left in steps:
        assert written(inner, step) == of_inner
        assert written(left, lambda: None) == of_left
    for view in (inner, left):
        assert_healthy(view.table.filestore)


def test_a_view_is_rebuilt(sides: Sides) -> None:
    view = sides.view()
    sides.put(sides.left, (7, 1), (8, 2))
    view.refresh()
    forged(view, {"k": 9, "x": 1, "y": "foo"})
    assert view.refresh() is None
    done = view.rebuild()
    assert (done.version, *done.inputs.values(), done.whole) == (3, 1, 1, True)
    assert named(view) == {7: "foo", 8: None}
    assert view.refresh() is None
    assert findings(sides) == []


def test_a_key_that_changes_quickly_has_its_last_row(sides: Sides) -> None:
    view = sides.view()
    view.refresh()

    def step() -> None:
        for number in (2, 3, 1, 9, 1):
            sides.put(sides.left, (7, number))
            sides.put(sides.right, (number, f"y{number}"))

    assert written(view, step) == [("+I", 7, 1, "y1")]


def test_a_right_row_that_comes_and_goes_is_no_change(sides: Sides) -> None:
    view = sides.view()
    sides.put(sides.left, (7, 5))
    view.refresh()
    assert written(view, lambda: (sides.put(sides.right, (5, "here")), sides.delete(sides.right, 5))) == []


def test_columns_that_the_result_lacks_are_no_change(sides: Sides) -> None:
    sides.right.alter("ADD COLUMN other INT")
    sides.put(sides.left, (7, 1))
    view = sides.view()
    view.refresh()
    assert written(view, lambda: sides.put(sides.right, (1, "foo", 5))) == []


def test_a_null_names_no_row(sides: Sides) -> None:
    view, inner = sides.view("left"), sides.view("inner")
    sides.put(sides.left, (7, None), (8, 1))
    view.refresh(), inner.refresh()
    assert rows(view.table) == [{"k": 7, "x": None, "y": None}, {"k": 8, "x": 1, "y": "foo"}]
    assert rows(inner.table) == [{"k": 8, "x": 1, "y": "foo"}]


def test_empty_tables_and_one_row(sides: Sides) -> None:
    sides.delete(sides.right, 1)
    view = sides.view()
    assert view.lag() == {"shop.l": InputLag(None, 1), "shop.r": InputLag(None, 3)}
    first = view.refresh()
    assert first is not None
    assert (first.version, *first.inputs.values(), first.whole) == (1, 0, 2, True)
    assert rows(view.table) == []
    assert view.refresh() is None
    sides.put(sides.left, (1, 1))
    assert view.lag()["shop.l"].behind == 1
    assert view.refresh() is not None
    assert rows(view.table) == [{"k": 1, "x": 1, "y": None}]


def test_a_compaction_of_an_input_changes_nothing(sides: Sides) -> None:
    view = sides.view()
    for number in range(4):
        sides.put(sides.left, (number, number % 2))
    view.refresh()
    assert written(view, lambda: (sides.left.compact(full=True), sides.right.compact(full=True))) == []
    assert written(view, lambda: view.table.compact(full=True)) == []


def test_a_table_is_joined_with_itself(sides: Sides) -> None:
    sides.put(sides.left, (1, 2), (2, 3))
    view = sides.store.maintain_join("shop.pairs", left="shop.l", right="shop.l", on="x", select="l.k, r.x AS next")
    view.refresh()
    assert rows(view.table) == [{"k": 1, "next": 3}]
    assert sorted(written(view, lambda: sides.put(sides.left, (3, 1), (2, 2)))) == [
        ("+I", 2, 2), ("+I", 3, 2), ("+U", 1, 2), ("-U", 1, 3)
    ]  # fmt: skip


def test_more_changed_keys_than_are_searched(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    view = sides.view()
    sides.put(sides.left, *((k, k % 10) for k in range(50)))
    view.refresh()
    monkeypatch.setattr(join_work, "_MOST_KEYS", 2)
    found = written(view, lambda: sides.put(sides.right, *((k, f"y{k}") for k in range(8))))
    assert len(found) == 2 * 8 * 5
    assert named(view) == {k: f"y{k % 10}" if k % 10 < 8 else None for k in range(50)}


@pytest.mark.parametrize("most", [1, 1 << 30])
def test_the_right_table_is_read_or_looked_up(sides: Sides, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("tablestore.reading.keyed_rows.SMALL_BYTES", most)
    view = sides.view()
    sides.put(sides.left, *((k, k % 10) for k in range(50)))
    sides.put(sides.right, *((k, f"y{k}") for k in range(0, 8, 2)))
    view.refresh()
    sides.put(sides.right, (2, None), (3, "y3"))
    view.refresh()
    wanted = {0: "y0", 1: "foo", 3: "y3", 4: "y4", 6: "y6"}
    assert named(view) == {k: wanted.get(k % 10) for k in range(50)}


# ------------------------------------------------------------------------------------------------ who may write


@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.write([{"k": 1, "x": 1, "y": "a"}]),
        lambda table: table.write([{"k": 1}], overwrite=True),
        lambda table: table.write([{"k": 1}], app=("job", 1)),
        lambda table: table.write([{"k": 1}], if_version=1),
        lambda table: table.rollback(0),
    ],
)
def test_only_refreshes_write_a_view(sides: Sides, write: Callable[[Table], object]) -> None:
    view = sides.view()
    sides.put(sides.left, (1, 1))
    view.refresh()
    version, before = view.table.filestore.state().version, rows(view.table)
    with pytest.raises(InvalidRequest, match="maintained view") as caught:
        write(view.table)
    assert caught.value.code == "maintained-view"
    assert (view.table.filestore.state().version, rows(view.table)) == (version, before)


def test_a_view_is_compacted_tagged_and_configured(sides: Sides) -> None:
    view = sides.view()
    for number in range(3):
        sides.put(sides.left, (number, 1))
        view.refresh()
    assert view.table.compact(full=True) is not None
    view.table.create_tag("now")
    view.table.alter("SET checkpoint.interval = 5")
    assert view.refresh() is None
    sides.put(sides.left, (9, 1))
    assert view.refresh() is not None
    with pytest.raises(InvalidRequest, match="cannot be changed"):
        view.table.alter("SET view.query = 'SELECT 1'")


def beside(view: View, step: Callable[[], object]) -> View:
    """The view, of whose next refresh the tasks have run when something else is done."""

    def run(job: WriteJob, work: Sequence[BucketWork]) -> Sequence[TaskOutcome]:
        done = in_own_threads(job, work)
        step()
        return done

    return view.executed_by(running(run))


def test_each_thread_of_a_refresh_has_a_log_of_its_own(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """They shared one, and with it a connection to Kafka, which one thread closed while another one read from it."""
    both, with_log, lent = Barrier(2, timeout=60), WriteJob._with_log, list[tuple[int, LogStore]]()

    def noted(job: WriteJob, log: LogStore, *rest: Any) -> TaskOutcome:
        both.wait()  # the two buckets are written at the same time
        lent.append((get_ident(), log))
        return with_log(job, log, *rest)

    view = sides.view(options={"log.system": "embedded"})
    view.refresh()  # the first one replaces everything, and logs none of it
    sides.put(sides.left, *((number, 1) for number in range(20)))
    monkeypatch.setattr(WriteJob, "_with_log", noted)
    monkeypatch.setattr("filestore.threads.os.cpu_count", lambda: 2)
    view.refresh()
    (one, first), (other, second) = lent
    assert one != other
    assert first is not second
    monkeypatch.undo()
    assert len(rows(view.table)) == 20
    assert view.examine().healthy


def test_tables_of_several_files_may_have_maps(sides: Sides) -> None:
    """Polars panicked in a left join of frames in several chunks with maps, also with maps in a STRUCT."""
    maps = sides.store.create_table("shop.maps", "k BIGINT, x BIGINT, m MAP<STRING, INT>", primary_key=["k"])
    inner = sides.store.create_table("shop.inner", "id BIGINT, s STRUCT<m: MAP<STRING, INT>>", primary_key=["id"])
    view = sides.store.maintain_join("shop.v", left="shop.maps", right="shop.inner", on="x")
    for value in range(2):
        for key in range(3):
            maps.write([{"k": key, "x": key, "m": [("a", value)]}, {"k": 9, "x": 8, "m": None}])
            inner.write([{"id": key, "s": {"m": [("b", value)]}}, {"id": 8, "s": None}])
        view.refresh()
        found = [{"k": key, "x": key, "m": [("a", value)], "s": {"m": [("b", value)]}} for key in range(3)]
        assert rows(view.table) == [*found, {"k": 9, "x": 8, "m": None, "s": None}]
        assert view.examine().healthy


def test_a_refresh_says_that_versions_expire_before_it_holds_them(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that another process had refreshed the view, which none had."""
    view = sides.view()
    keys, hold = itertools.count(), Holds.hold

    def late(holds: Holds, store: FileStore, version: int) -> None:
        for _ in range(2):
            sides.put(sides.left, (next(keys), 1))
            sides.left.expire()
        hold(holds, store, version)

    with monkeypatch.context() as patched, pytest.raises(Conflict, match="expired 10 times") as caught:
        patched.setattr(Holds, "hold", late)
        view.refresh()
    assert caught.value.code == "inputs-expired"
    assert view.refresh() is not None
    assert_healthy(view.table.filestore)


def test_two_refreshes_at_once_commit_one(sides: Sides) -> None:
    """The second has read the same versions of the view, and a newer one of an input."""
    view, other = sides.view(), sides.view()
    view.refresh()
    sides.put(sides.left, (1, 1))
    with pytest.raises(Conflict) as caught:
        beside(view, lambda: (sides.put(sides.left, (2, 1)), other.refresh())).refresh()
    assert caught.value.code == "other-refresh"
    assert [row["k"] for row in rows(view.table)] == [1, 2]
    assert view.refresh() is None
    assert_healthy(view.table.filestore)


def test_a_compaction_during_a_refresh_is_no_conflict(sides: Sides) -> None:
    view = sides.view()
    for number in range(3):
        sides.put(sides.left, (number, 1))
        view.refresh()
    sides.put(sides.left, (1, 2))
    assert beside(view, lambda: sides.view().table.compact(full=True)).refresh() is not None
    assert named(view) == {0: "foo", 1: None, 2: "foo"}
    assert_healthy(view.table.filestore)


# ------------------------------------------------------------------------------------------------ tables and names


def test_it_is_opened_again_by_its_parts_or_its_name(sides: Sides) -> None:
    view = sides.view()
    view.refresh()
    assert sides.view().table.definition == view.table.definition
    opened = sides.store.maintained_view("shop.left")
    assert opened.query == view.query
    assert opened.refresh() is None
    with pytest.raises(InvalidRequest) as caught:
        sides.store.maintained_view("shop.l")
    assert caught.value.code == "no-view"


def test_another_view_or_table_of_the_name_is_refused(sides: Sides) -> None:
    sides.view()
    for how in ({"into": "shop.left", "kind": "inner"}, {"into": "shop.left", "select": "l.k"}, {"into": "shop.l"}):
        with pytest.raises(AlreadyExists):
            sides.view(**how)  # type: ignore[arg-type]


def test_nothing_is_created_for_a_bad_join(sides: Sides) -> None:
    with pytest.raises(InvalidRequest):
        sides.view(select="l.x")
    with pytest.raises(InvalidRequest, match="option 'bucket' of a view"):
        sides.view(options={"bucket": "7"})
    with pytest.raises(NotFound):
        sides.store.maintain_join("shop.v", left="shop.l", right="shop.nothing", on="x")
    assert sides.store.list_tables("shop") == ["l", "r"]


def test_after_a_table_was_created_again_all_rows_are_computed(sides: Sides) -> None:
    view = sides.view()
    sides.put(sides.left, (1, 1))
    view.refresh()
    sides.store.drop_table("shop.r")
    sides.store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"]).write([{"id": 1, "y": "new"}])
    done = sides.view().refresh()
    assert done is not None
    assert done.whole
    assert rows(view.table) == [{"k": 1, "x": 1, "y": "new"}]


def test_versions_that_the_view_needs_do_not_expire(sides: Sides) -> None:
    view = sides.view()
    view.refresh()
    for number in range(5):
        sides.put(sides.left, (number, 1))
        sides.left.expire()
    done = view.refresh()
    assert done is not None
    assert not done.whole
    assert [row["k"] for row in rows(view.table)] == [0, 1, 2, 3, 4]
    assert [consumer.version for consumer in sides.left.consumers()] == [view.lag()["shop.l"].version] == [5]


def test_if_they_expired_all_rows_are_computed(sides: Sides) -> None:
    view = sides.view()
    sides.put(sides.left, (9, 9))
    view.refresh()
    sides.left.delete_consumer(f"view.{view.table.filestore.state().table_id}")
    for number in range(5):
        sides.put(sides.left, (number, 1))
    sides.delete(sides.left, 9)
    assert sides.left.expire().versions
    done = view.refresh()
    assert done is not None
    assert done.whole
    assert [row["k"] for row in rows(view.table)] == [0, 1, 2, 3, 4]
    assert_healthy(view.table.filestore)


def test_a_column_that_is_gone_or_wider_is_an_error(sides: Sides) -> None:
    view = sides.view()
    view.refresh()
    sides.right.alter("RENAME COLUMN y TO z")
    with pytest.raises(InvalidRequest, match=r"r\.`y` in it is no column of its tables") as caught:
        view.refresh()
    assert caught.value.code == "view-outdated"
    sides.right.alter("RENAME COLUMN z TO y")
    assert view.refresh() is not None


@pytest.mark.parametrize("mode", ["rewrite", "metadata"])
@pytest.mark.parametrize("side", ["l", "r"])
def test_a_column_that_is_replaced_by_another_of_its_name(sides: Sides, side: str, mode: str) -> None:
    """The new column is null where the old one had values: a difference by the columns' ids does not show that."""
    table = sides.store.table(f"shop.{side}")
    table.alter(f"SET schema.evolution-mode = '{mode}'", "ADD COLUMN note STRING")
    sides.put(sides.left, *([(1, 1, "old")] if side == "l" else [(1, 1)]))
    sides.put(sides.right, *([(1, "foo", "old")] if side == "r" else [(1, "foo")]))
    view = sides.view(select=["l.k", f"{side}.note"])
    view.refresh()
    assert rows(view.table) == [{"k": 1, "note": "old"}]
    table.alter("DROP COLUMN note", "ADD COLUMN note STRING")
    done = view.refresh()
    assert done is not None
    assert done.whole
    assert rows(view.table) == [{"k": 1, "note": None}]
    assert findings(sides) == []


def test_a_column_that_may_be_null_from_now_on(sides: Sides) -> None:
    table = sides.store.create_table("shop.n", "k BIGINT, x BIGINT NOT NULL", primary_key=["k"])
    view = sides.store.maintain_join("shop.v", left="shop.n", right="shop.r", on="x", kind="left")
    table.write([{"k": 1, "x": 1}])
    view.refresh()
    table.alter("ALTER COLUMN x DROP NOT NULL")
    table.write([{"k": 1, "x": None}])
    view.refresh()
    assert rows(view.table) == [{"k": 1, "x": None, "y": None}]


@pytest.mark.parametrize(
    "change",
    ["DROP COLUMN y", "ADD COLUMN z INT", "RENAME COLUMN y TO z", "ALTER COLUMN y FIRST", "SET ignore-delete = true"],
)
def test_columns_and_rows_of_a_view_follow_from_its_query_alone(sides: Sides, change: str) -> None:
    view = sides.view()
    view.refresh()
    version = view.table.filestore.state().version
    with pytest.raises(InvalidRequest) as caught:
        view.table.alter(change)
    assert caught.value.code == "maintained-view"
    assert view.table.filestore.state().version == version


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "first-row"},
        {"merge-engine": "partial-update"},
        {"sequence.field": "x"},
        {"ignore-delete": "true"},
        {"changelog-producer": "input"},
        {"write-mode": "merge-on-read"},
    ],
)
def test_a_view_has_no_option_that_merges_its_rows(sides: Sides, options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sides.view(options=options)
    assert caught.value.code == "maintained-view"
    assert sides.store.list_tables("shop") == ["l", "r"]
    defaults = {f"table-storage.{name}": value for name, value in options.items()}
    with tablestore.connect(sides.store.target, options=defaults) as store:
        with pytest.raises(InvalidRequest):
            store.maintain_join("shop.v", left="shop.l", right="shop.r", on="x")
        assert store.list_tables("shop") == ["l", "r"]


def test_a_self_join_reads_one_version_although_somebody_writes(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.put(sides.left, (1, 2), (2, 1))
    view = sides.store.maintain_join("shop.pairs", left="shop.l", right="shop.l", on="x", select="l.k, r.x AS next")
    view.refresh()
    read = type(sides.left.filestore).state
    more = iter(range(3, 7))  # rows that others write, so that no two reads give the same version
    others = again(sides.left)

    def writing(store: FileStore, version: int | None = None) -> TableState:
        found = read(store, version)
        ours = store is not others.filestore and store.location == sides.left.location
        if ours and version is None and (number := next(more, None)) is not None:
            others.write([{"k": number, "x": 1}])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(type(sides.left.filestore), "state", writing)
        sides.put(sides.right, (9, "other"))
        view.refresh()
    view.refresh()
    assert sorted(row["k"] for row in rows(view.table)) == list(range(1, next(more, 7)))
    assert findings(sides, "shop.pairs") == []


def test_a_column_that_has_to_equal_two_of_the_key(sides: Sides) -> None:
    right = sides.store.create_table("shop.two", "i BIGINT, j BIGINT, y STRING", primary_key=["i", "j"])
    sides.put(sides.left, (1, 1), (2, 2))
    view = sides.store.maintain_join(
        "shop.v", left="shop.l", right="shop.two", on=["x", "x"], kind="left", select="l.k, y"
    )
    view.refresh()
    right.write([{"i": 1, "j": 1, "y": "both"}, {"i": 2, "j": 1, "y": "one"}])
    view.refresh()
    assert named(view) == {1: "both", 2: None}


def test_a_first_refresh_holds_what_it_reads(sides: Sides) -> None:
    view = sides.view()
    sides.put(sides.left, (1, 1))

    def meanwhile() -> None:
        for number in range(2, 5):
            sides.put(sides.left, (number, 1))
            again(sides.left).expire()

    assert beside(view, meanwhile).refresh() is not None
    done = view.refresh()
    assert done is not None
    assert not done.whole
    assert sorted(named(view)) == [1, 2, 3, 4]


def test_a_slower_refresh_leaves_the_hold_of_the_faster_one(sides: Sides) -> None:
    view, other = sides.view(), sides.view()
    view.refresh()
    sides.put(sides.left, (1, 1))
    with pytest.raises(Conflict):
        beside(view, lambda: (sides.put(sides.left, (2, 1)), other.refresh())).refresh()
    held = [consumer.version for consumer in sides.left.consumers()]
    assert held == [other.lag()["shop.l"].version]
    sides.put(sides.left, (3, 1))
    again(sides.left).expire()
    done = view.refresh()
    assert done is not None
    assert not done.whole


def test_looking_for_changes_writes_nothing(sides: Sides) -> None:
    view = sides.view()
    view.refresh()
    calls: list[Call] = []
    storage = FaultyStorage(LocalStorage(), calls.append)
    table, *inputs = (again(table, storage=storage) for table in (view.table, sides.left, sides.right))
    idle = View(table, inputs)
    assert idle.refresh() is None
    calls.clear()
    assert idle.refresh() is None
    assert [call for call in calls if not call.only_reads] == []


def test_a_dropped_view_holds_nothing(sides: Sides) -> None:
    view = sides.view()
    view.refresh()
    assert sides.left.consumers() != []
    drop_view(sides.store, "shop.left")
    assert sides.left.consumers() == sides.right.consumers() == []
    assert sides.store.list_tables("shop") == ["l", "r"]
    drop_view(sides.store, "shop.left", if_exists=True)
    with pytest.raises(NotFound):
        drop_view(sides.store, "shop.left")
    with pytest.raises(InvalidRequest) as caught:
        drop_view(sides.store, "shop.l")
    assert caught.value.code == "no-view"


def test_the_name_of_a_view_of_a_query_is_taken(sides: Sides) -> None:
    sides.store.create_view("shop.left", "SELECT 1", columns="x INT")
    with pytest.raises(AlreadyExists):
        sides.view()


# ------------------------------------------------------------------------------------------------ the doctor


def findings(sides: Sides, name: str = "shop.left") -> list[tuple[str, str]]:
    return [(str(f.code), f.message) for f in sides.store.examine(name).findings]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"k": 1, "x": 1, "y": "wrong"}, "has 2 rows, 2 are stored, and 1 differ"),
        ({"k": 9, "x": 1, "y": "foo"}, "has 2 rows, 3 are stored, and 1 differ"),
        ({"k": 1, "_kind": "-D"}, "has 2 rows, 1 are stored, and 1 differ"),
    ],
)
def test_the_doctor_finds_rows_that_are_not_the_result(sides: Sides, change: Row, sentence: str) -> None:
    view = sides.view()
    sides.put(sides.left, (1, 1), (2, 2))
    view.refresh()
    assert findings(sides) == []
    forged(view, change)
    [(code, message)] = findings(sides)
    assert code == "view-result"
    assert sentence in message


def test_the_doctor_compares_the_versions_that_the_view_names(sides: Sides) -> None:
    view = sides.view()
    assert findings(sides) == [], "it was never refreshed, and is empty"
    sides.put(sides.left, (1, 1), (2, 2))
    view.refresh()
    sides.put(sides.left, (1, 2))
    assert findings(sides) == []
    for table in ("shop.l", "shop.r"):
        assert findings(sides, table) == []


def test_the_doctor_says_what_it_cannot_compare(sides: Sides) -> None:
    view = sides.view()
    sides.put(sides.left, (1, 1))
    view.refresh()
    sides.right.alter("RENAME COLUMN y TO z")
    assert findings(sides) == []
    view.table.alter("SET checkpoint.interval = 9")
    sides.store.drop_table("shop.r")
    [(code, message)] = findings(sides)
    assert code == "view-unchecked"
    assert "no table 'r'" in message
    sides.store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"])
    assert [code for code, _ in findings(sides)] == ["view-unchecked"]
    assert sides.view().refresh() is not None
    assert findings(sides) == []


# ------------------------------------------------------------------------------------------------ following


def test_it_follows_until_it_is_stopped(sides: Sides) -> None:
    view, stopped = sides.view(), Event()
    found = []
    for done in view.follow(stopped, timedelta(milliseconds=1)):
        found.append((done.inputs["shop.l"], done.whole))
        if len(found) < 4:
            sides.put(sides.left, (len(found), 1))
        else:
            stopped.set()
    assert found == [(0, True), (1, False), (2, False), (3, False)]
    assert named(view) == {1: "foo", 2: "foo", 3: "foo"}


def test_what_was_committed_before_the_stop_is_added(sides: Sides) -> None:
    sides.put(sides.left, (1, 1))
    view = sides.view()
    assert [done.inputs["shop.l"] for done in view.follow(lambda: True)] == [1]
    assert list(view.follow(lambda: True)) == []


def test_a_refresh_of_another_process_does_not_end_it(sides: Sides) -> None:
    view, other = sides.view(), sides.view()
    sides.put(sides.left, (1, 1))
    steps = iter([lambda: sides.put(sides.left, (2, 1)), lambda: None])
    following = beside(view, lambda: (next(steps)(), other.refresh())).follow(lambda: True)
    assert list(following) == [], "the other one has committed all that there is"
    assert named(view) == {1: "foo", 2: "foo"}
