"""Converts our values to Delta actions (JSON objects) and back (FORMAT.md section 2; Delta protocol, "Actions")."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from filestore.decoding import well_formed
from filestore.errors import Unsupported
from filestore.layout import decode_path, encode_path
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import COLUMN_MAPPING, TYPE_WIDENING, TableDefinition
from filestore.model.files import ChangeFile, DataFile, DeletionVector, PendingRun, Slot, Tombstones

__all__ = [
    "CATALOG_COMMITS",
    "FENCES",
    "LOG_BEGINS_DOMAIN",
    "LOG_DOMAIN",
    "LOG_OFFSET_APP",
    "PARTITIONS_PARAMETER",
    "POSITION_APP",
    "RUN_DOMAIN",
    "TOMBSTONES_DOMAIN",
    "Action",
    "add_action",
    "cdc_action",
    "check_protocol",
    "data_file",
    "domain_action",
    "file_key",
    "kept_features",
    "metadata_action",
    "no_domain_action",
    "pending_run",
    "protocol_action",
    "remove_action",
    "run_action",
    "slot_of",
    "tombstones",
    "tombstones_action",
    "txn_action",
]

Action = dict[str, Any]

CHANGE_FEED_PROPERTY = "delta.enableChangeDataFeed"
LOG_DOMAIN = "tablestore.log"
LOG_BEGINS_DOMAIN = "tablestore.log.begins"
LOG_OFFSET_APP = "tablestore.log.offset."
POSITION_APP = "tablestore.position."
RUN_DOMAIN = "tablestore.run."
TOMBSTONES_DOMAIN = "tablestore.tombstones."
PARTITIONS_PARAMETER = "partitions"
BUCKET_TAG = "tablestore.bucket"
LEVEL_TAG = "tablestore.level"
MIN_KEY_TAG = "tablestore.minKey"
MAX_KEY_TAG = "tablestore.maxKey"
EDITION_TAG = "tablestore.edition"
FIRST_EDITION = 1  # its files have no tag
WRITER_FEATURE = "tablestore.primaryKey"
FENCES = "tablestore.fences"
CATALOG_COMMITS = "tablestore.catalogCommits"
_READER_FEATURES = ["deletionVectors", "timestampNtz"]
_WRITER_FEATURES = [
    *_READER_FEATURES,
    "appendOnly",
    "changeDataFeed",
    "domainMetadata",
    "inCommitTimestamp",
    "invariants",
    WRITER_FEATURE,
]
_EVOLUTION_FEATURES = [COLUMN_MAPPING, TYPE_WIDENING]  # of readers and writers; only where the schema needs them
_V2_CHECKPOINT = "v2Checkpoint"  # of readers and writers; only where somebody has switched it on


def protocol_action(features: Collection[str] = (), *, fences: bool = False, catalog_commits: bool = False) -> Action:
    """Returns the ``protocol`` action: reader 3, writer 7, and a writer feature that stops writers that know no keys.

    Args:
        features: Features of readers and writers that changes of the schema, or others, have switched on.
        fences: Whether writers have to respect fences.
        catalog_commits: Whether writers have to claim versions in the catalog's database.
    """
    own = [*([FENCES] if fences else []), *([CATALOG_COMMITS] if catalog_commits else [])]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [*_READER_FEATURES, *sorted(features)],
            "writerFeatures": [*_WRITER_FEATURES, *own, *sorted(features)],
        }
    }


def check_protocol(protocol: Mapping[str, Any]) -> None:
    """Refuses a table of a later Tablestore: `Unsupported` names the feature that this version does not know."""
    ours = [*_WRITER_FEATURES, FENCES, CATALOG_COMMITS]
    for kind, known in (("readerFeatures", _READER_FEATURES), ("writerFeatures", ours)):
        if unknown := sorted(set(protocol.get(kind) or ()) - {*known, *_EVOLUTION_FEATURES, _V2_CHECKPOINT}):
            raise Unsupported(
                f"the table needs the Delta feature {unknown[0]!r}, which this version of Tablestore does not know: "
                "use a later one",
                code="unknown-feature",
            )


def kept_features(protocol: Mapping[str, Any]) -> frozenset[str]:
    """Returns the features of a table's protocol that no definition needs, and that later ones keep all the same."""
    return frozenset({_V2_CHECKPOINT} & set(protocol.get("readerFeatures") or ()))


def metadata_action(definition: TableDefinition, table_id: str, created_ms: int) -> Action:
    """Returns the table's ``metaData`` action."""
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.enableInCommitTimestamps": "true",
        **definition.to_properties(),
    }
    if definition.changelog_producer is not ChangelogProducer.NONE:
        properties[CHANGE_FEED_PROPERTY] = "true"
    metadata: Action = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(definition.schema.to_delta(), separators=(",", ":")),
        "partitionColumns": list(definition.partition_by),
        "configuration": properties,
        "createdTime": created_ms,
    }
    if definition.comment is not None:
        metadata["description"] = definition.comment
    return {"metaData": metadata}


def add_action(file: DataFile, *, data_change: bool) -> Action:
    """Returns the ``add`` action of a file that becomes part of the table, or stays in it with another vector."""
    tags = {BUCKET_TAG: str(file.slot.bucket), LEVEL_TAG: str(file.level)}
    if file.edition > FIRST_EDITION:
        tags[EDITION_TAG] = str(file.edition)
    if file.min_key is not None and file.max_key is not None:
        tags |= {MIN_KEY_TAG: file.min_key, MAX_KEY_TAG: file.max_key}
    stats = json.loads(file.stats) | {"tightBounds": file.vector is None}
    action: Action = {
        "path": encode_path(file.path),
        "partitionValues": dict(file.slot.partition),
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": data_change,
        "stats": json.dumps(stats, separators=(",", ":"), ensure_ascii=False),
        "tags": tags,
    }
    if file.vector is not None:
        action["deletionVector"] = file.vector.to_action()
    return {"add": action}


