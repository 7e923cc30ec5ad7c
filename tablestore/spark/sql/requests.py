"""Opens the table that a request of Java names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from filestore.errors import NotFound, Unsupported
from tablestore.kafka_table import KafkaTable
from tablestore.store import Store
from tablestore.table import Table

__all__ = [
    "OF_SPARK",
    "PROVIDERS",
    "Request",
    "checked_table",
    "managed_table",
    "name_of",
    "same_table",
    "topic_stays",
    "wrong_provider",
]

Request = Mapping[str, Any]
"""A request: ``operation``, and what that needs; its values are plain, as JSON has them."""

OF_SPARK = {"provider", "owner", "external", "is_managed_location", "table_type"}
"""Properties that Spark adds to those of the statement."""
PROVIDERS = ("tablestore", "delta")
"""The formats that a statement may name behind USING."""


def wrong_provider(name: str) -> Unsupported:
    """Returns the error for another format."""
    return Unsupported(f"tables of this catalog are Delta tables: leave USING {name} out", code="provider")


def topic_stays(name: str) -> Unsupported:
    """Returns the error for an overwrite of a topic."""
    return Unsupported(
        f"{name} is a Kafka topic, which cannot be overwritten: INSERT INTO appends messages", code="connector-table"
    )


def name_of(request: Request) -> str:
    """Returns ``database.table``."""
    return f"{request['database']}.{request['table']}"


def checked_table(store: Store, request: Request) -> Table:
    """Opens the managed table that the statement was planned for."""
    table = same_table(store, request)
    return table if isinstance(table, Table) else managed_table(store, name_of(request))


def same_table(store: Store, request: Request) -> Table | KafkaTable:
    """Opens the table that the statement was planned for. Spark may run it later."""
    table = store.any_table(name_of(request))
    known = table.table_id if isinstance(table, KafkaTable) else table.opened.identity.table_id
    if known != request["table_id"]:
        raise NotFound(f"{name_of(request)} was dropped and made again meanwhile: try again", code="table-replaced")
    return table


def managed_table(store: Store, name: str) -> Table:
    """Opens a table that has files and versions; `Unsupported` (``connector-table``) for a Kafka topic."""
    table = store.any_table(name)
    if isinstance(table, KafkaTable):
        raise Unsupported(
            f"{name} is a Kafka topic: it has no files, versions or partitions, and its columns stay as they were "
            "declared",
            code="connector-table",
        )
    return table
