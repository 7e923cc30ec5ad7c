"""A maintained join of events, step by step: what is added, what stays, what is refused, and what the doctor finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import tablestore
from filestore.commit.proposal import AppVersion
from filestore.errors import Conflict, InvalidRequest, NotFound, TableStoreError
from tablestore import Table
from tablestore.views.events import event_work
from tablestore.views.tasks import Work, in_own_threads
from tablestore.views.view import View
from tablestore.writing.apps import VIEW_APP
from tablestore.writing.given_rows import GivenRows
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.tables import to_arrow
from tests.tablestore.views.own_tasks import running
from tests.warehouses import Row, assert_whole, changes, rows, warehouse

KEPT = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "0 s"}


@dataclass
class Pages:
    """The tables of FLIP-149's example: views of pages, and the users who saw them."""

    store: tablestore.Store
    views: Table
    users: Table

    def join(self, into: str = "shop.enriched", **how: object) -> View:
        asked: dict[str, object] = {"left": "shop.views", "right": "shop.users", "on": "user", "kind": "left"} | how
        return self.store.maintain_join(into, **asked)  # type: ignore[arg-type]

    def see(self, *found: tuple[object, ...]) -> None:
        names = self.views.schema.names
        self.views.write(to_arrow(self.views.definition, [dict(zip(names, one, strict=False)) for one in found]))

    def user(self, key: int, region: str | None) -> None:
        self.users.write([{"id": key, "region": region}])


@pytest.fixture
def pages() -> Iterator[Pages]:
    with warehouse() as store:
        views = store.create_table("shop.views", "user BIGINT, page STRING", options=KEPT)
        users = store.create_table("shop.users", "id BIGINT, region STRING", primary_key=["id"], options=KEPT)
        yield Pages(store, views, users)


def shown(view: View) -> list[tuple[object, ...]]:
    found = [tuple(row.values()) for row in rows(view.table)]
    return sorted(found, key=lambda row: [(value is not None, str(value)) for value in row])


def findings(pages: Pages, name: str = "shop.enriched") -> list[tuple[str, str]]:
    return [(str(f.code), f.message) for f in pages.store.examine(name).findings]


def refused(view: View, act: Callable[[], object] | None = None) -> TableStoreError:
    """The error of a refresh, which has changed nothing."""
    before = view.table.filestore.state().version
    with pytest.raises(TableStoreError) as caught:
        (act or view.refresh)()
    assert view.table.filestore.state().version == before
    return caught.value


# ------------------------------------------------------------------------------------------------ what is added


def test_the_example_of_flip_149(pages: Pages) -> None:
    view = pages.join()
    pages.user(1, "Europe")
    pages.see((1, "a"), (2, "a"))
    first = view.refresh()
    assert first is not None
    assert (first.version, *first.inputs.values(), first.whole) == (1, 1, 1, True)
    pages.user(1, "Asia")
    pages.user(2, "Europe")
    assert view.refresh() is None, "a user who moves changes nothing that is written"
    assert [lag.behind for lag in view.lag().values()] == [0, 2]
    pages.see((1, "b"), (2, "b"))
    second = view.refresh()
    assert second is not None
    assert (second.version, *second.inputs.values(), second.whole) == (2, 2, 3, False)
    assert shown(view) == [(1, "a", "Europe"), (1, "b", "Asia"), (2, "a", None), (2, "b", "Europe")]
    assert [change["_kind"] for change in changes(view.table, version=0)] == ["+I"] * 4
    assert view.table.snapshots(1)[0].metrics["rows_written"] == 2
    assert findings(pages) == []
    assert_whole(view.table, leftovers=False)


def test_empty_tables_one_row_nulls_and_equal_events(pages: Pages) -> None:
    view, inner = pages.join(), pages.join("shop.inner", kind="inner")
    assert (view.refresh(), inner.refresh()) != (None, None)
    assert (shown(view), shown(inner), findings(pages)) == ([], [], [])
    assert view.refresh() is None
    pages.see((1, "a"))
    view.refresh()
    assert shown(view) == [(1, "a", None)]
    pages.user(1, "Europe")
    pages.see((1, "a"), (1, "a"), (None, "a"), (None, None))
    view.refresh(), inner.refresh()
    assert shown(view) == [(None, None, None), (None, "a", None), (1, "a", None), *[(1, "a", "Europe")] * 2]
    assert shown(inner) == [(1, "a", "Europe")] * 3
    assert findings(pages) == findings(pages, "shop.inner") == []


