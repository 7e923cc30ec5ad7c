"""Reads ``SELECT … FROM t CHANGES FROM VERSION a TO VERSION b``: changes, as in Delta's change data feed.

A table with a changelog-producer has that feed. For another one the changes are those of its system table audit_log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.errors import InvalidRequest, NotFound
from filestore.model.changelog import ChangelogProducer
from filestore.model.rowkind import RowKind
from filestore.model.schema import Schema
from filestore.model.types import quoted
from filestore.retention.rules import tag_of
from tablestore.spark.sql.columns import schema_to_spark
from tablestore.spark.store import SparkStore
from tablestore.table import Table

__all__ = ["described_changes", "read_changes"]

_TYPES: Mapping[str, str] = {
    str(RowKind.INSERT): "insert",
    str(RowKind.UPDATE_BEFORE): "update_preimage",
    str(RowKind.UPDATE_AFTER): "update_postimage",
    str(RowKind.DELETE): "delete",
}
"""The names of Spark's and Delta's change data for our kinds."""


def described_changes(table: Table, request: Mapping[str, Any]) -> dict[str, Any]:
    """Describes the changes that a statement asks for.

    Args:
        table: The table.
        request: ``start`` and perhaps ``end``, each with ``version`` (a number or a tag) or ``microseconds``, and
            ``inclusive``. Without ``start`` all changes that are left.

    Raises:
        InvalidRequest: ``bad-versions``: the end is before the start.
        NotFound: there is no such version or tag.
    """
    state = table.filestore.state()
    start, end = request.get("start"), request.get("end")
    first = _first(table, start) if start is not None else max(1, table.filestore.delta_log.oldest().version + 1)
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
    }


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


def read_changes(store: SparkStore, name: str, first: int, last: int | None) -> DataFrame:
    """Reads the changes of some versions, the first and the last one included; up to the newest one if `last` is None.

    The columns are those of the table, ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.
    """
    table = store.store.managed_table(name)
    newest = table.filestore.state().version if last is None else last
    if table.definition.changelog_producer is not ChangelogProducer.NONE and first <= newest:
        reader = store.spark.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", first).option("endingVersion", newest).load(table.location)
    log = store.read(f"{name}$audit_log", from_version=first - 1, to_version=max(newest, first - 1))
    kinds = F.create_map([F.lit(text) for pair in _TYPES.items() for text in pair])
    columns = [log[quoted(column)] for column in table.definition.schema.names]
    return log.select(*columns, kinds[log["rowkind"]].alias("_change_type"), "_commit_version", "_commit_timestamp")
