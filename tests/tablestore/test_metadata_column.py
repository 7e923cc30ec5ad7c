"""Metadata columns as Arrow fields; managed tables refuse them."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tablestore
from filestore.errors import InvalidRequest
from filestore.model.sql import parse_table_columns
from filestore.model.table_columns import TableColumns
from tablestore import Store


def test_fields_say_what_sql_says() -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            tablestore.metadata_column("at", "TIMESTAMP_LTZ(3)", "timestamp"),
            tablestore.metadata_column("offset", pa.int64(), virtual=True, nullable=False, comment="where"),
            tablestore.metadata_column("headers", pa.map_(pa.string(), pa.large_binary())),
        ]
    )
    assert TableColumns.from_arrow(schema) == parse_table_columns(
        "id BIGINT, at TIMESTAMP METADATA FROM 'timestamp', "
        "offset BIGINT NOT NULL METADATA VIRTUAL COMMENT 'where', headers MAP<STRING, BINARY> METADATA"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"name": ""}, "bad-column-name", "empty"),
        ({"name": "_Kind"}, "bad-column-name", "'_Kind'"),
        ({"name": 7}, "bad-argument", "the argument name is 7 (type int); pass a text"),
        ({"key": ""}, "metadata-key", "the metadata key ''"),
        ({"key": 7}, "bad-argument", "the argument key is 7"),
        ({"comment": 7}, "bad-argument", "the argument comment is 7"),
        ({"type": "TIME"}, "unsupported-type", "'at' has type TIME"),
        ({"type": "INT METADATA"}, "unsupported-type", "is not a type"),
        ({"type": pa.time32("s")}, "unsupported-type", "column 'at'"),
        ({"type": int}, "bad-argument", "the argument type is"),
    ],
)
def test_nonsense_is_refused(arguments: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tablestore.metadata_column(**{"name": "at", "type": "INT", **arguments})
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_managed_table_refuses_them_and_nothing_is_made(store: Store) -> None:
    at = tablestore.metadata_column("at", "TIMESTAMP", "timestamp")
    for schema in ("id BIGINT, at TIMESTAMP METADATA FROM 'timestamp'", pa.schema([("id", pa.int64()), at])):
        with pytest.raises(InvalidRequest, match="connector = kafka or upsert-kafka") as caught:
            store.create_table("shop.orders", schema, primary_key=["id"])
        assert caught.value.code == "metadata-column"
    assert store.list_tables("shop") == []
    orders = store.create_table("shop.orders", "id BIGINT, metadata STRING", primary_key=["id"])
    with pytest.raises(InvalidRequest, match="column 'at' is declared METADATA"):
        orders.alter("ADD COLUMN at TIMESTAMP METADATA FROM 'timestamp' VIRTUAL")
    with pytest.raises(InvalidRequest, match="is not a type"):
        orders.alter("ALTER COLUMN id TYPE BIGINT METADATA")
    orders.write(pl.DataFrame({"id": [1], "metadata": ["m"]}))
    assert orders.scan().to_arrow().to_pylist() == [{"id": 1, "metadata": "m"}]
