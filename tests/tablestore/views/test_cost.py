"""The choice between the ways in which Spark refreshes a view."""

from __future__ import annotations

from tablestore.views.plan.cost import compares_here
from tablestore.views.plan.view_plan import Whole


def test_the_rule_needs_a_key_and_small_files() -> None:
    assert compares_here(Whole("why", key=("id",)), 10, 10)
    assert not compares_here(Whole("why", key=("id",)), 11, 10)
    assert not compares_here(Whole("why", key=("id",)), 0, 0), "0: never"
    assert not compares_here(Whole("why"), 0, 10), "without a key the rows replace those that are stored"
