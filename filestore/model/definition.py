"""A table's definition: schema, keys and options, which are checked together (FORMAT.md section 3)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from filestore.errors import Corrupt, InvalidRequest
from filestore.model.bounds import Extent, check_extent
from filestore.model.changelog import ChangelogProducer
from filestore.model.log_mode import LogMode, check_log, log_has_images, log_has_input, log_mode
from filestore.model.merging import MergeEngine, MergeSpec, merge_spec
from filestore.model.names import check_partition_name
from filestore.model.schema import Column, Schema, check_fields
from filestore.model.stray_options import check_stray_options
from filestore.model.table_options import TableOptions
from filestore.model.text import check_text, name_list
from filestore.model.types import is_key_type, to_sql
from filestore.model.watermark import Watermark, watermark_of

__all__ = ["COLUMN_MAPPING", "TYPE_WIDENING", "TableDefinition", "check_definition", "check_view_options"]

PROPERTY_PREFIX = "tablestore."
PRIMARY_KEY_PROPERTY = "tablestore.primary-key"
LAST_ID_PROPERTY = "tablestore.last-column-id"

COLUMN_MAPPING = "columnMapping"
TYPE_WIDENING = "typeWidening"
_FEATURE_PROPERTIES = {
    COLUMN_MAPPING: ("delta.columnMapping.mode", "name"),
    TYPE_WIDENING: ("delta.enableTypeWidening", "true"),
}


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The definition of a managed table. Make it with `TableDefinition.of`, which checks it.

    Attributes:
        schema: All columns, partition columns included.
        primary_key: The key columns, in order; empty for an append table.
        partition_by: The partition columns, in order.
        options: The checked options.
        comment: Free text; None if there is none, never an empty text.
        features: The Delta features that changes of the schema have enabled: `COLUMN_MAPPING`, `TYPE_WIDENING`.
        last_id: The greatest id that a column ever had; None in a table whose schema was never changed.
    """

    schema: Schema
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: TableOptions = TableOptions()
    comment: str | None = None
    features: frozenset[str] = frozenset()
    last_id: int | None = None

    @classmethod
    def of(
        cls,
        schema: Schema,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> TableDefinition:
        """Makes a definition and checks that its parts fit each other.

        Raises:
            InvalidRequest: with a code of ``unknown-column``, ``duplicate-column``, ``nullable-key``, ``key-type``,
                ``key-lacks-partition``, ``key-is-partition``, ``partition-type``, ``bucket-key``, ``sequence-field``,
                ``merge-engine``, ``write-mode``, ``changelog-producer``, ``partition-expiry``,
                ``bad-watermark``, ``maintained-view``, ``bad-text``, or those of `check_fields`, `check_extent`,
                `check_log` and `TableOptions.parse`.
        """
        check_fields(schema)
        _check_texts(options or {}, comment)
        check_extent(Extent.of(schema, options or {}, comment))
        parsed = TableOptions.parse(options or {})
        definition = cls(schema, tuple(primary_key), tuple(partition_by), parsed, comment or None)
        check_definition(definition)
        check_stray_options(definition)
        check_view_options(definition)
        return definition

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return int(self.options["bucket"])

    @property
    def bucket_key(self) -> tuple[str, ...]:
        """The columns whose hash chooses the bucket.

        By default these are the columns of the primary key that are not partition columns (the whole key, if all of
        them are); without a primary key every column whose type can be a key's.
        """
        if given := self.options["bucket-key"]:
            return tuple(given)
        if self.primary_key:
            rest = tuple(c for c in self.primary_key if c not in self.partition_by)
            return rest or self.primary_key
        return tuple(c.name for c in self.schema if is_key_type(c.type) and c.name not in self.partition_by)

    @property
    def is_view(self) -> bool:
        """Returns whether the rows are the result of a query, which only refreshes write (``view.query``)."""
        return self.options["view.query"] is not None

    @property
    def sequence_field(self) -> str | None:
        """The column that orders the rows of a key, if any."""
        return self.options["sequence.field"]  # type: ignore[no-any-return]

    @property
    def watermark(self) -> Watermark | None:
        """The watermark of the table's streams; None without one.

        Raises:
            InvalidRequest: ``bad-watermark``: only while the definition is made.
        """
        return watermark_of(self.options["watermark.column"], self.options["watermark.delay"], self.schema)

    @property
    def merging(self) -> MergeSpec:
        """The rules by which rows of the same key are merged."""
        return merge_spec(self)

    @property
    def merges_values(self) -> bool:
        """Returns whether merged rows depend on the stored ones, so that a commit that lost the race merges again."""
        return self.merging.engine is not MergeEngine.DEDUPLICATE

    @property
    def tombstone_retention_ms(self) -> int:
        """The milliseconds for which deletes are remembered; 0 if they are not, since no sequence shows late rows."""
        if self.sequence_field is None or self.merges_values:
            return 0
        return self.options.milliseconds("sequence.tombstone-retention")

    @property
    def merges_on_read(self) -> bool:
        """Returns whether writes store their rows as pending runs, which a fold merges later."""
        return bool(self.options["write-mode"] == "merge-on-read")

    @property
    def changelog_producer(self) -> ChangelogProducer:
        """The way in which the table produces change data."""
        return ChangelogProducer(self.options["changelog-producer"])

    @property
    def log_mode(self) -> LogMode:
        """The changes that the log contains."""
        return log_mode(self)

    @property
    def logs_images(self) -> bool:
        """Returns whether the log contains the stored rows that a write replaces or deletes."""
        return log_has_images(self)

    @property
    def logs_input(self) -> bool:
        """Returns whether the log contains the rows of a write exactly as they arrived."""
        return log_has_input(self)

    @property
    def compacts_log(self) -> bool:
        """Returns whether the broker may delete a record when a later record of the same key exists."""
        return "compact" in self.options["log.kafka.cleanup.policy"]

    @property
    def sort_key(self) -> tuple[str, ...]:
        """The columns by which a file is sorted: the key without the partition columns, which are constant in it."""
        return tuple(c for c in self.primary_key if c not in self.partition_by)

    def to_properties(self) -> dict[str, str]:
        """Encodes the definition as Delta's ``metaData.configuration``."""
        properties = {PROPERTY_PREFIX + name: value for name, value in self.options.given}
        properties[PRIMARY_KEY_PROPERTY] = json.dumps(list(self.primary_key))
        properties |= dict(_FEATURE_PROPERTIES[feature] for feature in sorted(self.features))
        if self.last_id is not None:
            properties[LAST_ID_PROPERTY] = str(self.last_id)
            if COLUMN_MAPPING in self.features:
                properties["delta.columnMapping.maxColumnId"] = str(self.last_id)
        return properties

    @classmethod
    def from_delta(cls, metadata: Mapping[str, Any]) -> TableDefinition:
        """Reads Delta's ``metaData`` action; raises `Corrupt` if the table was not created by Tablestore."""
        properties: dict[str, str] = dict(metadata["configuration"])
        key = properties.pop(PRIMARY_KEY_PROPERTY, None)
        if key is None:
            raise Corrupt(
                f"Delta table {metadata.get('id')} has no property {PRIMARY_KEY_PROPERTY!r}: "
                "Tablestore did not create it",
                code="not-a-managed-table",
            )
        last_id = properties.pop(LAST_ID_PROPERTY, None)
        options = {
            name.removeprefix(PROPERTY_PREFIX): value
            for name, value in properties.items()
            if name.startswith(PROPERTY_PREFIX)
        }
        return cls(
            Schema.from_delta(json.loads(metadata["schemaString"])),
            tuple(json.loads(key)),
            tuple(metadata["partitionColumns"]),
            TableOptions(tuple(sorted(options.items()))),
            metadata.get("description") or None,
            frozenset(f for f, (name, value) in _FEATURE_PROPERTIES.items() if properties.get(name) == value),
            None if last_id is None else int(last_id),
        )


def check_definition(definition: TableDefinition) -> None:
    """Checks that columns, key, partition columns and options fit each other; raises as `TableDefinition.of`."""
    _check_columns(definition)
    _check_options(definition)


def _check_texts(options: Mapping[str, str], comment: str | None) -> None:
    for name, value in options.items():
        check_text(f"option name {name!r}", name)
        check_text(f"option {name!r}", str(value))
    check_text("the table's comment", comment or "")


def _check_partition_column(column: Column) -> None:
    check_partition_name(column.name)
    if not is_key_type(column.type) or pa.types.is_binary(column.type):
        raise InvalidRequest(
            f"partition column {column.name!r} is {to_sql(column.type)}: use a string, integer, boolean, decimal, "
            "date or timestamp",
            code="partition-type",
        )


def _check_columns(definition: TableDefinition) -> None:
    for role, names in (
        ("primary key", definition.primary_key),
        ("partition", definition.partition_by),
    ):
        if len(set(names)) < len(names):
            raise InvalidRequest(f"the {role} {list(names)} names a column twice", code="duplicate-column")
        for name in names:
            _known(definition.schema, name, role)
    for name in definition.primary_key:
        _check_key_column(definition.schema.column(name))
    for name in definition.partition_by:
        _check_partition_column(definition.schema.column(name))
    if len(definition.partition_by) == len(definition.schema.columns):
        raise InvalidRequest("every column is a partition column: leave at least one", code="partition-type")
    missing = [c for c in definition.partition_by if c not in definition.primary_key]
    if definition.primary_key and missing:
        raise InvalidRequest(
            f"the primary key {list(definition.primary_key)} lacks the partition column {missing[0]!r}, so one key "
            f"could be in two partitions: add {missing[0]!r} to the primary key or partition by key columns only",
            code="key-lacks-partition",
        )
    if definition.primary_key and not definition.sort_key:
        raise InvalidRequest(
            f"every column of the primary key {list(definition.primary_key)} is a partition column, so a partition "
            "would hold one row: partition by fewer columns",
            code="key-is-partition",
        )


def _check_key_column(column: Column) -> None:
    if column.nullable:
        raise InvalidRequest(
            f"primary key column {column.name!r} is nullable: declare it NOT NULL "
            f"(SQL: `{column.name} {to_sql(column.type)} NOT NULL`; Arrow: nullable=False)",
            code="nullable-key",
        )
    if not is_key_type(column.type):
        raise InvalidRequest(
            f"primary key column {column.name!r} is {to_sql(column.type)}, which has no exact equality and order: "
            "use a string, binary, integer, boolean, decimal, date or timestamp",
            code="key-type",
        )


def _known(schema: Schema, name: str, role: str) -> None:
    if name not in schema:
        raise InvalidRequest(
            f"{role} column {name!r} is not in the schema; its columns are {name_list(schema.names)}",
            code="unknown-column",
        )


def _check_expiry(definition: TableDefinition) -> None:
    given = [name for name, _ in definition.options.given if name.startswith("partition.")]
    if given and not definition.partition_by:
        raise InvalidRequest(
            f"{given[0]} needs a table with partitions: set partition_by, or leave it out", code="partition-expiry"
        )
    pattern = definition.options["partition.timestamp-pattern"]
    for name in pattern.columns if pattern else ():
        if name not in definition.partition_by:
            raise InvalidRequest(
                f"partition.timestamp-pattern names {name!r}, which is not a partition column; those are "
                f"{', '.join(definition.partition_by)}",
                code="partition-expiry",
            )


def _check_options(definition: TableDefinition) -> None:
    options = definition.options
    for name in options["bucket-key"] or ():
        _known(definition.schema, name, "bucket-key")
        if not is_key_type(definition.schema.column(name).type):
            raise InvalidRequest(
                f"bucket-key column {name!r} has a type that cannot be hashed exactly", code="bucket-key"
            )
        if definition.primary_key and name not in definition.primary_key:
            raise InvalidRequest(
                f"bucket-key column {name!r} is not in the primary key {list(definition.primary_key)}, so one key "
                "could be in two buckets: use columns of the primary key",
                code="bucket-key",
            )
    if not definition.bucket_key and definition.buckets > 1:
        raise InvalidRequest(
            "no column can choose the bucket (all are nested or floating): use bucket = 1", code="bucket-key"
        )
    sequence = definition.sequence_field
    if sequence is not None:
        _known(definition.schema, sequence, "sequence.field")
        if not definition.primary_key or pa.types.is_nested(definition.schema.column(sequence).type):
            raise InvalidRequest(
                f"sequence.field {sequence!r} needs a table with a primary key and a column that can be ordered",
                code="sequence-field",
            )
        if sequence in definition.primary_key:
            raise InvalidRequest(
                f"sequence.field {sequence!r} is in the primary key, so it is equal in all rows of a key: use another "
                "column",
                code="sequence-field",
            )
    merge_spec(definition)
    if definition.merges_on_read:
        _check_merge_on_read(definition)
    _check_changelog(definition)
    _check_expiry(definition)
    _check_retention(definition)
    _ = definition.watermark  # raises if it does not fit
    check_log(definition)
    if definition.is_view:
        _check_view(definition)


def _check_view(definition: TableDefinition) -> None:
    """Each write of a view has to replace rows as they are: the rows are the result of its query."""
    options = definition.options
    others = {
        "merge-engine": options["merge-engine"] != "deduplicate",
        "sequence.field": definition.sequence_field is not None,
        "ignore-delete": options["ignore-delete"],
        "changelog-producer": options["changelog-producer"] == "input",
        "write-mode": definition.merges_on_read,
    }
    if wrong := [name for name, is_other in others.items() if is_other]:
        raise InvalidRequest(
            f"{wrong[0]} = {options[wrong[0]]} does not fit a maintained view, whose rows are exactly the result of "
            "its query: leave it out",
            code="maintained-view",
        )
    if not definition.primary_key and options["view.engine"] == "tablestore":
        raise InvalidRequest("a table with view.query needs a primary key", code="maintained-view")
    if definition.primary_key and options["view.engine"] == "lookup":
        raise InvalidRequest("a view to which events are added has no primary key", code="maintained-view")


def check_view_options(definition: TableDefinition, known: Collection[str] = ()) -> None:
    """Refuses options of maintained views for a table that is none, where they have no effect.

    Args:
        definition: The table's definition.
        known: The options that the table had before the change: older versions accepted them on every table.

    Raises:
        InvalidRequest: ``maintained-view``.
    """
    stray = [name for name, _ in definition.options.given if name.startswith("view.") and name not in known]
    if stray and not definition.is_view:
        raise InvalidRequest(
            f"option {stray[0]!r} is for maintained views, and a table without view.query is none: leave it out",
            code="maintained-view",
        )


def _check_merge_on_read(definition: TableDefinition) -> None:
    if not definition.primary_key:
        raise InvalidRequest(
            "write-mode = merge-on-read needs a primary key: without one there is nothing to merge", code="write-mode"
        )
    if definition.options["log.system"] != "none" and (definition.merges_values or definition.sequence_field):
        what = f"merge-engine = {definition.merging.engine}" if definition.merges_values else "sequence.field"
        raise InvalidRequest(
            f"write-mode = merge-on-read with {what} needs log.system = none: the merged row is known only when it is "
            "folded, but the log needs it when the row is written; or use write-mode = merge-on-write",
            code="write-mode",
        )


def _check_changelog(definition: TableDefinition) -> None:
    at_compactions = definition.changelog_producer is ChangelogProducer.FULL_COMPACTION
    if at_compactions and not definition.merges_on_read:
        raise InvalidRequest(
            "changelog-producer = full-compaction needs write-mode = merge-on-read: with merge-on-write each commit "
            "changes the rows at once, and compactions do not; use changelog-producer = lookup",
            code="changelog-producer",
        )
    for name in ("full-compaction.delta-commits", "changelog-producer.compaction-interval"):
        if name in definition.options.as_dict() and not at_compactions:
            raise InvalidRequest(
                f"option {name!r} says when changelog-producer = full-compaction writes its changes, and the table has "
                f"changelog-producer = {definition.changelog_producer}: leave it out",
                code="changelog-producer",
            )


def _check_retention(definition: TableDefinition) -> None:
    least, most = (definition.options[f"snapshot.num-retained.{end}"] for end in ("min", "max"))
    if most is not None and most < least:
        raise InvalidRequest(
            f"snapshot.num-retained.max = {most} is below snapshot.num-retained.min = {least}: raise it, or lower the "
            "other",
            code="bad-option-value",
        )
