"""Writes checkpoints: all live actions of a version as one Parquet file (FORMAT.md section 2; Delta, "Checkpoints")."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from filestore import layout
from filestore.delta.actions import Action
from filestore.delta.adds import ADD
from filestore.delta.checkpoint_files import CheckpointFiles
from filestore.delta.columns import ColumnFiles
from filestore.delta.log import DeltaLog
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, Conflict, Corrupt, NotFound, Unsupported
from filestore.parquet.whole import parquet_bytes

__all__ = ["checkpoint_bytes", "is_due", "write_checkpoint"]

logger = logging.getLogger(__name__)

_GROUP_ROWS = 20_000
_MANY_ACTIONS = 1_000
_MANY_ENTRIES = 100
_WORTH = 10

_LIST, _MAP = pa.list_(pa.string()), pa.map_(pa.string(), pa.string())
_FORMAT = pa.struct({"provider": pa.string(), "options": _MAP})
_OTHERS = {
    "protocol": pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": _LIST,
            "writerFeatures": _LIST,
        }
    ),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "name": pa.string(),
            "description": pa.string(),
            "format": _FORMAT,
            "schemaString": pa.string(),
            "partitionColumns": _LIST,
            "configuration": _MAP,
            "createdTime": pa.int64(),
        }
    ),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
}
_OF_ADD = {
    "path": pa.string(),
    "partitionValues": _MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": _MAP,
    "deletionVector": pa.struct(
        {
            "storageType": pa.string(),
            "pathOrInlineDv": pa.string(),
            "offset": pa.int32(),
            "sizeInBytes": pa.int32(),
            "cardinality": pa.int64(),
        }
    ),
}
_SCHEMA = pa.schema({**_OTHERS, "add": pa.struct(_OF_ADD)})
_REPEATED = [  # the columns of which dictionaries are worth their time
    "add.partitionValues.key_value.key",
    "add.partitionValues.key_value.value",
    "add.tags.key_value.key",
    "add.tags.key_value.value",
    "add.deletionVector.storageType",
]


def is_due(state: TableState) -> bool:
    """Returns whether a version should have a checkpoint. Pure.

    Readers replay the entries since the last one. So it is due when these have a tenth as many actions as the version
    has files, and are as many as ``checkpoint.interval`` says or have many actions; and after 100 entries in any case.
    The cost of all checkpoints is in proportion to that of the commits.
    """
    entries, actions = state.version - state.replayed.since, state.replayed.actions
    interval = state.definition.options["checkpoint.interval"]
    if entries >= max(_MANY_ENTRIES, interval):
        return True
    return _WORTH * actions >= len(state.files) and (entries >= interval or actions >= _MANY_ACTIONS)


def checkpoint_bytes(state: TableState, files: ColumnFiles) -> tuple[bytes, int]:
    """Returns the checkpoint of a version, and its number of actions. Pure.

    Files that have been removed are not in it: readers do not need them, and only we remove files from storage.

    Args:
        state: The version.
        files: Its files.
    """
    others = pa.Table.from_pylist(_others(state), _SCHEMA)
    return parquet_bytes(others, _live(files), dictionaries=_REPEATED), len(others) + files.count


def _live(files: ColumnFiles) -> Iterator[pa.Table]:
    for some in files.batches(_GROUP_ROWS):
        members = {field.name: pc.struct_field(some, field.name) for field in ADD}
        members["dataChange"] = pa.repeat(pa.scalar(False), len(some))
        rows = pa.StructArray.from_arrays([members[name].cast(kind) for name, kind in _OF_ADD.items()], list(_OF_ADD))
        yield pa.Table.from_arrays([*(pa.nulls(len(some), kind) for kind in _OTHERS.values()), rows], schema=_SCHEMA)


def _others(state: TableState) -> Sequence[Mapping[str, Action]]:
    return [
        {"protocol": state.protocol},
        {"metaData": state.metadata},
        *({"txn": {"appId": app, "version": version}} for app, version in state.app_versions.items()),
        *(
            {"domainMetadata": {"domain": domain, "configuration": text, "removed": False}}
            for domain, text in state.domains.items()
        ),
    ]


def write_checkpoint(log: DeltaLog, state: TableState) -> ColumnFiles | None:
    """Writes the checkpoint of a version, unless there is one, and names it as the last one.

    Other tables may have been at this place, and may be: a checkpoint of one of them would be a wrong table for every
    reader. So one that is there already is compared, and whether the version is still this table's is asked before and
    after the write.

    Returns:
        The version's files as columns; None if a newer checkpoint is there, or the version is gone.

    Raises:
        Corrupt: the entry of the version is damaged.
        Unavailable: the storage failed.
    """
    last = log.last_checkpoint() or 0
    if last > state.version and log.timestamp_ms(last) is None:
        last = 0  # a former table's
    newer = last > state.replayed.since and not is_due(state.with_checkpoint(last))
    if newer or not _is_of(log, state):
        return None
    return _written(log, state)


def _written(log: DeltaLog, state: TableState) -> ColumnFiles | None:
    files = ColumnFiles.of(state.files, state.definition.partition_by)
    data, actions = checkpoint_bytes(state, files)
    path = layout.join(log.location, layout.checkpoint_path(state.version))
    _write(log, state, path, data)
    if not _is_of(log, state):
        _take_back(log, state.version, {path: data})
        return None
    last_one = {"version": state.version, "size": actions, "sizeInBytes": len(data), "numOfAddFiles": files.count}
    last_path, hint = layout.join(log.location, layout.LAST_CHECKPOINT), json.dumps(last_one).encode()
    log.storage.replace(last_path, hint)
    if not _is_of(log, state):
        _take_back(log, state.version, {last_path: hint, path: data})
        return None
    if not log.storage.exists(path):  # a late writer has taken it for its own one, and saw no hint
        _write(log, state, path, data)
    return files


def _is_of(log: DeltaLog, state: TableState) -> bool:
    """Returns whether the version is there, and is of the same table as before."""
    return log.timestamp_ms(state.version) == state.timestamp_ms


def _write(log: DeltaLog, state: TableState, path: str, data: bytes) -> None:
    try:
        log.storage.write_new(path, data)
    except AlreadyExists:
        tag, name = _tag(log, path), path.rpartition("/")[2]  # the tag before what it marks is looked at
        try:
            if log.read_checkpoint(CheckpointFiles(state.version, (name,))).table_id == state.table_id:
                return  # another process has written it
        except (Corrupt, NotFound, Unsupported) as error:
            logger.warning("a checkpoint of %s is replaced: %s", log.location, error)
        if not _is_of(log, state):
            return  # it is that of the table which is there now
        if tag is None:
            log.storage.replace(path, data)
            return
        with suppress(Conflict):  # that table was made, and wrote its own one, since then
            log.storage.replace_tagged(path, data, tag)


def _tag(log: DeltaLog, path: str) -> str | None:
    """Returns the tag of a file; None if the storage has none, or the file is gone."""
    try:
        return log.storage.read_tagged(path).tag
    except (NotFound, Unsupported):
        return None


def _take_back(log: DeltaLog, version: int, written: Mapping[str, bytes]) -> None:
    """Removes what was written where the table is not any more. What another table has written there stays.

    IMPORTANT: if that comes between two of our requests, it is removed, too, and delta-rs refuses a table whose hint
    names what is not there. So the checkpoint of the table that is there now is written once more then.
    """
    for path, data in written.items():
        if log.storage.read_each([path]) == [data]:
            log.storage.delete(path)
    if log.last_checkpoint() != version or version in log.checkpoints():
        return
    try:
        state = log.replayed(version)
    except (Corrupt, NotFound, Unsupported):
        return  # there is no such table
    _written(log, state)
