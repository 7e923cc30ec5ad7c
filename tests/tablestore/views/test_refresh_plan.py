"""What a refresh reads, from the versions of the view and of its inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from filestore.delta.state import POSITION_APP, TableState
from filestore.errors import InvalidRequest
from filestore.model.schema import Schema
from tablestore.reading.version_changes import changes_between
from tablestore.views.joins.changed_keys import changed_keys
from tablestore.views.refresh_plan import plan_append, plan_refresh, read_versions, rebuilt, same_columns
from tablestore.writing.apps import VIEW_APP
from tests.tables import define, to_arrow
from tests.warehouses import warehouse

DEFINITION = define("id BIGINT NOT NULL", ["id"])


def state(table_id: str, version: int, **positions: int) -> TableState:
    apps = {f"{POSITION_APP}{name}": at for name, at in positions.items()}
    return TableState(version, 0, table_id, DEFINITION, app_versions=apps)


def test_a_view_that_was_never_refreshed_is_computed() -> None:
    plan = plan_refresh(state("v", 0), state("l", 3), state("r", 5))
    assert plan is not None
    assert (plan.since, plan.until, plan.app.version) == (None, (3, 5), 0)
    assert dict(plan.app.positions) == {"l": 3, "r": 5}


def test_only_newer_versions_are_read() -> None:
    view = state("v", 4, l=3, r=5)
    view = replace(view, app_versions={**view.app_versions, VIEW_APP: 7})
    plan = plan_refresh(view, state("l", 3), state("r", 6))
    assert plan is not None
    assert (plan.since, plan.until, plan.app.version) == ((3, 5), (3, 6), 8)
    assert plan_refresh(view, state("l", 3), state("r", 5)) is None


def test_new_events_are_those_of_later_versions() -> None:
    first = plan_append(state("v", 0), state("e", 3), state("r", 5))
    assert first is not None
    assert (first.since, first.until, first.app.version) == (None, (3, 5), 0)
    view = state("v", 4, e=3, r=5)
    view = replace(view, app_versions={**view.app_versions, VIEW_APP: 7})
    assert plan_append(view, state("e", 3), state("r", 6)) is None
    plan = plan_append(view, state("e", 4), state("other", 0))
    assert plan is not None
    assert (plan.since, plan.until, plan.app.version) == ((3,), (4, 0), 8)
    assert dict(plan.app.positions) == {"e": 4, "other": 0}
    again = rebuilt(view, state("e", 3), state("r", 5))
    assert (again.since, again.until, again.app.version) == (None, (3, 5), 8)
    for table in (state("e", 2), state("other", 9)):
        with pytest.raises(InvalidRequest) as caught:
            plan_append(view, table, state("r", 5))
        assert caught.value.code == "events-replaced"


@pytest.mark.parametrize(("left", "right"), [("l", "other"), ("other", "r")])
def test_another_table_of_the_name_has_not_been_read(left: str, right: str) -> None:
    view = state("v", 4, l=3, r=5)
    assert read_versions(view, left, right) is None
    plan = plan_refresh(view, state(left, 3), state(right, 5))
    assert plan is not None
    assert plan.since is None


def test_a_table_that_has_lost_versions_is_computed_again() -> None:
    plan = plan_refresh(state("v", 4, l=3, r=5), state("l", 2), state("r", 9))
    assert plan is not None
    assert plan.since is None


def test_a_table_that_is_on_both_sides_has_one_position() -> None:
    plan = plan_refresh(state("v", 0, t=2), state("t", 3), state("t", 3))
    assert plan is not None
    assert (plan.since, plan.app.positions) == ((2, 2), (("t", 3),))


def test_a_column_of_the_same_name_may_be_another_one() -> None:
    one = define("id BIGINT NOT NULL, a STRING, b STRING", ["id"])
    numbered = one.schema.numbered()
    swapped = replace(one, schema=Schema((numbered.columns[0], replace(numbered.columns[2], name="a"))))
    assert same_columns(one, replace(one, schema=numbered), ["id", "a", "b"])
    assert same_columns(one, swapped, ["id"])
    assert not same_columns(one, swapped, ["id", "a"])
    assert not same_columns(swapped, one, ["b"])


def test_columns_that_the_result_lacks_are_not_read() -> None:
    with warehouse() as store:
        table = store.create_table("shop.t", "id BIGINT, a INT, b INT", primary_key=["id"])
        table.write(to_arrow(table.definition, [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 1}]))
        before = table.filestore.state()
        table.write(to_arrow(table.definition, [{"id": 1, "a": 1, "b": 2}, {"id": 2, "a": 2, "b": 1}]))
        after = table.filestore.state()
        for columns, keys in ((["id", "a"], [2]), (["id", "b"], [1]), (["id"], [])):
            found = changed_keys(changes_between(table.filestore, before, after, columns), 10)
            assert found is not None
            assert found["id"].to_list() == keys
        assert changed_keys(changes_between(table.filestore, before, after, ["id", "a"]), 0) is None