@pytest.mark.parametrize(
    ("narrow", "wide", "beyond"), [("INT", "BIGINT", 1 << 40), ("DECIMAL(3,1)", "DECIMAL(6,2)", "1.01")]
)
@pytest.mark.parametrize("small_bytes", [1 << 20, 1])
def test_a_key_that_only_widened_events_can_have_matches_nothing(
    monkeypatch: pytest.MonkeyPatch, small_bytes: int, narrow: str, wide: str, beyond: int | str
) -> None:
    monkeypatch.setattr("tablestore.reading.keyed_rows.SMALL_BYTES", small_bytes)
    with warehouse() as store:
        kept = KEPT | {"schema.evolution-mode": "metadata"}
        events = store.create_table("shop.views", f"page STRING, user {narrow}", options=kept)
        users = store.create_table("shop.users", f"id {narrow}, name STRING", primary_key=["id"])
        view = Pages(store, events, users).join(select=["l.page", "r.name"])
        users.write(pl.DataFrame({"id": [1], "name": ["Ada"]}))
        events.write(pl.DataFrame({"page": ["a"], "user": [1]}))
        view.refresh()
        events.alter(f"ALTER COLUMN user TYPE {wide}")
        given = Decimal(beyond) if isinstance(beyond, str) else beyond
        events.write(pl.DataFrame({"page": ["b", "c", "d"], "user": [given, type(given)(1), None]}))
        again = store.maintained_view("shop.enriched")
        again.refresh()
        found = {row["page"]: row["name"] for row in rows(again.table)}
        assert found == {"a": "Ada", "b": None, "c": "Ada", "d": None}
        assert store.examine("shop.enriched").findings == ()


def test_an_empty_write_and_compactions_add_nothing(pages: Pages) -> None:
    view = pages.join()
    for number in range(4):
        pages.see((number, "a"))
    view.refresh()
    pages.views.compact(full=True), view.table.compact(full=True), pages.see()
    pages.see((9, "a"))
    pages.views.compact(full=True)
    assert view.refresh() is not None
    assert [row[0] for row in shown(view)] == [0, 1, 2, 3, 9]
    assert findings(pages) == []


