"""Measures streaming queries that read tables, on the driver: Spark's listener reports their progress.

A query's progress has the offsets of its sources; ours say which table the query reads and how far it is.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from filestore.errors import TableStoreError
from filestore.table import FileStore
from tablestore.following.follow_metrics import FollowMeter
from tablestore.following.progress import Progress
from tablestore.spark.streaming.offsets import Offset
from tablestore.table import Table

__all__ = ["StreamMetrics"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A table that queries may read."""

    meter: FollowMeter
    filestore: FileStore


class StreamMetrics(StreamingQueryListener):
    """Measures queries on the tables that it watches. One for a `SparkStore`."""

    def __init__(self) -> None:
        self._tables: dict[str, _Watched] = {}
        self._began_ms: dict[str, int] = {}
        self._progress: dict[tuple[str, str], Progress] = {}

    def watch(self, table: Table) -> None:
        """Measures queries that read this table from now on."""
        opened, identity = table.opened, table.opened.identity
        self._tables[identity.table_id] = _Watched(FollowMeter(opened.meter, identity.identifier), table.filestore)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Notes when the query started."""
        self._began_ms[str(event.runId)] = _milliseconds(event.timestamp)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Counts the rows and versions of a batch that was written."""
        run_id, end_ms = str(event.progress.runId), _milliseconds(event.progress.timestamp) + _duration_ms(event)
        running_ms = end_ms - self._began_ms.get(run_id, end_ms)
        for source in event.progress.sources:
            offset = _offset(source)
            watched = None if offset is None else self._tables.get(offset.table_id)
            if offset is None or watched is None:
                continue
            before = self._progress.get((run_id, offset.table_id), Progress(offset.begin))
            after = replace(before, version=offset.version, rescans=offset.rescans)
            if source.numInputRows:
                after = replace(
                    after,
                    records=before.records + source.numInputRows,
                    first_row_ms=running_ms if before.first_row_ms is None else before.first_row_ms,
                    latency_ms=_latency_ms(watched.filestore, offset, end_ms),
                )
            self._progress[run_id, offset.table_id] = after
            watched.meter.record(before, after, running_ms)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        """A query had nothing to read: nothing is measured."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        """Drops what is known of the query."""
        run_id = str(event.runId)
        self._began_ms.pop(run_id, None)
        for known in [known for known in self._progress if known[0] == run_id]:
            del self._progress[known]


def _offset(source: SourceProgress) -> Offset | None:
    """The end offset of a source of ours; None for other sources."""
    try:
        value: Any = json.loads(source.endOffset or "null")
        return Offset.of(value) if isinstance(value, dict) else None
    except (ValueError, TypeError):
        return None


def _latency_ms(filestore: FileStore, offset: Offset, end_ms: int) -> int | None:
    """Milliseconds since the commit of the newest version that was read; None if its time is not known any more."""
    version = offset.version + 1 if offset.units else offset.version
    try:
        commit = filestore.delta_log.read_entry(version)
    except TableStoreError as error:
        logger.debug("the latency of version %d is not known: %s", version, error)
        return None
    return None if commit is None or commit.timestamp_ms is None else end_ms - commit.timestamp_ms


def _duration_ms(event: QueryProgressEvent) -> int:
    return int(event.progress.batchDuration)


def _milliseconds(timestamp: str) -> int:
    """Converts a time of Spark (ISO 8601 in UTC) to milliseconds since 1970."""
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
