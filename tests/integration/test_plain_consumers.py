"""What a consumer holds that keeps the last value of each key, when two writers race: README's table of promises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from filestore.ambient import system_ambient
from log.table.systems import open_log
from tablestore import Store, Table
from tests.integration.test_eventual_log import between, delete, on, put
from tests.log.table.foreign import foreign_values
from tests.servers.kafka import KafkaBroker
from tests.warehouses import rows

pytestmark = pytest.mark.kafka

AGREE = {
    "compacted": {"log.kafka.cleanup.policy": "compact"},
    "complete": {"changelog-producer": "lookup"},
    "merging": {"merge-engine": "partial-update"},
    "eventual": {"log.consistency": "eventual"},
}


def raced(store: Store, broker: KafkaBroker, options: dict[str, str]) -> Table:
    """Two writers of the same keys: the one whose records come first commits last."""
    options = {"log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap} | options
    table = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, 1, 2, 3, 4)

    def early() -> None:
        put(on(table), 1, 2, name="early")
        delete(on(table), 3)

    put(between(table, early), 1, 3, 4, name="late")
    return table


def messages(table: Table) -> list[dict[str, Any]]:
    config = table.opened.log_config()
    assert config is not None
    table.recover()
    with open_log(config, system_ambient()) as log:
        return foreign_values(config, log.end_offsets(), "read_committed")


def last_by_key(values: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    held = {}
    for value in values:
        row = value["after"] or value["before"]
        held[row["id"]] = value["after"]
    return [row for _, row in sorted(held.items()) if row is not None]


@pytest.mark.few(1)
@pytest.mark.parametrize("options", list(AGREE.values()), ids=list(AGREE))
def test_the_last_value_of_a_key_is_the_tables(
    store: Store, kafka_broker: KafkaBroker, options: dict[str, str]
) -> None:
    table = raced(store, kafka_broker, options)
    assert last_by_key(messages(table)) == rows(table)


def test_by_default_it_is_so_in_the_order_of_commits(store: Store, kafka_broker: KafkaBroker) -> None:
    """The order of the topic is not that of commits; the table's history has it, by commit id."""
    table = raced(store, kafka_broker, {})
    found, version = messages(table), {s.commit_id: s.version for s in table.snapshots()}
    assert {row["id"]: row["name"] for row in rows(table)} == {1: "late", 2: "early", 3: "late", 4: "late"}
    assert last_by_key(found) != rows(table), "the topic's own order is the table's: say so in README"
    assert last_by_key(sorted(found, key=lambda value: version[value["source"]["commit"]])) == rows(table)