def test_many_tasks_and_buckets_and_a_large_table(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablestore.reading.keyed_rows.SMALL_BYTES", 1)
    monkeypatch.setattr(event_work, "_TASK_BYTES", 1)
    monkeypatch.setattr(event_work, "PIECE_ROWS", 2)
    view = pages.join(options={"bucket": "3", "bucket-key": "user"})
    pages.users.write([{"id": key, "region": f"r{key}"} for key in range(5)])
    for number in range(4):
        pages.see(*((key, f"p{number}") for key in range(7)))
    view.refresh()
    wanted = {(key, f"p{number}", f"r{key}" if key < 5 else None) for key in range(7) for number in range(4)}
    assert len(shown(view)) == 28
    assert set(shown(view)) == wanted
    assert {file.slot.bucket for file in view.table.filestore.state().files} == {0, 1, 2}
    assert findings(pages) == []


def test_events_have_a_time_of_their_own(pages: Pages) -> None:
    pages.views.alter("ADD COLUMN at TIMESTAMP")
    view = pages.join(at="at", select="l.page, region")
    pages.users.alter("SET snapshot.num-retained.max = 100", "SET snapshot.num-retained.min = 100")
    times = []
    for region in ("Europe", "Asia"):
        pages.user(1, region)
        times.append(pages.users.snapshots(limit=1)[0].timestamp)
    pages.see((1, "first", times[0]), (1, "never", times[0] - timedelta(days=1)), (1, "null", None))
    pages.see((1, "late", times[1]))
    view.refresh()
    pages.user(1, "Africa")
    pages.see((1, "later", times[0]))
    view.refresh()
    assert shown(view) == [
        ("first", "Europe"), ("late", "Asia"), ("later", "Europe"), ("never", None), ("null", None)
    ]  # fmt: skip
    before = shown(view)
    view.rebuild()
    assert shown(view) == before, "the result follows from the tables alone"
    assert findings(pages) == []


def test_the_time_may_be_in_a_column_called_processing(pages: Pages) -> None:
    """For a look-up join this name asks for processing time, for which a view has no column."""
    pages.views.alter("ADD COLUMN processing TIMESTAMP")
    view = pages.join(at="processing")
    pages.users.alter("SET snapshot.num-retained.max = 100", "SET snapshot.num-retained.min = 100")
    pages.user(1, "Europe")
    early = pages.users.snapshots(limit=1)[0].timestamp
    pages.user(1, "Asia")
    pages.see((1, "a", early))
    view.refresh()
    assert [row[-1] for row in shown(view)] == ["Europe"]
    assert findings(pages) == []


def test_the_version_of_an_event_has_expired(pages: Pages) -> None:
    pages.views.alter("ADD COLUMN at TIMESTAMP")
    view = pages.join(at="at")
    pages.user(1, "Europe")
    early = pages.users.snapshots(limit=1)[0].timestamp
    for region in ("Asia", "Africa"):
        pages.user(1, region)
    assert pages.users.expire().versions
    pages.see((1, "a", early))
    assert refused(view).code == "snapshot-expired"
    view.table.alter("SET view.expired-versions = oldest")
    assert view.refresh() is not None
    assert [row[-1] for row in shown(view)] == ["Africa"]
    assert [code for code, _ in findings(pages)] == ["view-unchecked"]


def test_events_of_a_view_are_events(pages: Pages) -> None:
    """A view of events is read by another one, and only gets inserts, until it is rebuilt."""
    first = pages.join()
    regions = pages.store.create_table("shop.regions", "name STRING, head STRING", primary_key=["name"])
    regions.write([{"name": "Europe", "head": "E"}])
    second = pages.join("shop.second", left="shop.enriched", right="shop.regions", on="region", select="page, head")
    pages.user(1, "Europe")
    for page in "ab":
        pages.see((1, page))
        first.refresh(), second.refresh()
    assert shown(second) == [("a", "E"), ("b", "E")]
    first.rebuild()
    assert refused(second).code == "events-changed"
    second.rebuild()
    assert shown(second) == [("a", "E"), ("b", "E")]
    assert findings(pages, "shop.second") == []


# ------------------------------------------------------------------------------------------------ what is refused


def dropped(pages: Pages) -> View:
    """A view of events by day, of which a day was dropped after the last refresh."""
    days = pages.store.create_table("shop.days", "user BIGINT, day STRING", partition_by=["day"])
    view = pages.join(left="shop.days")
    days.write([{"user": 1, "day": "a"}])
    view.refresh()
    days.write([{"user": 2, "day": "a"}, {"user": 3, "day": "b"}])
    days.drop_partitions([{"day": "a"}])
    return view


def test_removed_events_are_refused_or_stay_in_the_view(pages: Pages) -> None:
    view = dropped(pages)
    error = refused(view)
    assert error.code == "events-removed"
    assert "version 3 of the table of events is a DROP PARTITION" in error.message
    view.table.alter("SET view.removed-events = keep")
    assert view.refresh() is not None
    assert [row[0] for row in shown(view)] == [1, 2, 3], "what was inserted between two refreshes counts, too"
    assert findings(pages) == []
    for change in ("SET view.removed-events = refuse", "UNSET view.removed-events"):
        stays = "results of events that were removed: leave it so, or create the table or view again"
        with pytest.raises(InvalidRequest, match=stays) as caught:
            view.table.alter(change)
        assert caught.value.code == "fixed-option"
    view.table.alter("SET view.removed-events = keep", "SET checkpoint.interval = 5")
    assert findings(pages) == []


def test_a_rebuilt_view_has_the_events_that_are_left(pages: Pages) -> None:
    view = dropped(pages)
    done = view.rebuild()
    assert (done.whole, [row[0] for row in shown(view)]) == (True, [3])
    assert view.refresh() is None
    assert findings(pages) == []


def back(table: Table) -> None:
    table.rollback(1)
    table.rollback(2)


@pytest.mark.parametrize(
    ("change", "operation"),
    [
        (lambda table: table.write([{"user": 5, "page": "x"}], overwrite=True), "OVERWRITE"),
        (back, "ROLLBACK"),
    ],
)
def test_replaced_events_are_refused(pages: Pages, change: Callable[[Table], object], operation: str) -> None:
    view = pages.join(options={"view.removed-events": "keep"})
    pages.views.alter("SET snapshot.num-retained.max = 100", "SET snapshot.num-retained.min = 100")
    pages.see((1, "a"))
    view.refresh()
    pages.see((2, "b"))
    change(pages.views)
    error = refused(view)
    assert error.code == "events-changed"
    assert f"is a {operation} that replaces rows" in error.message
    view.rebuild()
    assert {row[:2] for row in shown(view)} == {tuple(row.values()) for row in rows(pages.views)}
    assert view.refresh() is None


def test_an_overwrite_of_nothing_inserts(pages: Pages) -> None:
    view = pages.join()
    view.refresh()
    pages.views.write([{"user": 1, "page": "a"}], overwrite=True)
    view.refresh()
    assert shown(view) == [(1, "a", None)]


def test_a_table_that_was_created_again(pages: Pages) -> None:
    """The other table may be another one from then on; which events of another table are new is not known."""
    view = pages.join()
    pages.see((1, "a"))
    view.refresh()
    pages.store.drop_table("shop.users")
    pages.store.create_table("shop.users", "id BIGINT, region STRING", primary_key=["id"])
    pages.see((2, "b"))
    assert pages.join().refresh() is not None
    assert len(shown(view)) == 2
    pages.store.drop_table("shop.views")
    pages.store.create_table("shop.views", "user BIGINT, page STRING").write([{"user": 3, "page": "c"}])
    view = pages.join()
    assert refused(view).code == "events-replaced"
    view.rebuild()
    assert shown(view) == [(3, "c", None)]
    assert findings(pages) == []


def test_columns_that_come_and_go(pages: Pages) -> None:
    view = pages.join()
    pages.see((1, "a"))
    view.refresh()
    pages.views.alter("ADD COLUMN note STRING"), pages.users.alter("ADD COLUMN note STRING")
    pages.see((2, "b", "n"))
    assert view.refresh() is not None
    assert shown(view) == [(1, "a", None), (2, "b", None)]
    assert pages.join().table.definition == view.table.definition
    pages.views.alter("DROP COLUMN page", "ADD COLUMN page STRING")
    pages.see((3, "n", "c"))
    assert refused(view).code == "events-changed"
    view.rebuild()
    assert [row[1] for row in shown(view)] == [None, None, "c"]
    pages.users.alter("RENAME COLUMN region TO area")
    assert refused(view).code == "view-outdated"


@pytest.mark.parametrize("mode", ["rewrite", "metadata"])
def test_a_column_that_got_its_name_back(pages: Pages, mode: str) -> None:
    """A file that was added meanwhile has the column under the other name, unless names are mapped."""
    pages.views.alter(f"SET schema.evolution-mode = {mode}")
    view = pages.join()
    pages.see((1, "a"))
    view.refresh()
    pages.views.alter("RENAME COLUMN page TO other")
    pages.see((2, "b"))
    pages.views.alter("RENAME COLUMN other TO page")
    if mode == "rewrite":
        error = refused(view)
        assert (error.code, "had another name for a time" in error.message) == ("events-changed", True)
        view.rebuild()
    else:
        assert view.refresh() is not None
    assert shown(view) == [(1, "a", None), (2, "b", None)]
    assert findings(pages) == []


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"left": "shop.users", "right": "shop.views", "kind": "left"}, "use kind='inner', or left='shop.views'"),
        ({"right": "shop.more"}, "shop.views and shop.more have no primary key"),
        ({"at": "page"}, "shop.views.page is STRING, and events are looked up as of a TIMESTAMP"),
        ({"on": "page"}, "r is joined by id, which is int64, with a column that is string"),
        ({"select": "l.page, r.page"}, "page"),
        ({"options": {"view.engine": "tablestore"}}, "option 'view.engine' of a view follows from its query"),
        ({"kind": "full"}, "is no kind of join"),
    ],
)
def test_nothing_is_created_for_what_cannot_be_joined(pages: Pages, how: dict[str, object], sentence: str) -> None:
    pages.store.create_table("shop.more", "user BIGINT")
    tables = pages.store.list_tables("shop")
    with pytest.raises(TableStoreError, match=sentence):
        pages.join(**how)
    assert pages.store.list_tables("shop") == tables


