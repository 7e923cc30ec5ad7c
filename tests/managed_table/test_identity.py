"""The names that a table's identity gives to what belongs to it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from filestore.model.definition import TableDefinition
from filestore.model.schema import Column, Schema
from managed_table.identity import TableIdentity

UUID = "6f1c2f0e-9d3b-4c39-8a53-0c7f0a2d7c11"


def test_the_topic_keeps_its_name_when_the_table_is_renamed() -> None:
    options = {"log.system": "kafka", "log.kafka.bootstrap.servers": "broker:9092"}
    definition = TableDefinition.of(Schema((Column("id", pa.int64(), nullable=False),)), ["id"], options=options)
    table = TableIdentity("shop", "orders", UUID, "s3://lake/shop/orders/")
    for identity in (table, replace(table, name="sales")):
        config = identity.log_config(definition)
        assert config is not None
        assert config.topic == f"shop.orders.{UUID}"
    hidden = replace(table, location="/data/shop/orders-6f1c2f0e")
    config = hidden.log_config(definition)
    assert config is not None
    assert config.topic == f"shop.orders-6f1c2f0e.{UUID}"
