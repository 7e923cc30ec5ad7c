"""Spark's processes took a table's name from the path that the user wrote.

Names are stored in lower case, and a topic's name has them in it: a stream of ``Shop.Orders`` looked for a topic
``Shop.Orders.<id>``, which is not there.
"""

from __future__ import annotations

from filestore.ambient import system_ambient
from filestore.model.definition import TableDefinition
from filestore.model.sql import parse_columns
from filestore.storage.local import LocalStorage
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore.spark.opened import identity_options, opened


def test_a_topic_is_named_as_the_catalog_names_the_table() -> None:
    options = {"log.system": "kafka", "log.kafka.bootstrap.servers": "broker:9092"}
    definition = TableDefinition.of(parse_columns("id BIGINT", ["id"]), ["id"], [], options)
    table = TableIdentity("shop", "orders", "0b0f6b52-6f0c-4d3e-9f0e-2f0a1c1d7a55", "/warehouse/shop/orders")
    for path in ("Shop.Orders", "SHOP.ORDERS$files"):
        found = opened({"path": path, **identity_options(OpenedTable(table, LocalStorage(), system_ambient()))})
        assert found.identity == table
        config = found.log_config(definition)
        assert config is not None
        assert config.topic == f"shop.orders.{table.table_id}"