def test_rows_with_keys_have_no_time(pages: Pages) -> None:
    pages.store.create_table("shop.l", "k BIGINT, user BIGINT, at TIMESTAMP", primary_key=["k"])
    with pytest.raises(InvalidRequest, match=r"at='at' is the time of events, and shop\.l has a primary key"):
        pages.join(left="shop.l", at="at")


def test_only_refreshes_write_it(pages: Pages) -> None:
    view = pages.join()
    assert refused(view, lambda: view.table.write([{"user": 1, "page": "a", "region": "b"}])).code == "maintained-view"
    for how in ({"kind": "inner"}, {"select": "l.page"}):
        assert refused(view, lambda how=how: pages.join(**how)).code == "table-exists"  # type: ignore[misc]
    assert pages.store.maintained_view("shop.enriched").query == view.query


# ------------------------------------------------------------------------------------------------ processes and time


def beside(view: View, step: Callable[[], object]) -> View:
    """The view, of whose next refresh the tasks have run when something else is done."""

    def run(job: WriteJob, work: Sequence[Work]) -> Sequence[TaskOutcome]:
        done = in_own_threads(job, work)
        step()
        return done

    return view.executed_by(running(run))


@pytest.mark.parametrize("refreshed_before", [False, True])
def test_two_refreshes_at_once_add_each_event_once(pages: Pages, refreshed_before: bool) -> None:
    view, other = pages.join(), pages.join()
    if refreshed_before:
        view.refresh()
    pages.see((1, "a"))
    with pytest.raises(Conflict) as caught:
        beside(view, lambda: (pages.see((2, "b")), other.refresh())).refresh()
    assert caught.value.code == "other-refresh"
    assert [row[0] for row in shown(view)] == [1, 2]
    assert view.refresh() is None
    assert findings(pages) == []
    pages.see((3, "c"))
    same = beside(view, other.refresh).refresh()
    assert same is not None, "both have read the same versions"
    assert [row[0] for row in shown(view)] == [1, 2, 3]
    assert_whole(view.table, leftovers=False)


