"""System tables that are read from the Delta log: pure functions from a version or commits to rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pyarrow as pa

from compaction.choice import sorted_runs
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.life.partition_expiry import partition_ages
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Partition, PendingRun, Slot
from filestore.model.snapshot import Snapshot
from filestore.model.types import to_sql
from filestore.secrets import shown

__all__ = ["OF_A_VERSION", "OF_HISTORY", "TAG_DOMAIN", "schemas_of", "snapshots_of"]

TAG_DOMAIN = "tablestore.tag."

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS, _TIME = pa.map_(pa.string(), pa.string()), pa.timestamp("us", tz="UTC")
_FIELD = pa.struct([("name", pa.string()), ("type", pa.string()), ("nullable", pa.bool_()), ("comment", pa.string())])
_COUNTS = [
    ("record_count", pa.int64()),
    ("live_record_count", pa.int64()),
    ("file_size_in_bytes", pa.int64()),
    ("file_count", pa.int64()),
    ("last_update_time", _TIME),
    ("pending_run_count", pa.int64()),
    ("pending_record_count", pa.int64()),
    ("pending_size_in_bytes", pa.int64()),
]
_SNAPSHOTS = pa.schema(
    [
        ("version", pa.int64()),
        ("commit_time", _TIME),
        ("operation", pa.string()),
        ("commit_id", pa.string()),
        ("log_offsets", pa.map_(pa.int32(), pa.int64())),
        ("metrics", pa.map_(pa.string(), pa.int64())),
    ]
)
_SCHEMAS = pa.schema(
    [
        ("version", pa.int64()),
        ("update_time", _TIME),
        ("fields", pa.list_(_FIELD)),
        ("partition_keys", pa.list_(pa.string())),
        ("primary_keys", pa.list_(pa.string())),
        ("options", _TEXTS),
        ("comment", pa.string()),
    ]
)
_OPTIONS = pa.schema([("key", pa.string()), ("value", pa.string())])
_TAGS = pa.schema([("tag_name", pa.string()), ("version", pa.int64()), ("commit_time", _TIME), ("create_time", _TIME)])
_PARTITIONS = pa.schema([("partition", _TEXTS), *_COUNTS, ("expiration_time", _TIME)])
_BUCKETS = pa.schema(
    [
        ("partition", _TEXTS),
        ("bucket", pa.int32()),
        *_COUNTS,
        ("levels", pa.list_(pa.int32())),
        ("sorted_runs", pa.int32()),
    ]
)
_FILES = pa.schema(
    [
        ("partition", _TEXTS),
        ("bucket", pa.int32()),
        ("file_path", pa.string()),
        ("level", pa.int32()),
        ("record_count", pa.int64()),
        ("live_record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("stats", pa.string()),
        ("creation_time", _TIME),
        ("pending", pa.bool_()),
    ]
)
_ROWS = 10_000

OF_HISTORY: Mapping[str, pa.Schema] = {"snapshots": _SNAPSHOTS, "schemas": _SCHEMAS}
"""The system tables that are read from all versions, with their columns."""


def snapshots_of(history: Iterable[Snapshot]) -> Iterator[pa.Table]:
    """Makes the table ``snapshots``."""
    return _tables(
        _SNAPSHOTS,
        (
            {
                "version": s.version,
                "commit_time": s.timestamp,
                "operation": str(s.operation),
                "commit_id": s.commit_id,
                "log_offsets": s.log_offsets,
                "metrics": s.metrics,
            }
            for s in history
        ),
    )


def schemas_of(first: TableState, later: Iterable[Commit]) -> Iterator[pa.Table]:
    """Makes the table ``schemas``: the definition of the oldest version that exists, and each later one."""
    return _tables(_SCHEMAS, _schema_rows(first, later))


def _schema_rows(first: TableState, later: Iterable[Commit]) -> Iterator[dict[str, Any]]:
    yield _schema_row(first.version, first.timestamp_ms, first.definition)
    for commit in later:
        for action in commit.actions:
            if "metaData" in action:
                yield _schema_row(commit.version, commit.timestamp_ms, TableDefinition.from_delta(action["metaData"]))


def _schema_row(version: int, timestamp_ms: int | None, definition: TableDefinition) -> dict[str, Any]:
    return {
        "version": version,
        "update_time": None if timestamp_ms is None else _time(timestamp_ms),
        "fields": [
            {"name": c.name, "type": to_sql(c.type), "nullable": c.nullable, "comment": c.comment}
            for c in definition.schema.columns
        ],
        "partition_keys": definition.partition_by,
        "primary_keys": definition.primary_key,
        "options": shown(definition.options.as_dict()),
        "comment": definition.comment,
    }


def _options(state: TableState) -> Iterator[dict[str, Any]]:
    return ({"key": key, "value": value} for key, value in shown(dict(state.definition.options.given)).items())


def _tags(state: TableState) -> Iterator[dict[str, Any]]:
    for domain, text in sorted(state.domains.items()):
        if domain.startswith(TAG_DOMAIN):
            tag = json.loads(text)
            yield {
                "tag_name": domain.removeprefix(TAG_DOMAIN),
                "version": tag["version"],
                "commit_time": _time(tag["timestamp"]),
                "create_time": _time(tag["created"]),
            }


def _partitions(state: TableState) -> Iterator[dict[str, Any]]:
    held: dict[Partition, tuple[list[DataFile], list[PendingRun]]] = {}
    for slot, (files, runs) in _held(state).items():
        some = held.setdefault(slot.partition, ([], []))
        some[0].extend(files)
        some[1].extend(runs)
    ages = partition_ages(state)
    for partition, some in sorted(held.items(), key=lambda item: _null_first(item[0])):
        yield {"partition": partition, **_counts(*some), "expiration_time": ages[partition].expires}


def _buckets(state: TableState) -> Iterator[dict[str, Any]]:
    definition = state.definition
    held = sorted(_held(state).items(), key=lambda item: (_null_first(item[0].partition), item[0].bucket))
    for slot, (files, runs) in held:
        yield {
            "partition": slot.partition,
            "bucket": slot.bucket,
            **_counts(files, runs),
            "levels": sorted({file.level for file in files}),
            "sorted_runs": len(sorted_runs(files, definition)) if definition.primary_key else None,
        }


def _held(state: TableState) -> dict[Slot, tuple[tuple[DataFile, ...], tuple[PendingRun, ...]]]:
    """The files and pending runs of each slot."""
    held = {slot: (tuple(some.values()), state.pending.of(slot)) for slot, some in state.files.items()}
    return held | {slot: (state.files.of(slot), state.pending.of(slot)) for slot in state.pending.slots}


def _files(state: TableState) -> Iterator[dict[str, Any]]:
    held: Iterable[DataFile | PendingRun] = chain(state.files, state.pending)
    for file in sorted(held, key=lambda file: file.path):
        own = file if isinstance(file, DataFile) else None
        yield {
            "partition": file.slot.partition,
            "bucket": file.slot.bucket,
            "file_path": file.path,
            "level": own and own.level,
            "record_count": file.rows,
            "live_record_count": own and own.live_rows,
            "file_size_in_bytes": file.size,
            "min_key": file.min_key,
            "max_key": file.max_key,
            "stats": own and own.stats,
            "creation_time": _time(file.modified_ms),
            "pending": own is None,
        }


def _with_schema(
    schema: pa.Schema, rows: Callable[[TableState], Iterator[dict[str, Any]]]
) -> tuple[pa.Schema, Callable[[TableState], Iterator[pa.Table]]]:
    return schema, lambda state: _tables(schema, rows(state))


OF_A_VERSION: Mapping[str, tuple[pa.Schema, Callable[[TableState], Iterator[pa.Table]]]] = {
    "options": _with_schema(_OPTIONS, _options),
    "tags": _with_schema(_TAGS, _tags),
    "partitions": _with_schema(_PARTITIONS, _partitions),
    "buckets": _with_schema(_BUCKETS, _buckets),
    "files": _with_schema(_FILES, _files),
}
"""The system tables that are read from one version: their columns, and their rows."""


def _counts(files: Sequence[DataFile], runs: Sequence[PendingRun]) -> dict[str, Any]:
    held: Iterable[DataFile | PendingRun] = (*files, *runs)
    return {
        "record_count": sum(file.rows for file in files),
        "live_record_count": sum(file.live_rows for file in files),
        "file_size_in_bytes": sum(file.size for file in files),
        "file_count": len(files),
        "last_update_time": _time(max(file.modified_ms for file in held)),
        "pending_run_count": len(runs),
        "pending_record_count": sum(run.rows for run in runs),
        "pending_size_in_bytes": sum(run.size for run in runs),
    }


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def _null_first(partition: Partition) -> list[tuple[bool, str]]:
    return [(value is not None, value or "") for _, value in partition]


def _tables(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.Table]:
    """Makes tables of at most `_ROWS` rows from rows of metadata, which are few."""
    held: list[Mapping[str, Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == _ROWS:
            yield _table(schema, held)
            held = []
    if held:
        yield _table(schema, held)


def _table(schema: pa.Schema, rows: list[Mapping[str, Any]]) -> pa.Table:
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_map(field.type):
            values = [list(value.items()) if isinstance(value, Mapping) else list(value) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)
