"""Tablestore: managed tables with primary keys, kept as plain Delta tables with a log beside them.

    import tablestore
    store = tablestore.connect("warehouse")              # or the URL of a catalog service
    store.create_database("shop", if_not_exists=True)
    orders = store.create_table("shop.orders", "id BIGINT, status STRING", primary_key=["id"])
    orders.write(arrow_table)                            # an upsert; gives a Snapshot
    orders.scan(where="status = 'PAID'").to_polars()
    for changes in orders.follow(): ...                  # the snapshot, then every change, endlessly

For Spark see `tablestore.spark`. Errors are a small tree, grouped by what to do next: see `filestore.errors`.

The purpose of the packages, each line above those that it uses. The modules beside them are the entry points (`store`,
`table`, `kafka_table`), `jars`, which fetches the jars of Spark and brokers, and `neighbours`, which is imported first:

    cli          the command line                       demo         the main job on a year of flights
    metrics      the page of all metrics, /metrics      spark        the same doors in a Spark session
    ingesting    Debezium topics into tables            topics       Kafka tables read: rows, complete changes
    system       what is known of a table, as tables    logcare      where logs stand, and their care
    normalizing  upserts to complete changes            writing      one commit across files and log; rollback
    following    changes, version by version            reading      a version's rows; what the log shows beyond
    recovering   the log put right: the dead, races     incoming     what users pass in, as a table's columns
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import tablestore.neighbours  # noqa: F401  # first: it says so if a file of the user's hides a package used below

# isort: split
from filestore.errors import (
    AlreadyExists,
    CommitUnknown,
    Conflict,
    Corrupt,
    InvalidRequest,
    NotFound,
    TableStoreError,
    Unavailable,
    Unsupported,
)
from filestore.model.rowkind import RowKind
from filestore.model.snapshot import Snapshot

if TYPE_CHECKING:
    from filestore.metrics.registry import Metrics
    from tablestore.ingesting.ingestion import Ingestion, Pace
    from tablestore.kafka_table import KafkaScan, KafkaTable
    from tablestore.normalizing.normalizer import Normalizer
    from tablestore.normalizing.spec import NormalizerSpec
    from tablestore.reading.scan import Scan
    from tablestore.store import Store, connect
    from tablestore.table import Table
    from tablestore.topics.columns import metadata_column

__all__ = [
    "AlreadyExists",
    "CommitUnknown",
    "Conflict",
    "Corrupt",
    "Ingestion",
    "InvalidRequest",
    "KafkaScan",
    "KafkaTable",
    "Metrics",
    "Normalizer",
    "NormalizerSpec",
    "NotFound",
    "Pace",
    "RowKind",
    "Scan",
    "Snapshot",
    "Store",
    "Table",
    "TableStoreError",
    "Unavailable",
    "Unsupported",
    "connect",
    "metadata_column",
]

# The catalog imports SQLAlchemy, Alembic and httpx, which takes a second. Spark's workers do not need it: they import
# this package only to reach `tablestore.writing.writer`.
_LAZY = {
    "Ingestion": "tablestore.ingesting.ingestion",
    "KafkaScan": "tablestore.kafka_table",
    "KafkaTable": "tablestore.kafka_table",
    "Metrics": "filestore.metrics.registry",
    "Normalizer": "tablestore.normalizing.normalizer",
    "NormalizerSpec": "tablestore.normalizing.spec",
    "Pace": "tablestore.ingesting.ingestion",
    "Scan": "tablestore.reading.scan",
    "Store": "tablestore.store",
    "Table": "tablestore.table",
    "connect": "tablestore.store",
    "metadata_column": "tablestore.topics.columns",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """Lists the public names, imported or not."""
    return sorted(__all__)
