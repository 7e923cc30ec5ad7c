"""Defaults: a session's options for new tables, and a table's own start for readers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import tablestore
from filestore.errors import InvalidRequest, Unavailable
from filestore.model.table_options import TableOptions
from tablestore import Store, Table
from tablestore.defaults import table_defaults, with_defaults
from tablestore.following.starting import StartOptions

AT = datetime(2026, 1, 2, tzinfo=UTC)


def make(store: Store, **options: str) -> Table:
    return store.create_table("shop.t", "id BIGINT", primary_key=["id"], options=options)


def test_a_sessions_options_are_those_of_tables_that_do_not_say_otherwise(folder: Path) -> None:
    defaults = {"table-storage.log.retention": "7 d", "table-storage.bucket": "4"}
    with tablestore.connect(str(folder / "w"), options=defaults) as store:
        store.create_database("shop")
        table = make(store, bucket="2")
        assert table.detail()["options"] == {"log.retention": "7 d", "bucket": "2"}
    with tablestore.connect(str(folder / "w")) as store:
        assert store.table("shop.t").detail()["options"] == {"log.retention": "7 d", "bucket": "2"}


def test_default_options_of_views_are_for_views_only() -> None:
    defaults = {"view.removed-events": "keep", "bucket": "2"}
    assert with_defaults(defaults, {"bucket": "3"}, keyed=True) == {"bucket": "3"}
    assert with_defaults(defaults, {"view.query": "SELECT 1"}, keyed=True) == {**defaults, "view.query": "SELECT 1"}
    assert with_defaults(defaults, {"connector": "kafka"}, keyed=True) == {"connector": "kafka"}


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"log.system": "kafka"}, "bad-default"),
        ({"table-storage.log.sistem": "kafka"}, "unknown-option"),
        ({"table-storage.log.retention": "soon"}, "bad-option-value"),
    ],
)
def test_settings_that_are_no_options_are_refused_at_once(settings: dict[str, str], code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        table_defaults(settings)
    assert caught.value.code == code


def test_a_reader_begins_as_it_asks_and_else_as_the_table_says() -> None:
    ms = int(AT.timestamp() * 1000)
    own = TableOptions.parse({"log.scan": "from-timestamp", "log.scan.timestamp-millis": str(ms)})
    later = AT.replace(year=2027)
    assert StartOptions().resolved(TableOptions()) == StartOptions("full")
    assert StartOptions().resolved(own) == StartOptions("from-timestamp", AT)
    assert StartOptions("latest").resolved(own) == StartOptions("latest")
    assert StartOptions(timestamp=later).resolved(own) == StartOptions("from-timestamp", later)
    assert StartOptions(version=3).resolved(own) == StartOptions(version=3)
    assert StartOptions(tag="a").resolved(own) == StartOptions(tag="a")


def test_followers_begin_where_the_table_says(store: Store) -> None:
    table = make(store, **{"log.scan": "latest"})
    table.write(pa.table({"id": [1]}))
    assert list(table.follow(stop=1)) == []
    assert sum(batch.num_rows for batch in table.follow("full", stop=1)) == 1


def test_a_log_that_forgets_before_versions_expire_is_a_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make(store, **{"log.retention": "1 h"})
    assert "shorter than snapshot.time-retained" in caplog.text


def test_nothing_is_left_of_a_table_whose_broker_does_not_answer(store: Store) -> None:
    options = {
        "log.system": "kafka",
        "log.kafka.bootstrap.servers": "127.0.0.1:9",
        "log.kafka.properties.socket.timeout.ms": "200",
    }
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9.*is the broker running"):
        make(store, **options)
    assert store.list_tables("shop") == []
    assert make(store).snapshots()[0].version == 0
