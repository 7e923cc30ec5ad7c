"""The procedures of ``CALL catalog.sys.<name>(…)``: maintenance of tables as statements that return rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from filestore.errors import InvalidRequest
from filestore.life.orphans import MINIMUM_AGE_MS
from filestore.model.snapshot import Snapshot
from tablestore.incoming.moments import in_utc, parsed_moment
from tablestore.spark.sql.delta_detail import COLUMNS, delta_detail
from tablestore.spark.sql.delta_history import COLUMNS as HISTORY
from tablestore.spark.sql.delta_history import delta_history
from tablestore.spark.sql.detail import described, described_partition
from tablestore.spark.sql.partition_argument import partition_argument
from tablestore.spark.sql.procedure import TABLE, Arguments, Parameter, Procedure, Row
from tablestore.spark.sql.streams import UNTIL_NOW, list_streams, start_stream, stop_stream
from tablestore.spark.sql.view_procedures import VIEW_PROCEDURES
from tablestore.spark.store import SparkStore

__all__ = ["PROCEDURES"]


def _committed(snapshot: Snapshot | None) -> list[Row]:
    return [] if snapshot is None else [(snapshot.version, str(snapshot.operation))]


def _compact(store: SparkStore, given: Arguments) -> list[Row]:
    partition = _partition(store, given)
    partitions = None if partition is None else [partition]
    return _committed(store.compact(given["table"], full=given["full"], partitions=partitions))


def _partition(store: SparkStore, given: Arguments) -> dict[str, str | None] | None:
    text = given["partition"]
    return None if text is None else partition_argument(store, given["table"], text)


def _fold(store: SparkStore, given: Arguments) -> list[Row]:
    return _committed(store.fold(given["table"]))


def _expire(store: SparkStore, given: Arguments) -> list[Row]:
    expiry = store.store.table(given["table"]).expire(dry_run=given["dry_run"])
    return [(expiry.first, expiry.versions, len(expiry.files))]


def _orphans(store: SparkStore, given: Arguments) -> list[Row]:
    found = store.store.table(given["table"]).remove_orphans(
        _hours(given, "older_than_hours"), dry_run=given["dry_run"], even_young=given["even_young"]
    )
    return [(file.path, file.kind, file.size) for file in found]


def _vacuum(store: SparkStore, given: Arguments) -> list[Row]:
    """Expires versions, and removes files that no version names; with hours keeps what is younger than these."""
    keep = None if given["retain_hours"] is None else _hours(given, "retain_hours")
    table, dry_run = store.store.table(given["table"]), given["dry_run"]
    expiry = table.expire(dry_run=dry_run, keep=keep or timedelta())
    age = _ORPHANS_AGE if keep is None else max(keep, _YOUNGEST_ORPHANS)
    orphans = table.remove_orphans(age, dry_run=dry_run)
    return [*((path, "expired") for path in expiry.files), *((file.path, file.kind) for file in orphans)]


def _hours(given: Arguments, name: str) -> timedelta:
    """Returns hours before now; so many that this would be before the first year are no time."""
    hours = given[name]
    if not 0 <= hours <= _MOST_HOURS:
        raise InvalidRequest(
            f"{name} is {hours}: give a number of hours from 0 to {_MOST_HOURS}, which is 1000 years", code="bad-hours"
        )
    return timedelta(hours=hours)


def _analyze(store: SparkStore, given: Arguments) -> list[Row]:
    state = store.store.table(given["table"]).filestore.state()
    return [(state.version, state.totals.live_rows, state.totals.size)]


def _as_delta(store: SparkStore, given: Arguments) -> list[Row]:
    return [delta_detail(store.store.table(given["table"]), given["catalog"])]


def _create_tag(store: SparkStore, given: Arguments) -> list[Row]:
    tag = store.store.table(given["table"]).create_tag(given["tag"], given["version"])
    return [(tag.name, tag.version)]


def _delete_tag(store: SparkStore, given: Arguments) -> list[Row]:
    store.store.table(given["table"]).delete_tag(given["tag"])
    return [(given["tag"],)]


def _rollback(store: SparkStore, given: Arguments) -> list[Row]:
    table, version, tag = store.store.table(given["table"]), given["version"], given["tag"]
    if version is None and tag is not None and tag.isdecimal():  # a text as in VERSION AS OF; no tag is a number
        version, tag = int(tag), None
    return _committed(table.rollback(version, timestamp=_moment(given["timestamp"]), tag=tag))


def _doctor(store: SparkStore, given: Arguments) -> list[Row]:
    report = store.examine(given["table"])
    return [(str(f.severity), str(f.code), f.path, f.message) for f in report.findings]


def _reset_consumer(store: SparkStore, given: Arguments) -> list[Row]:
    table, consumer = store.store.table(given["table"]), given["consumer"]
    table.delete_consumer(consumer)
    return [(consumer,)]


def _expire_partitions(store: SparkStore, given: Arguments) -> list[Row]:
    return _committed(store.store.table(given["table"]).expire_partitions())


def _detail(store: SparkStore, given: Arguments) -> Sequence[Row]:
    table, partition = store.store.table(given["table"]), _partition(store, given)
    return described(table) if partition is None else described_partition(table, partition)


def _history(store: SparkStore, given: Arguments) -> list[Row]:
    return [delta_history(version) for version in store.store.table(given["table"]).snapshots(given["limit"])]


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return in_utc(parsed_moment(text))
    except ValueError as error:
        raise InvalidRequest(f"{text!r} is no time: write it like 2026-01-31 12:00:00", code="bad-time") from error


_MOST_HOURS = 1000 * 365 * 24
_ORPHANS_AGE = timedelta(days=1)
_YOUNGEST_ORPHANS = timedelta(milliseconds=MINIMUM_AGE_MS)
_STREAM = "id STRING, name STRING"
_PARTITION = Parameter("partition", "values such as day=2026-01-31,region=eu, or a JSON object", default="NULL")
_VERSION = "version BIGINT, operation STRING"

PROCEDURES: Mapping[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        Procedure(
            "compact",
            "Merges the sorted runs of buckets that have many; returns the version, or nothing if none needed it.",
            (TABLE, Parameter("full", "all buckets", "BOOLEAN", "false"), _PARTITION),
            _VERSION,
            _compact,
        ),
        Procedure("fold", "Merges pending runs (write-mode = merge-on-read).", (TABLE,), _VERSION, _fold),
        Procedure(
            "expire_snapshots",
            "Expires old versions by the table's options, except those that tags and consumers keep.",
            (TABLE, Parameter("dry_run", "only counts", "BOOLEAN", "false")),
            "first_version BIGINT, versions BIGINT, files BIGINT",
            _expire,
        ),
        Procedure(
            "remove_orphans",
            "Removes files that no version names.",
            (
                TABLE,
                Parameter("older_than_hours", "how long ago they were written", "BIGINT", "24"),
                Parameter("dry_run", "only lists them", "BOOLEAN", "true"),
                Parameter("even_young", "also those that are younger than an hour", "BOOLEAN", "false"),
            ),
            "path STRING, kind STRING, bytes BIGINT",
            _orphans,
        ),
        Procedure(
            "vacuum",
            "Expires old versions by the table's options, and removes files that no version names. VACUUM calls it.",
            (
                TABLE,
                Parameter("retain_hours", "versions and files of these hours stay, too", "BIGINT", "NULL"),
                Parameter("dry_run", "only lists the files", "BOOLEAN", "false"),
            ),
            "path STRING, kind STRING",
            _vacuum,
        ),
        Procedure(
            "analyze",
            "Counts the rows by the statistics that each commit has. ANALYZE TABLE calls it; nothing is computed.",
            (TABLE,),
            "version BIGINT, rows BIGINT, bytes BIGINT",
            _analyze,
        ),
        *VIEW_PROCEDURES,
        Procedure(
            "create_tag",
            "Names a version, which then does not expire.",
            (TABLE, Parameter("tag", "the name"), Parameter("version", "null: the newest", "BIGINT", "NULL")),
            "tag STRING, version BIGINT",
            _create_tag,
        ),
        Procedure(
            "delete_tag",
            "Removes a tag, so that its version may expire.",
            (TABLE, Parameter("tag", "the name")),
            "tag STRING",
            _delete_tag,
        ),
        Procedure(
            "rollback",
            "Restores the rows of an older version in a new one. Give one of version, tag and timestamp.",
            (
                TABLE,
                Parameter("version", "a version", "BIGINT", "NULL"),
                Parameter("tag", "a tag", "STRING", "NULL"),
                Parameter("timestamp", "a time in UTC", "STRING", "NULL"),
            ),
            _VERSION,
            _rollback,
        ),
        Procedure(
            "doctor",
            "Checks every invariant of the format; returns what it finds, and nothing for a healthy table.",
            (TABLE,),
            "severity STRING, code STRING, path STRING, message STRING",
            _doctor,
        ),
        Procedure(
            "reset_consumer",
            "Forgets how far a consumer has read, so that it keeps no versions.",
            (TABLE, Parameter("consumer", "its id")),
            "consumer STRING",
            _reset_consumer,
        ),
        Procedure(
            "expire_partitions",
            "Drops partitions that are older than the table's options say.",
            (TABLE,),
            _VERSION,
            _expire_partitions,
        ),
        Procedure(
            "start_stream",
            "Starts a streaming query into a table. INSERT INTO … WITH ('checkpoint' = …) calls it.",
            (
                TABLE,
                Parameter("query", "a SELECT that reads FROM STREAM"),
                Parameter("checkpoint", "the folder of its progress"),
                Parameter(
                    "trigger", f"a time between batches, or {UNTIL_NOW}: ends with what there is", default="'1 second'"
                ),
                Parameter("output_mode", "append, update or complete", default="'append'"),
                Parameter("name", "its name", default="NULL"),
                Parameter("columns", "those that it writes, as a JSON list; null: by their names", default="NULL"),
            ),
            _STREAM,
            start_stream,
        ),
        Procedure(
            "list_streams", "Lists the streaming queries that run.", (), f"{_STREAM}, status STRING", list_streams
        ),
        Procedure(
            "stop_stream",
            "Stops a streaming query; with its checkpoint it can go on later.",
            (Parameter("stream", "its id or name"),),
            _STREAM,
            stop_stream,
        ),
        Procedure(
            "describe_detail",
            "Describes a table as FLIP-188 does: its log, its files, its buckets. DESCRIBE DETAIL EXTENDED calls it.",
            (TABLE, _PARTITION),
            "name STRING, value STRING",
            _detail,
        ),
        Procedure(
            "describe_as_delta",
            "Describes a table in one row with the columns of Delta. DESCRIBE DETAIL calls it.",
            (TABLE,),
            COLUMNS,
            _as_delta,
        ),
        Procedure(
            "describe_history",
            "Lists the versions, the newest first, with the columns of Delta. DESCRIBE HISTORY calls it.",
            (TABLE, Parameter("limit", "how many", "BIGINT", "1000")),
            HISTORY,
            _history,
        ),
    )
}
"""All procedures, by name."""
