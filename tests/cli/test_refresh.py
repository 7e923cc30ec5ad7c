"""The commands about maintained joins: `refresh`, and what `describe` and `doctor` say about one."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from tablestore import Store
from tests.cli.conftest import Run
from tests.cli.programs import Program


@pytest.fixture
def joined(store: Store) -> Store:
    store.create_table("shop.l", "k BIGINT, x BIGINT", primary_key=["k"]).write([{"k": 1, "x": 5}])
    store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"]).write([{"id": 5, "y": "foo"}])
    store.maintain_join("shop.v", left="shop.l", right="shop.r", on="x", kind="left")
    return store


@pytest.mark.slow
def test_a_view_is_refreshed_once(run: Run, joined: Store) -> None:
    done = run("refresh", "shop.v")
    assert done.exit_code == 0
    assert "version 1: shop.l at version 1, shop.r at version 1, all rows computed again" in done.stderr
    assert "shop.v is up to date" in run("refresh", "shop.v").stderr
    assert "all rows computed again" in run("refresh", "Shop.V", "--rebuild").stderr
    joined.table("shop.l").write([{"k": 2, "x": 6}])
    assert "version 3: shop.l at version 2, shop.r at version 1\n" in run("refresh", "shop.v").stderr
    assert run("scan", "shop.v", "--format", "json").stdout.count("\n") == 2


def test_what_is_no_view_is_not_refreshed(run: Run, joined: Store) -> None:
    done = run("refresh", "shop.l")
    assert done.exit_code == 1
    assert "error[no-view]" in done.stderr


@pytest.mark.slow
def test_all_views_are_refreshed_behind_those_that_they_read(run: Run, joined: Store) -> None:
    joined.maintain_join("shop.a", left="shop.v", right="shop.r", on="x", select="l.k, r.y AS y")
    done = run("refresh", "--all")
    assert done.exit_code == 0
    first, second = [line for line in done.stderr.splitlines() if "version" in line]
    assert first.startswith("shop.v version 1: shop.l at version 1")
    assert second.startswith("shop.a version 1: shop.v at version 1")
    joined.table("shop.l").write([{"k": 3, "x": 5}])
    assert "shop.v version 2" in run("refresh", "shop.a").stderr
    assert joined.table("shop.a").scan().to_polars().height == 2


def test_a_view_that_fails_holds_up_no_other_one(run: Run, joined: Store) -> None:
    joined.maintain_join("shop.a", left="shop.l", right="shop.r", on="x")
    joined.create_table("shop.r2", "id BIGINT, y STRING", primary_key=["id"])
    joined.maintain_join("shop.b", left="shop.l", right="shop.r2", on="x")
    joined.drop_table("shop.r2")
    done = run("refresh", "--all")
    assert done.exit_code == 1
    assert "shop.b: error[table-not-found]" in done.stderr
    assert "shop.a version 1" in done.stderr
    assert "shop.v version 1" in done.stderr
    joined.drop_table("shop.b")
    again = run("refresh", "--all")
    assert again.exit_code == 0
    assert "shop.a is up to date" in again.stderr


@pytest.mark.slow
def test_all_views_are_followed_until_a_signal(start: Callable[..., Program], joined: Store) -> None:
    program = start("refresh", "--all", "--follow", "--every", "0.05")
    program.err.until_any("shop.v version 1")
    joined.table("shop.l").write([{"k": 2, "x": 5}])
    program.err.until_any("shop.v version 2")
    program.process.send_signal(signal.SIGTERM)
    assert program.wait() == 0


def test_a_view_or_all_of_them(run: Run, joined: Store) -> None:
    for arguments in (["refresh"], ["refresh", "shop.v", "--all"]):
        assert "name a view, or give --all" in run(*arguments).stderr


@pytest.mark.slow
def test_describe_says_how_far_a_view_is_behind(run: Run, joined: Store) -> None:
    assert "shop.l not read yet (2 newer)" in run("describe", "shop.v").stdout
    run("refresh", "shop.v")
    joined.table("shop.r").write([{"id": 6, "y": "bar"}])
    shown = json.loads(run("describe", "shop.v", "--format", "json").stdout)["view"]
    assert shown == {
        "inputs": ["shop.l at version 1 (0 newer)", "shop.r at version 1 (1 newer)"],
        "refreshed": "incrementally, without Spark",
    }
    shown = " ".join(run("describe", "shop.v").stdout.split())
    assert "inputs: shop.l at version 1 (0 newer), shop.r at version 1 (1 newer), refreshed: increm" in shown
    joined.drop_table("shop.r")
    assert "there is no table" in run("describe", "shop.v").stdout
    assert "view" not in json.loads(run("describe", "shop.l", "--format", "json").stdout)


@pytest.mark.slow
def test_the_doctor_checks_the_rows_of_a_view(run: Run, joined: Store) -> None:
    run("refresh", "shop.v")
    assert run("doctor", "shop.v").exit_code == 0
    joined.drop_table("shop.r")
    done = run("doctor", "shop.v")
    assert done.exit_code == 0
    assert "view-unchecked" in done.stdout


def test_a_view_of_events_is_rebuilt(run: Run, store: Store) -> None:
    events = store.create_table("shop.e", "x BIGINT")
    events.write([{"x": 5}])
    store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"]).write([{"id": 5, "y": "foo"}])
    store.maintain_join("shop.v", left="shop.e", right="shop.r", on="x")
    assert "shop.v version 1: shop.e at version 1, shop.r at version 1" in run("refresh", "shop.v").stderr
    events.write([{"x": 5}, {"x": 5}], overwrite=True)
    failed = run("refresh", "--all")
    assert failed.exit_code == 1
    assert "error[events-changed]" in failed.stderr
    assert "version 2: shop.e at version 2, shop.r at version 1, all rows computed again" in (
        run("refresh", "shop.v", "--rebuild").stderr
    )
    assert run("scan", "shop.v", "--format", "json").stdout.count("\n") == 2
    shown = json.loads(run("describe", "shop.v", "--format", "json").stdout)["view"]
    assert shown == {
        "inputs": ["shop.e at version 2 (0 newer)", "shop.r at version 1 (0 newer)"],
        "refreshed": "incrementally, without Spark, and only gets inserts",
    }
    assert run("doctor", "shop.v").exit_code == 0
    for more in (["--all", "--rebuild"], ["shop.v", "--rebuild", "--follow"]):
        assert "error[bad-arguments]" in run("refresh", *more).stderr
