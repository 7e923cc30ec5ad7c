"""All views of a catalog are refreshed in rounds: failures wait longer each time, and hold up no other view."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from filestore.errors import InvalidRequest, Unavailable
from tablestore import Store
from tablestore.views.opening import all_views, open_view
from tablestore.views.upkeep import LIST_SECONDS, RefreshOutcome, Upkeep, pause_after
from tests.warehouses import rows


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def joined(store: Store) -> Store:
    store.create_table("shop.l", "k BIGINT, x BIGINT", primary_key=["k"]).write([{"k": 1, "x": 5}])
    store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"]).write([{"id": 5, "y": "foo"}])
    store.maintain_join("shop.v", left="shop.l", right="shop.r", on="x", kind="left")
    return store


def upkeep_of(store: Store, clock: Clock) -> Upkeep:
    return Upkeep(partial(all_views, store), partial(open_view, store), clock)


def shown(outcomes: Sequence[RefreshOutcome], *, ordered: bool = False) -> list[tuple[str | None, object]]:
    """The name of each view, with its version, None if it was up to date, or the code of its error; by name."""
    found = [(o.name, o.error.code if o.error else o.result.version if o.result else None) for o in outcomes]
    return found if ordered else sorted(found, key=str)


def test_a_catalog_without_views(store: Store) -> None:
    store.create_table("shop.t", "id BIGINT")
    assert list(upkeep_of(store, Clock()).round()) == []


def test_views_behind_those_that_they_read(joined: Store) -> None:
    joined.maintain_join("shop.a", left="shop.v", right="shop.r", on="x", select="l.k, r.y AS y")
    upkeep = upkeep_of(joined, Clock())
    assert shown(list(upkeep.round()), ordered=True) == [("shop.v", 1), ("shop.a", 1)]
    assert shown(list(upkeep.round()), ordered=True) == [("shop.v", None), ("shop.a", None)]
    joined.table("shop.l").write([{"k": 2, "x": 5}])
    assert shown(list(upkeep.round()), ordered=True) == [("shop.v", 2), ("shop.a", 2)]
    assert len(rows(joined.table("shop.a"))) == 2


def test_a_view_that_is_created_or_dropped_meanwhile(joined: Store) -> None:
    clock = Clock()
    upkeep = upkeep_of(joined, clock)
    assert shown(list(upkeep.round())) == [("shop.v", 1)]
    joined.maintain_join("shop.a", left="shop.l", right="shop.r", on="x")
    clock.now += LIST_SECONDS
    assert shown(list(upkeep.round())) == [("shop.a", 1), ("shop.v", None)]
    joined.drop_table("shop.a")
    assert shown(list(upkeep.round())) == [("shop.v", None)]
    joined.drop_table("shop.v")
    assert list(upkeep.round()) == []


def test_a_view_of_a_name_that_was_used_before(joined: Store) -> None:
    clock = Clock()
    upkeep = upkeep_of(joined, clock)
    assert shown(list(upkeep.round())) == [("shop.v", 1)]
    joined.drop_table("shop.v")
    joined.maintain_join("shop.v", left="shop.l", right="shop.r", on="x")
    found = list(upkeep.round())
    if found[0].error is not None:
        clock.now += pause_after(1)
        found = list(upkeep.round())
    assert shown(found) == [("shop.v", 1)]


def test_a_failure_is_tried_again_later_and_holds_up_no_other_view(joined: Store) -> None:
    joined.create_table("shop.r2", "id BIGINT, y STRING", primary_key=["id"])
    joined.maintain_join("shop.a", left="shop.l", right="shop.r2", on="x", kind="left")
    joined.drop_table("shop.r2")
    clock = Clock()
    upkeep = upkeep_of(joined, clock)
    assert shown(list(upkeep.round())) == [("shop.a", "table-not-found"), ("shop.v", 1)]
    assert shown(list(upkeep.round())) == [("shop.v", None)], "it waits"
    clock.now += pause_after(1)
    assert shown(list(upkeep.round())) == [("shop.a", "table-not-found"), ("shop.v", None)]
    clock.now += pause_after(1)
    assert shown(list(upkeep.round())) == [("shop.v", None)], "it waits longer"
    joined.create_table("shop.r2", "id BIGINT, y STRING", primary_key=["id"])
    clock.now += pause_after(2)
    assert ("shop.a", 1) in shown(list(upkeep.round()))
    assert shown(list(upkeep.round())) == [("shop.a", None), ("shop.v", None)]


def test_a_catalog_that_does_not_answer(joined: Store) -> None:
    clock, down = Clock(), [False]
    upkeep = upkeep_of(joined, clock)
    answers = upkeep.list_views

    def names() -> Sequence[str]:
        if down[0]:
            raise Unavailable("the catalog does not answer", code="no-answer")
        return answers()

    upkeep.list_views = names
    assert shown(list(upkeep.round())) == [("shop.v", 1)]
    down[0] = True
    clock.now += LIST_SECONDS
    joined.table("shop.l").write([{"k": 2, "x": 5}])
    assert shown(list(upkeep.round())) == [("shop.v", 2), (None, "no-answer")]
    down[0] = False
    assert shown(list(upkeep.round())) == [("shop.v", None)]


def test_a_table_that_cannot_be_opened_holds_up_no_view(joined: Store) -> None:
    broken = joined.create_table("shop.a", "id BIGINT")
    shutil.rmtree(Path(broken.location, "_delta_log"))
    clock = Clock()
    upkeep = upkeep_of(joined, clock)
    (name, code), view = shown(list(upkeep.round()))
    assert name == "shop.a"
    assert isinstance(code, str)
    assert view == ("shop.v", 1)
    assert shown(list(upkeep.round())) == [("shop.v", None)]


def test_two_processes_refresh_the_same_views(joined: Store) -> None:
    one, two = upkeep_of(joined, Clock()), upkeep_of(joined, Clock())
    assert shown(list(one.round())) == [("shop.v", 1)]
    assert shown(list(two.round())) == [("shop.v", None)]
    joined.table("shop.l").write([{"k": 2, "x": 5}])
    assert shown(list(two.round())) == [("shop.v", 2)]
    assert shown(list(one.round())) == [("shop.v", None)]


def test_pauses_grow_to_a_minute() -> None:
    assert [pause_after(failures) for failures in (1, 2, 3, 6, 7, 100_000)] == [2, 4, 8, 60, 60, 60]


def test_other_errors_end_the_round(joined: Store) -> None:
    def wrong(name: str) -> None:
        raise ZeroDivisionError(name)

    upkeep = Upkeep(lambda: ["shop.v"], wrong, Clock())  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        list(upkeep.round())


def test_a_view_that_cannot_be_opened(joined: Store) -> None:
    def refused(name: str) -> None:
        raise InvalidRequest(f"{name} is none", code="no-view")

    found = list(Upkeep(lambda: ["shop.v"], refused, Clock()).round())  # type: ignore[arg-type]
    assert shown(found) == [("shop.v", "no-view")]
    assert found[0].view is None
