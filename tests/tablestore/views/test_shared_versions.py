"""Views of a chain show one version of each table, whatever is written while they are refreshed one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from tablestore import Store
from tablestore.views import refreshing
from tablestore.views.opening import all_views, open_view
from tablestore.views.shared_versions import SharedVersions
from tablestore.views.upkeep import Upkeep
from tablestore.views.view import View
from tests.depth import Depth
from tests.warehouses import rows


@pytest.fixture
def chain(store: Store) -> Store:
    """Two views of one table, one that compares them, and one that compares that table with a view of it."""
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "0 s"}
    store.create_table("shop.t", "k BIGINT, g BIGINT NOT NULL, x BIGINT", primary_key=["k"], options=kept)
    sums = "SELECT g, sum(x) AS x, count(*) AS n FROM shop.t GROUP BY g"
    store.create_materialized_view("shop.a", sums)
    store.create_materialized_view("shop.b", sums)
    store.create_materialized_view(
        "shop.torn", "SELECT a.g, a.n AS one, b.n AS other FROM shop.a JOIN shop.b ON a.g = b.g WHERE a.n <> b.n"
    )
    store.create_materialized_view(
        "shop.late", "SELECT t.k, t.g, a.n FROM shop.t LEFT JOIN shop.a ON t.g = a.g WHERE a.n IS NULL"
    )
    return store


def upserts(store: Store) -> Callable[[], object]:
    """Returns what writes a few rows of the table, in a group of their own at times."""
    table, dice = store.table("shop.t"), random.Random(7)
    return lambda: table.write(
        [{"k": dice.randrange(40), "g": dice.randrange(60), "x": dice.randrange(9)} for _ in range(3)]
    )


def read(store: Store, name: str) -> dict[str, int | None]:
    return {table: lag.version for table, lag in store.maintained_view(name).lag().items()}


def assert_one_set(store: Store) -> None:
    seen = read(store, "shop.a")["shop.t"]
    assert seen is not None
    assert read(store, "shop.b")["shop.t"] == read(store, "shop.late")["shop.t"] == seen
    for name in ("shop.torn", "shop.late"):
        assert rows(store.table(name)) == []
        assert store.maintained_view(name).compare() == []


def test_a_round_of_all_views(chain: Store, depth: Depth) -> None:
    write = upserts(chain)
    upkeep = Upkeep(partial(all_views, chain), partial(open_view, chain), lambda: 0.0)
    for _ in range(depth.times(2, deep=12)):
        write()
        for outcome in upkeep.round():
            assert outcome.error is None
            write()
        assert_one_set(chain)


def test_a_refresh_of_named_views(chain: Store, depth: Depth, monkeypatch: pytest.MonkeyPatch) -> None:
    write = upserts(chain)

    def opened(*arguments: object) -> View:
        write()
        return open_view(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(refreshing, "open_view", opened)
    for number in range(depth.times(2, deep=12)):
        chain.refresh("shop.torn", "shop.late")
        assert_one_set(chain)
        view = "shop.late" if number % 2 else "shop.torn"
        chain.refresh("shop.torn" if number % 2 else "shop.late", view, rebuild=True)
        assert_one_set(chain)


@pytest.mark.few(2)
@pytest.mark.parametrize("late", ["shop.a", "shop.b", "shop.torn", "shop.late"])
def test_another_process_that_is_further(chain: Store, depth: Depth, late: str) -> None:
    """A view never goes back to an older version. After the next round all have read the same versions."""
    write = upserts(chain)
    upkeep = Upkeep(partial(all_views, chain), partial(open_view, chain), lambda: 0.0)
    seen: dict[str, int] = {}
    for _ in range(depth.times(2, deep=12)):
        write()
        for outcome in upkeep.round():
            assert outcome.error is None
            if outcome.name == late:
                write()
                chain.refresh("shop.torn", "shop.late")
            now = {f"{name} {table}": at or 0 for name in all_views(chain) for table, at in read(chain, name).items()}
            assert all(now[name] >= at for name, at in seen.items())
            seen = now
    assert [outcome.error for outcome in upkeep.round()] == [None] * 4
    assert_one_set(chain)


def test_a_version_that_expires_meanwhile(chain: Store) -> None:
    """The newest one is read in its place."""
    table, write = chain.table("shop.t"), upserts(chain)
    upkeep = Upkeep(partial(all_views, chain), partial(open_view, chain), lambda: 0.0)
    for outcome in upkeep.round():
        assert outcome.error is None
        for name in ("shop.a", "shop.b", "shop.late"):  # nobody holds what it has read
            chain.maintained_view(name).drop_holds()
        for _ in range(3):
            write()
        table.expire()
    assert [outcome.error for outcome in upkeep.round()] == [None] * 4
    assert_one_set(chain)


def test_a_table_that_is_created_again_meanwhile(chain: Store) -> None:
    """The version of the former table has files that are not there any more."""
    write = upserts(chain)
    write()
    versions = SharedVersions()
    assert chain.maintained_view("shop.a").refresh(versions) is not None
    chain.drop_table("shop.t")
    chain.create_table("shop.t", "k BIGINT, g BIGINT NOT NULL, x BIGINT", primary_key=["k"]).write(
        [{"k": 1, "g": 2, "x": 3}]
    )
    assert chain.maintained_view("shop.b").refresh(versions) is not None
    assert rows(chain.table("shop.b")) == [{"g": 2, "x": 3, "n": 1}]
