"""A table as one row with the columns of Delta's ``DESCRIBE DETAIL``, which scripts select by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tablestore.table import Table

__all__ = ["COLUMNS", "delta_detail"]

COLUMNS = (
    "format STRING, id STRING, name STRING, description STRING, location STRING, createdAt TIMESTAMP, "
    "lastModified TIMESTAMP, partitionColumns ARRAY<STRING>, clusteringColumns ARRAY<STRING>, numFiles BIGINT, "
    "sizeInBytes BIGINT, properties MAP<STRING, STRING>, minReaderVersion INT, minWriterVersion INT, "
    "tableFeatures ARRAY<STRING>"
)


def delta_detail(table: Table, catalog: str) -> Sequence[Any]:
    """Returns the values of the columns; times are microseconds since 1970 UTC.

    Args:
        table: The table.
        catalog: The name that the session gives to its catalog.
    """
    state = table.filestore.state()
    definition = state.definition
    protocol = state.protocol
    return [
        "delta",
        state.table_id,
        f"{catalog}.{table.identifier}",
        definition.comment,
        table.location,
        state.created_ms * 1000,
        state.timestamp_ms * 1000,
        list(definition.partition_by),
        [],
        len(state.files),
        state.totals.size,
        definition.options.as_dict(),
        protocol["minReaderVersion"],
        protocol["minWriterVersion"],
        sorted({*protocol["readerFeatures"], *protocol["writerFeatures"]}),
    ]
