"""Reads ``SELECT … FROM t CHANGES FROM VERSION a TO VERSION b``: changes, as in Delta's change data feed.

A table with a changelog-producer has that feed. For another one the changes are those of its system table audit_log.
Net changes are those of the system table changes, whatever was written in between. Spark's own takes the first and the
last change of a key, and never compares their rows: it shows a row that is as it was, and where a log has no rows
before an update it takes the update of a row for an insert, and its delete for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from filestore.model.rowkind import RowKind
from filestore.model.schema import Schema
from filestore.retention.rules import first_retained, tag_of
from tablestore.spark.sql.columns import schema_to_spark
from tablestore.spark.store import SparkStore
from tablestore.system.changes import KIND
from tablestore.table import Table

__all__ = ["described_changes", "read_changes"]

_TYPES = {
    str(RowKind.INSERT): "insert",
    str(RowKind.UPDATE_BEFORE): "update_preimage",
    str(RowKind.UPDATE_AFTER): "update_postimage",
    str(RowKind.DELETE): "delete",
}
"""The names of Spark's and Delta's change data for our kinds."""
_WITHOUT_UPDATES = _TYPES | {str(RowKind.UPDATE_BEFORE): "delete", str(RowKind.UPDATE_AFTER): "insert"}


def described_changes(table: Table, request: Mapping[str, Any]) -> dict[str, Any]:
    """Describes the changes that a statement asks for.

    Args:
        table: The table.
        request: ``start`` and perhaps ``end``, each with ``version`` (a number or a tag) or ``microseconds``, and
            ``inclusive``. Without ``start`` all changes that are left. ``net`` and ``updates``, as for `read_changes`.

    Raises:
        InvalidRequest: ``bad-versions``: the end is before the start.
        NotFound: there is no such version or tag.
    """
    state = table.filestore.state()
    start, end, net = request.get("start"), request.get("end"), bool(request.get("net"))
    first = _first(table, start) if start is not None else _first_of_all(table, state, net=net)
    last = None if end is None else _last(table, end)
    if last is not None and last < first - 1:
        raise InvalidRequest(
            f"the changes would end with version {last}, before their start {first}", code="bad-versions"
        )
    key = state.definition.primary_key
    columns = [field.with_nullable(field.name not in key) for field in state.definition.schema.to_arrow()]
    return {
        "table_id": table.opened.identity.table_id,
        "schema": schema_to_spark(Schema.from_arrow(pa.schema(columns))),
        "primary_key": list(key),
        "first": first,
        "last": last,
        "net": net,
        "updates": bool(request.get("updates")),
    }


def _first_of_all(table: Table, state: TableState, *, net: bool) -> int:
    """The first version whose changes are left; for net changes, the first whose rows before it are left."""
    return max(1, 1 + (first_retained(state) if net else table.filestore.delta_log.oldest().version))


def _first(table: Table, bound: Mapping[str, Any]) -> int:
    if "microseconds" not in bound:
        return max(1, _version(table, bound["version"]) + (0 if bound["inclusive"] else 1))
    return _newest_before(table, bound["microseconds"], and_then=not bound["inclusive"]) + 1


def _last(table: Table, bound: Mapping[str, Any]) -> int:
    if "microseconds" not in bound:
        return _version(table, bound["version"]) - (0 if bound["inclusive"] else 1)
    return _newest_before(table, bound["microseconds"], and_then=bound["inclusive"])


def _newest_before(table: Table, microseconds: int, *, and_then: bool) -> int:
    """The newest version before a time, or also of that time; it may be in the future. 0 before the first version."""
    end_ms = microseconds // 1000 + 1 if and_then else -(-microseconds // 1000)  # commits have whole milliseconds
    newest = table.filestore.state()
    return newest.version if newest.timestamp_ms < end_ms else table.filestore.delta_log.version_before(end_ms)


def _version(table: Table, given: str) -> int:
    state = table.filestore.state()
    version = int(given) if given.isdigit() else tag_of(state, given).version
    if version > state.version:
        raise NotFound(f"there is no version {version} yet: the newest is {state.version}", code="no-such-version")
    return version


def read_changes(
    store: SparkStore, name: str, first: int, last: int | None, *, net: bool = False, updates: bool = False
) -> DataFrame:
    """Reads the changes of some versions, the first and the last one included; up to the newest one if `last` is None.

    The columns are those of the table, ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

    Args:
        store: The store.
        name: The table.
        first: The first version.
        last: The last version.
        net: Only what differs between the rows before the first version and those of the last, whatever was
            written in between. They have the last version as that of their commit.
        updates: Whether a row that differs is an update then, or a delete and an insert.

    Raises:
        NotFound: ``snapshot-expired``: net changes need the version before the first.
        InvalidRequest: ``other-columns``: a column of the first or last version has another name now, or is gone.
    """
    table = store.store.table(name)
    state = table.filestore.state()
    newest = state.version if last is None else last
    if net:
        return _net_changes(store, table, first - 1, max(newest, first - 1), _TYPES if updates else _WITHOUT_UPDATES)
    if state.definition.changelog_producer is not ChangelogProducer.NONE and first <= newest:
        _refuse_other_names(table, state.definition, {first, newest})
        reader = store.spark.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", first).option("endingVersion", newest).load(table.location)
    log = store.read(f"{name}$audit_log", from_version=first - 1, to_version=max(newest, first - 1))
    return log.select(*_named(log, table, _TYPES), "_commit_version", "_commit_timestamp")


def _refuse_other_names(table: Table, now: TableDefinition, versions: Set[int]) -> None:
    """Refuses changes with columns that have another name now, or are gone: Delta does not read such a feed."""
    for version in sorted(versions):
        for name in table.filestore.state(version).definition.schema.names:
            if name not in now.schema:
                raise InvalidRequest(
                    f"column {name} of version {version} has another name now, or is gone, and changes have the "
                    "columns of the newest version: begin behind that ALTER TABLE, or read WITH (deduplicationMode = "
                    "'netChanges')",
                    code="other-columns",
                )


def _net_changes(store: SparkStore, table: Table, before: int, after: int, types: Mapping[str, str]) -> DataFrame:
    rows = store.read(f"{table.identifier}$changes", from_version=before, to_version=after)
    if not table.definition.primary_key:
        rows = _without_equal(rows)
    moment = F.lit(table.filestore.snapshot(after).timestamp).alias("_commit_timestamp")
    return rows.select(*_named(rows, table, types), F.lit(after).cast("long").alias("_commit_version"), moment)


def _without_equal(rows: DataFrame) -> DataFrame:
    """Leaves out as many deletes as inserts of equal rows: without a key nothing else says which rows stayed.

    Rows are equal bit by bit, as where the table compares them. Spark takes -0.0 for 0.0, so their texts are compared,
    too.
    """
    row = F.struct(*(rows[quoted(name)] for name in rows.columns if name != KIND))
    inserts = F.sum(F.when(rows[KIND] == str(RowKind.INSERT), 1).otherwise(-1))
    counted = rows.groupBy(row.alias("_value"), row.cast("string").alias("_key")).agg(
        inserts.alias("_number"), F.first(row).alias("_row")
    )
    kind = F.when(F.col("_number") > 0, str(RowKind.INSERT)).otherwise(str(RowKind.DELETE))
    left = counted.where("_number <> 0").withColumn(KIND, F.explode(F.array_repeat(kind, F.abs("_number").cast("int"))))
    return left.select(KIND, "_row.*")


def _named(rows: DataFrame, table: Table, types: Mapping[str, str]) -> list[Column]:
    """Returns the columns of the table, and the type of each change."""
    kinds = F.create_map([F.lit(text) for pair in types.items() for text in pair])
    columns = [rows[quoted(column)] for column in table.definition.schema.names]
    return [*columns, kinds[rows[KIND]].alias("_change_type")]
