"""Tablestore: managed tables with primary keys, kept as plain Delta tables with a log beside them.

    import tablestore
    store = tablestore.connect("warehouse")              # or the URL of a catalog service
    store.create_database("shop", if_not_exists=True)
    orders = store.create_table("shop.orders", "id BIGINT, status STRING", primary_key=["id"])
    orders.write(arrow_table)                            # an upsert; returns a Snapshot
    orders.scan(where="status = 'PAID'").to_polars()
    for changes in orders.follow(): ...                  # the snapshot, then every change, endlessly

For Spark see `tablestore.spark`. Errors are a small tree, grouped by what to do next: see `filestore.errors`.

The modules beside the packages are the entry points (`store` with `store_tables` and `loading`, `table` with `care`,
`kafka_table`), `jars`, which fetches the jars of Spark and of Kafka brokers, and `hidden_packages`, which is imported
first. The packages, each above those that it uses:

    cli          the command line                       demo         the main features on a year of flights
    metrics      the page of all metrics, /metrics      spark        reads and writes tables in a Spark session
    ingesting    writes Debezium topics into tables     topics       reads Kafka tables: rows, complete changes
    system       system tables: metadata and changes    logcare      offsets and recovery of a table's log
    normalizing  converts upserts to complete changes   writing      one commit of files and log; rollback
    following    reads changes, version by version      reading      reads one version, and an eventual log's tail
    recovering   repairs the log after crashes, races   incoming     converts users' rows to a table's columns
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import tablestore.hidden_packages  # noqa: F401  # first: it refuses a user's file that hides one of our packages

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
    from tablestore.reading.results import ReadRows
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
    "ReadRows",
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
    "ReadRows": "tablestore.reading.results",
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
