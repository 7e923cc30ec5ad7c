"""Views that a process computes without Spark: what is read, what is left to Spark, and who may refresh them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from filestore.errors import InvalidRequest, Unsupported
from tablestore import Store, Table
from tablestore.views.sql.view_settings import other_values
from tablestore.views.view import View

SUMS = "SELECT kind, count(*) AS n, sum(amount) AS total FROM shop.orders WHERE kind IS NOT NULL GROUP BY kind"


@pytest.fixture
def orders(store: Store) -> Table:
    table = store.create_table(
        "shop.orders", "id BIGINT NOT NULL, kind STRING, amount BIGINT, tags ARRAY<STRING>", primary_key=["id"]
    )
    table.write([{"id": n, "kind": "ab"[n % 2], "amount": n, "tags": ["x"]} for n in range(10)])
    return table


def _view(store: Store, query: str = SUMS, **options: str) -> View:
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    view = store.create_materialized_view("shop.v", query, options=given)
    return view


def _stored(view: View) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in view.table.scan().to_arrow().to_pylist())


def test_a_column_that_is_only_summed_is_one_that_changes(store: Store, orders: Table) -> None:
    """Rows whose group stays were none that have changed."""
    view = _view(store)
    view.refresh()
    orders.write([{"id": 0, "kind": "a", "amount": 100, "tags": None}])
    view.refresh()
    assert _stored(view) == [("a", 5, 120), ("b", 5, 25)]
    assert view.compare() == []


def test_columns_that_are_not_read_do_not_count(store: Store, orders: Table) -> None:
    view = _view(store)
    view.refresh()
    before = view.table.filestore.state()
    orders.write([{"id": 1, "kind": "b", "amount": 1, "tags": ["y", "z"]}])
    view.refresh()
    assert {file.path for file in view.table.filestore.state().files} == {file.path for file in before.files}
    assert view.lag()["shop.orders"].behind == 0


def test_a_group_that_is_gone_is_deleted(store: Store, orders: Table) -> None:
    view = _view(store)
    view.refresh()
    orders.write([{"id": n, "_kind": "-D"} for n in range(0, 10, 2)])
    view.refresh()
    assert _stored(view) == [("b", 5, 25)]


def test_with_more_rows_than_there_is_room_for_spark_is_needed(store: Store, orders: Table) -> None:
    view = _view(store, view__local_memory="100 b")
    with pytest.raises(
        Unsupported, match=r"would read 0.0\d+ MB of rows at once, and view.local-memory is 0.0001 MB"
    ) as caught:
        view.refresh()
    assert caught.value.code == "needs-spark"
    view.table.alter("SET view.local-memory = '1 mb'")
    assert view.refresh() is not None
    orders.write([{"id": 3, "kind": "c", "amount": 1, "tags": None}])
    assert view.refresh() is not None


def test_rows_are_counted_as_they_are_read(store: Store, orders: Table) -> None:
    """Metadata does not say how long texts are."""
    orders.write([{"id": n, "kind": "k" * 100_000 + str(n % 3), "amount": 1, "tags": None} for n in range(50)])
    view = _view(store, view__local_memory="1 mb")
    with pytest.raises(Unsupported, match=r"view.local-memory is 1.05 MB"):
        view.refresh()
    assert _stored(view) == []


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT id, upper(kind) AS kind FROM shop.orders", r"it has upper\(kind\)"),
        ("SELECT id, tags FROM shop.orders", "its column tags has the type list"),
    ],
)
def test_what_is_not_known_here_is_refused_at_creation(store: Store, orders: Table, query: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why) as caught:
        _view(store, query)
    assert caught.value.code == "needs-spark"
    assert store.list_tables("shop") == [orders.identifier.split(".")[1]]


def test_a_name_that_no_table_has_is_no_query_for_spark(store: Store, orders: Table) -> None:
    """The error said that Spark computes such rows."""
    with pytest.raises(
        InvalidRequest, match="the query cannot be computed: nobody in it is no column of its tables"
    ) as caught:
        _view(store, "SELECT id, nobody FROM shop.orders")
    assert caught.value.code == "view-query"


def test_a_column_that_is_gone_makes_a_view_outdated(store: Store, orders: Table) -> None:
    view = _view(store, "SELECT id, amount FROM shop.orders")
    view.refresh()
    orders.alter("RENAME COLUMN amount TO price")
    with pytest.raises(InvalidRequest, match="amount in it is no column of its tables") as caught:
        view.refresh()
    assert caught.value.code == "view-outdated"
    orders.alter("RENAME COLUMN price TO amount")
    assert view.refresh() is not None


def test_a_view_of_spark_that_this_process_knows_is_refreshed_here(store: Store, orders: Table) -> None:
    """The table has no mark of who computes its rows."""
    view = _view(store)
    options = view.table.definition.options
    assert (options["view.engine"], options["view.local-memory"]) == ("spark", 256 << 20)
    assert store.maintained_view("shop.v").refresh() is not None


def test_settings_by_which_values_may_differ_are_for_spark(store: Store, orders: Table) -> None:
    options = {"view.setting.spark.sql.ansi.enabled": "false"}
    with pytest.raises(Unsupported, match=r"it runs with spark.sql.ansi.enabled = false"):
        store.create_materialized_view("shop.v", SUMS, options=options)


def test_a_value_that_is_none_fails_as_in_spark(store: Store, orders: Table) -> None:
    view = _view(store, "SELECT kind, sum(amount * amount) AS t FROM shop.orders WHERE kind IS NOT NULL GROUP BY kind")
    view.refresh()
    orders.write([{"id": 1, "kind": "b", "amount": 2**62, "tags": None}])
    with pytest.raises(Unsupported, match="Overflow in multiplication"):
        view.refresh()
    assert view.lag()["shop.orders"].behind == 1
    orders.write([{"id": 1, "kind": "b", "amount": 2, "tags": None}])
    view.refresh()
    assert view.compare() == []


def test_a_key_that_two_rows_have(store: Store, orders: Table) -> None:
    view = store.create_materialized_view(
        "shop.v", "SELECT amount, kind FROM shop.orders WHERE kind IS NOT NULL", primary_key=["amount"]
    )
    view.refresh()
    orders.write([{"id": 20, "kind": "a", "amount": 3, "tags": None}])
    with pytest.raises(InvalidRequest, match=r"two rows have the key {'amount': 3}") as caught:
        view.refresh()
    assert caught.value.code == "repeated-key"


def test_views_of_views_are_refreshed_in_their_order(store: Store, orders: Table) -> None:
    _view(store)
    query = "SELECT n, count(*) AS groups FROM shop.v WHERE n IS NOT NULL GROUP BY n"
    store.create_materialized_view("shop.w", query)
    assert [view.table.identifier for view, _ in store.refresh("shop.w")] == ["shop.v", "shop.w"]
    orders.write([{"id": 30, "kind": "c", "amount": 3, "tags": None}])
    store.refresh("shop.w")
    assert store.maintained_view("shop.w").compare() == []


def test_a_column_that_a_table_gets_does_not_count(store: Store, orders: Table) -> None:
    """The earlier version, whose groups are found, lacks it."""
    inner = "SELECT amount % 3 + 1 AS g, count(*) AS n FROM shop.orders GROUP BY amount % 3 + 1"
    view = _view(store, f"SELECT g, sum(n) AS total FROM ({inner}) AS s WHERE g IS NOT NULL GROUP BY g")
    view.refresh()
    orders.alter("ADD COLUMN more STRING")
    orders.write([{"id": 1, "kind": "a", "amount": 2, "tags": None, "more": "x"}])
    done = view.refresh()
    assert done is not None
    assert not done.whole
    assert view.compare() == []


def test_no_jvm_is_started(store: Store, orders: Table) -> None:
    _view(store)
    program = (
        "import sys, tablestore\n"
        f"with tablestore.connect({store.target!r}) as store:\n"
        "    [(view, done)] = store.refresh('shop.v')\n"
        "    assert done.version == 1 and not {'pyspark', 'py4j'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("setting", "has_effect"),
    [
        ("spark.sql.binaryOutputStyle = UTF-8", False),
        ("spark.sql.session.timeZone = Asia/Tokyo", False),
        ("spark.sql.ansi.enabled = false", True),
        ("spark.sql.legacy.timeParserPolicy = LEGACY", True),
    ],
)
def test_settings_without_effect_need_no_spark(setting: str, has_effect: bool) -> None:
    """The spark-sql shell sets how BINARY is shown, so that all views that were created there needed Spark."""
    name, _, value = setting.partition(" = ")
    assert other_values({name: value, "spark.sql.session.timeZone": "UTC"}) == (setting if has_effect else None)
