"""``CALL catalog.sys.<name>(…)``: what keeps tables in order, as statements that return rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.snapshot import Snapshot
from tablestore.incoming.moments import in_utc
from tablestore.spark.sql.detail import described
from tablestore.spark.store import SparkStore

__all__ = ["PROCEDURES", "Parameter", "Procedure", "run_procedure"]

Row = Sequence[Any]
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        name: Its name.
        comment: What it says.
        type: Its type, as SQL spells it.
        default: Its default as SQL; None if it has to be given.
    """

    name: str
    comment: str
    type: str = "STRING"
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure.

    Attributes:
        name: Its name.
        comment: What it does.
        parameters: Its parameters, in the order of positional arguments.
        columns: The columns of its rows, as SQL spells them. Types are STRING, BIGINT, BOOLEAN and
            TIMESTAMP, whose values are microseconds since 1970 UTC.
        run: Does it.
    """

    name: str
    comment: str
    parameters: tuple[Parameter, ...]
    columns: str
    run: Callable[[SparkStore, Arguments], Iterable[Row]]

    def described(self) -> dict[str, Any]:
        """Describes it for Java."""
        return {
            "name": self.name,
            "description": self.comment,
            "parameters": [
                {"name": p.name, "type": p.type, "comment": p.comment}
                | ({} if p.default is None else {"default": p.default})
                for p in self.parameters
            ],
        }


def run_procedure(store: SparkStore, procedure: Procedure, arguments: Arguments) -> dict[str, Any]:
    """Runs a procedure, and returns the columns and the rows of its answer."""
    missing = [p.name for p in procedure.parameters if p.default is None and arguments.get(p.name) is None]
    if missing:
        raise InvalidRequest(f"{procedure.name} needs {', '.join(missing)}, which is null", code="null-argument")
    rows = procedure.run(store, arguments)
    return {"schema": procedure.columns, "rows": [list(row) for row in rows]}


def _committed(snapshot: Snapshot | None) -> list[Row]:
    return [] if snapshot is None else [(snapshot.version, str(snapshot.operation))]


def _compact(store: SparkStore, given: Arguments) -> list[Row]:
    return _committed(store.compact(given["table"], full=given["full"]))


def _fold(store: SparkStore, given: Arguments) -> list[Row]:
    return _committed(store.fold(given["table"]))


def _expire(store: SparkStore, given: Arguments) -> list[Row]:
    expiry = store.store.managed_table(given["table"]).expire(dry_run=given["dry_run"])
    return [(expiry.first, expiry.versions, len(expiry.files))]


def _orphans(store: SparkStore, given: Arguments) -> list[Row]:
    found = store.store.managed_table(given["table"]).remove_orphans(
        timedelta(hours=given["older_than_hours"]), dry_run=given["dry_run"]
    )
    return [(file.path, file.kind, file.size) for file in found]


def _create_tag(store: SparkStore, given: Arguments) -> list[Row]:
    tag = store.store.managed_table(given["table"]).create_tag(given["tag"], given["version"])
    return [(tag.name, tag.version)]


def _delete_tag(store: SparkStore, given: Arguments) -> list[Row]:
    store.store.managed_table(given["table"]).delete_tag(given["tag"])
    return [(given["tag"],)]


def _rollback(store: SparkStore, given: Arguments) -> list[Row]:
    table = store.store.managed_table(given["table"])
    return _committed(table.rollback(given["version"], timestamp=_moment(given["timestamp"]), tag=given["tag"]))


def _doctor(store: SparkStore, given: Arguments) -> list[Row]:
    report = store.store.managed_table(given["table"]).examine()
    return [(str(f.severity), str(f.code), f.path, f.message) for f in report.findings]


def _reset_consumer(store: SparkStore, given: Arguments) -> list[Row]:
    table, consumer = store.store.managed_table(given["table"]), given["consumer"]
    table.delete_consumer(consumer)
    return [(consumer,)]


def _expire_partitions(store: SparkStore, given: Arguments) -> list[Row]:
    return _committed(store.store.managed_table(given["table"]).expire_partitions())


def _detail(store: SparkStore, given: Arguments) -> Sequence[Row]:
    return described(store.store.managed_table(given["table"]))


def _history(store: SparkStore, given: Arguments) -> list[Row]:
    snapshots = store.store.managed_table(given["table"]).snapshots(given["limit"])
    return [(s.version, _microseconds(s.timestamp), str(s.operation), s.commit_id) for s in snapshots]


def _microseconds(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return in_utc(datetime.fromisoformat(text))
    except ValueError as error:
        raise InvalidRequest(f"{text!r} is no time: write it like 2026-01-31 12:00:00", code="bad-time") from error


_TABLE = Parameter("table", "database.table")
_VERSION = "version BIGINT, operation STRING"

PROCEDURES: Mapping[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        Procedure(
            "compact",
            "Merges the sorted runs of buckets that have many; returns the version, or nothing if none needed it.",
            (_TABLE, Parameter("full", "all buckets", "BOOLEAN", "false")),
            _VERSION,
            _compact,
        ),
        Procedure("fold", "Merges pending runs (write-mode = merge-on-read).", (_TABLE,), _VERSION, _fold),
        Procedure(
            "expire_snapshots",
            "Expires old versions by the table's options, except those that tags and consumers keep.",
            (_TABLE, Parameter("dry_run", "only counts", "BOOLEAN", "false")),
            "first_version BIGINT, versions BIGINT, files BIGINT",
            _expire,
        ),
        Procedure(
            "remove_orphans",
            "Removes files that no version names.",
            (
                _TABLE,
                Parameter("older_than_hours", "how long ago they were written", "BIGINT", "24"),
                Parameter("dry_run", "only lists them", "BOOLEAN", "true"),
            ),
            "path STRING, kind STRING, bytes BIGINT",
            _orphans,
        ),
        Procedure(
            "create_tag",
            "Names a version, which then does not expire.",
            (_TABLE, Parameter("tag", "the name"), Parameter("version", "null: the newest", "BIGINT", "NULL")),
            "tag STRING, version BIGINT",
            _create_tag,
        ),
        Procedure(
            "delete_tag",
            "Removes a tag, so that its version may expire.",
            (_TABLE, Parameter("tag", "the name")),
            "tag STRING",
            _delete_tag,
        ),
        Procedure(
            "rollback",
            "Restores the rows of an older version in a new one. Give one of version, tag and timestamp.",
            (
                _TABLE,
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
            (_TABLE,),
            "severity STRING, code STRING, path STRING, message STRING",
            _doctor,
        ),
        Procedure(
            "reset_consumer",
            "Forgets how far a consumer has read, so that it keeps no versions.",
            (_TABLE, Parameter("consumer", "its id")),
            "consumer STRING",
            _reset_consumer,
        ),
        Procedure(
            "expire_partitions",
            "Drops partitions that are older than the table's options say.",
            (_TABLE,),
            _VERSION,
            _expire_partitions,
        ),
        Procedure(
            "describe_detail",
            "Describes a table as FLIP-188 does: its log, its files, its buckets. DESCRIBE DETAIL calls it.",
            (_TABLE,),
            "name STRING, value STRING",
            _detail,
        ),
        Procedure(
            "describe_history",
            "Lists the versions, the newest first. DESCRIBE HISTORY calls it.",
            (_TABLE, Parameter("limit", "how many", "BIGINT", "1000")),
            "version BIGINT, timestamp TIMESTAMP, operation STRING, commit_id STRING",
            _history,
        ),
    )
}
"""All procedures, by name."""