def remove_action(file: DataFile, deleted_ms: int, *, data_change: bool) -> Action:
    """Returns the ``remove`` action of a file with exactly that vector."""
    action: Action = {
        "path": encode_path(file.path),
        "deletionTimestamp": deleted_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.slot.partition),
        "size": file.size,
        "tags": {BUCKET_TAG: str(file.slot.bucket)},
    }
    if file.vector is not None:
        action["deletionVector"] = file.vector.to_action()
    return {"remove": action}


def cdc_action(file: ChangeFile) -> Action:
    """Returns the ``cdc`` action of a change file. If a version has any, its changes are read only from these files."""
    return {
        "cdc": {
            "path": encode_path(file.path),
            "partitionValues": dict(file.slot.partition),
            "size": file.size,
            "dataChange": False,
            "tags": {BUCKET_TAG: str(file.slot.bucket)},
        }
    }


def txn_action(app_id: str, version: int, now_ms: int) -> Action:
    """Returns the ``txn`` action of an app's own version: a streaming query's batch, or an offset in the log."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}


def domain_action(domain: str, configuration: Mapping[str, Any]) -> Action:
    """Returns the ``domainMetadata`` action that replaces the configuration of a metadata domain."""
    text = json.dumps(configuration, separators=(",", ":"))
    return {"domainMetadata": {"domain": domain, "configuration": text, "removed": False}}


def run_action(run: PendingRun) -> Action:
    """Returns the action that makes a run pending. Each run has its own domain, so a commit writes only changes."""
    own = {"version": run.version, "edition": run.edition}
    return domain_action(RUN_DOMAIN + run.id, {**_run_configuration(run), **own})


def tombstones_action(run: Tombstones) -> Action:
    """Returns the action that makes the table remember deleted keys."""
    return domain_action(TOMBSTONES_DOMAIN + run.id, _run_configuration(run))


def _run_configuration(run: PendingRun | Tombstones) -> dict[str, Any]:
    return {
        "path": run.path,
        "partitionValues": dict(run.slot.partition),
        "bucket": run.slot.bucket,
        "size": run.size,
        "rows": run.rows,
        "modificationTime": run.modified_ms,
        "minKey": run.min_key,
        "maxKey": run.max_key,
    }


def pending_run(configuration: str, partition_by: Sequence[str]) -> PendingRun:
    """Reads the configuration that `run_action` wrote."""
    with well_formed("what the Delta log says of a pending run", code="bad-log-entry"):
        value = json.loads(configuration)
        edition = value.get("edition", FIRST_EDITION)
    return PendingRun(**_read(value, partition_by), version=value["version"], edition=edition)


def tombstones(configuration: str, partition_by: Sequence[str]) -> Tombstones:
    """Reads the configuration that `tombstones_action` wrote."""
    with well_formed("what the Delta log says of tombstones", code="bad-log-entry"):
        return Tombstones(**_read(json.loads(configuration), partition_by), stats="{}")


def _read(value: Mapping[str, Any], partition_by: Sequence[str]) -> dict[str, Any]:
    values = value["partitionValues"]
    return {
        "path": value["path"],
        "slot": Slot(tuple((name, values[name]) for name in partition_by), value["bucket"]),
        "size": value["size"],
        "rows": value["rows"],
        "modified_ms": value["modificationTime"],
        "min_key": value["minKey"],
        "max_key": value["maxKey"],
    }


def no_domain_action(domain: str, former: str) -> Action:
    """Returns the action that removes a metadata domain; Delta's protocol wants its last configuration in it."""
    return {"domainMetadata": {"domain": domain, "configuration": former, "removed": True}}


def file_key(action: Mapping[str, Any]) -> str:
    """Returns the relative path of an add or remove: a version has a file at most once, whatever its vector."""
    return decode_path(action["path"])


def slot_of(action: Mapping[str, Any], partition_by: Sequence[str]) -> Slot:
    """Returns the slot of an add or remove."""
    values = dict(action["partitionValues"])
    return Slot(tuple((name, values[name]) for name in partition_by), int(dict(action["tags"])[BUCKET_TAG]))


def data_file(add: Mapping[str, Any], partition_by: Sequence[str]) -> DataFile:
    """Reads what `add_action` wrote."""
    stats = json.loads(add["stats"])
    stats.pop("tightBounds", None)
    if type(rows := stats["numRecords"]) is not int or rows < 0:
        raise ValueError(f"the statistics of {add['path']} say that it has {rows!r} rows")
    tags = dict(add["tags"])
    return DataFile(
        path=decode_path(add["path"]),
        slot=slot_of(add, partition_by),
        size=add["size"],
        rows=rows,
        modified_ms=add["modificationTime"],
        stats=json.dumps(stats, separators=(",", ":"), ensure_ascii=False),
        level=int(tags[LEVEL_TAG]),
        min_key=tags.get(MIN_KEY_TAG),
        max_key=tags.get(MAX_KEY_TAG),
        vector=DeletionVector.from_action(add.get("deletionVector")),
        edition=int(tags.get(EDITION_TAG, FIRST_EDITION)),
    )