def test_a_rebuild_beside_a_refresh_is_a_conflict(pages: Pages) -> None:
    """Both would be the result of the same versions, but the refresh leaves the former rows."""
    view, other = pages.join(), pages.join()
    pages.see((1, "a"))
    view.refresh()
    pages.user(1, "Europe")
    pages.see((2, "b"))
    with pytest.raises(Conflict) as caught:
        beside(view, other.refresh).rebuild()
    assert caught.value.code == "other-refresh"
    assert shown(view) == [(1, "a", None), (2, "b", None)]
    view.rebuild()
    assert shown(view) == [(1, "a", "Europe"), (2, "b", None)]


def test_a_compaction_during_a_refresh_is_no_conflict(pages: Pages) -> None:
    view = pages.join()
    for number in range(3):
        pages.see((number, "a"))
        view.refresh()
    pages.see((3, "a"))
    assert beside(view, lambda: pages.join().table.compact(full=True)).refresh() is not None
    assert [row[0] for row in shown(view)] == [0, 1, 2, 3]
    assert_whole(view.table, leftovers=False)


def test_versions_with_new_events_do_not_expire(pages: Pages) -> None:
    view = pages.join()
    view.refresh()
    for number in range(5):
        pages.see((number, "a"))
        pages.views.compact(full=True), pages.views.expire()
    view.refresh()
    assert [row[0] for row in shown(view)] == [0, 1, 2, 3, 4]
    assert [consumer.version for consumer in pages.views.consumers()] == [view.lag()["shop.views"].version]


@pytest.mark.parametrize("side", ["users", "views"])
def test_a_version_that_expires_as_a_refresh_begins_is_looked_for_again(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    view = pages.join()
    pages.user(1, "Europe")
    pages.see((1, "a"))
    table: Table = getattr(pages, side)
    held, looks = View._held, []

    def expiring(self: View, *read: Any) -> Any:
        looks.append(read)
        if len(looks) == 1:
            pages.user(1, "Asia")
            pages.see((1, "b"))
            assert table.expire().versions
        return held(self, *read)

    monkeypatch.setattr(View, "_held", expiring)
    assert view.refresh() is not None
    assert len(looks) == 2
    assert shown(view) == [(1, "a", "Asia"), (1, "b", "Asia")]
    assert findings(pages) == []


def test_if_they_have_expired_only_a_rebuild_helps(pages: Pages) -> None:
    view = pages.join()
    pages.see((0, "a"))
    view.refresh()
    pages.views.delete_consumer(f"view.{view.table.filestore.state().table_id}")
    for number in range(1, 4):
        pages.see((number, "a"))
        pages.views.compact(full=True)
    assert pages.views.expire().versions
    error = refused(pages.join())
    assert (type(error), error.code) == (NotFound, "events-expired")
    pages.join().rebuild()
    assert [row[0] for row in shown(view)] == [0, 1, 2, 3]
    assert pages.join().refresh() is None


# ------------------------------------------------------------------------------------------------ the doctor


def forged(view: View, more: Sequence[Row]) -> None:
    """Adds rows under the name of a refresh, as a faulty one would."""
    state = view.table.filestore.state()
    app = AppVersion(VIEW_APP, state.app_versions[VIEW_APP] + 1, tuple(state.positions.items()))
    view.table.writer().write(GivenRows(to_arrow(state.definition, more)), app=app)


@pytest.mark.parametrize("kind", ["left", "inner"])
@pytest.mark.parametrize(
    "more",
    [
        [{"user": 1, "page": "a", "region": "Europe"}],
        [{"user": 7, "page": None, "region": None}],
    ],
)
def test_the_doctor_finds_a_row_that_no_event_has(pages: Pages, kind: str, more: list[Row]) -> None:
    view = pages.join(kind=kind)
    pages.user(1, "Europe")
    pages.see((1, "a"), (1, "a"))
    view.refresh()
    assert findings(pages) == []
    forged(view, more)
    found = findings(pages)
    assert {code for code, _ in found} == {"view-result"}
    messages = " ".join(message for _, message in found)
    assert "the refresh to version 2 has read versions 1 and 1" in messages
    assert "adds 0 rows; it has added 1" in messages
    assert ("has 2 rows, and the view has 3" in messages) is (kind == "left")


def test_the_doctor_compares_the_columns_of_the_other_table(pages: Pages) -> None:
    view = pages.join()
    pages.user(1, "Europe")
    pages.see((1, "a"))

    def run(job: WriteJob, work: Sequence[Work]) -> Sequence[TaskOutcome]:
        pages.user(1, "Asia")
        state = view.table.filestore.state()
        return GivenRows(to_arrow(state.definition, [{"user": 1, "page": "a", "region": "Asia"}]))(job)

    view.executed_by(running(run)).refresh()
    [(code, message)] = findings(pages)
    assert code == "view-result"
    assert "adds 1 rows; it has added 1 that are others" in message


def test_the_doctor_says_what_it_cannot_compare(pages: Pages) -> None:
    view = pages.join(kind="inner")
    for number in range(3):
        pages.user(number, "Europe")
        pages.see((number, "a"))
        view.refresh()
    pages.views.expire(), pages.users.expire()
    [(code, message)] = findings(pages)
    assert code == "view-unchecked"
    assert "some refreshes have read versions that have expired" in message
    pages.store.drop_table("shop.users")
    assert [code for code, _ in findings(pages)] == ["view-unchecked"]


def test_the_doctor_says_that_no_refresh_is_retained(pages: Pages) -> None:
    view = pages.join(options=KEPT)
    for number in range(3):
        pages.see((number, "a"))
        view.refresh()
    assert view.table.expire().versions
    [(code, message)] = findings(pages)
    assert code == "view-unchecked"
    assert "the version before its last refresh has expired" in message


def test_times_are_compared_in_milliseconds(pages: Pages) -> None:
    """An event of the millisecond of a commit meets its version, as for `Table.lookup`."""
    pages.views.alter("ADD COLUMN at TIMESTAMP")
    view = pages.join(at="at")
    pages.user(1, "Europe")
    at = pages.users.snapshots(limit=1)[0].timestamp
    pages.see(
        (1, "on", at), (1, "before", at - timedelta(milliseconds=1)), (1, "future", datetime.max.replace(tzinfo=UTC))
    )
    view.refresh()
    assert {row[1]: row[-1] for row in shown(view)} == {"on": "Europe", "before": None, "future": "Europe"}
