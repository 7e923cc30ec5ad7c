"""Runs ``CALL catalog.sys.<name>(…)``: maintenance of tables as statements that return rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from filestore.errors import AlreadyExists, CommitUnknown, Conflict, InvalidRequest
from filestore.model.snapshot import Snapshot
from tablestore.incoming.moments import in_utc
from tablestore.spark.sql.detail import described, described_partition
from tablestore.spark.sql.listing import listed
from tablestore.spark.sql.streams import UNTIL_NOW, list_streams, start_stream, stop_stream
from tablestore.spark.store import SparkStore
from tablestore.views.creation import drop_view
from tablestore.views.maintained import MaintainedJoin
from tablestore.views.maintained_query import MaintainedQuery
from tablestore.views.statement import Place
from tablestore.views.view_creation import MaterializedView
from tablestore.writing.overwrite import parse_spec

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

    def _signature(self) -> str:
        """Returns how it is called: DESCRIBE PROCEDURE shows nothing of parameters itself."""
        parameters = (f"{p.name} {p.type}{'' if p.default is None else f' => {p.default}'}" for p in self.parameters)
        return f"{self.name}({', '.join(parameters)}) returns {self.columns}"

    def described(self) -> dict[str, Any]:
        """Describes it for Java."""
        return {
            "name": self.name,
            "description": f"{self.comment} {self._signature()}",
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


def _tables(store: SparkStore, given: Arguments) -> Iterable[Row]:
    return listed(store.store, given["catalog"], given["database"], given["pattern"])


def _compact(store: SparkStore, given: Arguments) -> list[Row]:
    partitions = None if given["partition"] is None else [parse_spec(given["partition"])]
    return _committed(store.compact(given["table"], full=given["full"], partitions=partitions))


def _fold(store: SparkStore, given: Arguments) -> list[Row]:
    return _committed(store.fold(given["table"]))


def _expire(store: SparkStore, given: Arguments) -> list[Row]:
    expiry = store.store.managed_table(given["table"]).expire(dry_run=given["dry_run"])
    return [(expiry.first, expiry.versions, len(expiry.files))]


def _orphans(store: SparkStore, given: Arguments) -> list[Row]:
    found = store.store.managed_table(given["table"]).remove_orphans(
        timedelta(hours=given["older_than_hours"]), dry_run=given["dry_run"], even_young=given["even_young"]
    )
    return [(file.path, file.kind, file.size) for file in found]


def _asked(given: Arguments) -> MaterializedView:
    name = given["table"]
    return MaterializedView(
        name,
        given["query"],
        Place(given["catalog"], given["database"] or name.partition(".")[0]),
        json.loads(given["options"]),
        given["comment"],
        tuple(json.loads(given["primary_key"])),
    )


def _create_view(store: SparkStore, given: Arguments) -> list[Row]:
    name = given["table"]
    try:
        view = store.create_materialized_view(_asked(given))
    except AlreadyExists:
        if not given["if_not_exists"]:
            raise
        return []
    try:
        done = view.refresh()
    except (Conflict, CommitUnknown):
        raise  # somebody has refreshed it, or perhaps this statement
    except BaseException:
        drop_view(store.store, name, if_exists=True)
        raise
    return [] if done is None else [_refreshed(view, done)]


def _explain_view(store: SparkStore, given: Arguments) -> list[Row]:
    return [(line,) for line in store.explain_view(None if given["query"] is None else _asked(given), given["table"])]


def _drop_view(store: SparkStore, given: Arguments) -> list[Row]:
    drop_view(store.store, given["table"], if_exists=given["if_exists"])
    return []


def _refresh(store: SparkStore, given: Arguments) -> list[Row]:
    return [_refreshed(view, done) for view, done in store.refresh(given["table"], rebuild=given["rebuild"])]


def _refreshed(view: MaintainedJoin | MaintainedQuery, done: Any) -> Row:
    """Returns the row of a refresh: the view, its version, the versions of its tables, and whether it was whole."""
    versions = ", ".join(f"{table} {version}" for table, version in view.read_by(done))
    return view.table.identifier, done.version, versions, done.whole


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
    report = store.examine(given["table"])
    return [(str(f.severity), str(f.code), f.path, f.message) for f in report.findings]


def _reset_consumer(store: SparkStore, given: Arguments) -> list[Row]:
    table, consumer = store.store.managed_table(given["table"]), given["consumer"]
    table.delete_consumer(consumer)
    return [(consumer,)]


def _expire_partitions(store: SparkStore, given: Arguments) -> list[Row]:
    return _committed(store.store.managed_table(given["table"]).expire_partitions())


def _detail(store: SparkStore, given: Arguments) -> Sequence[Row]:
    table = store.store.managed_table(given["table"])
    return (
        described(table) if given["partition"] is None else described_partition(table, parse_spec(given["partition"]))
    )


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


_STREAM = "id STRING, name STRING"
_TABLE = Parameter("table", "database.table")
_PARTITION = Parameter("partition", "values such as day=2026-01-31,region=eu, or a JSON object", default="NULL")
_VIEW_PARTS = (
    Parameter("database", "that of names without one; null: the view's", default="NULL"),
    Parameter("options", "options of its table, as a JSON object", default="'{}'"),
    Parameter("comment", "free text", default="NULL"),
)
_VIEW_KEY = Parameter("primary_key", "the columns of its key, as a JSON list; empty: that of the query", default="'[]'")
_VERSION = "version BIGINT, operation STRING"
_REFRESHED = "view STRING, version BIGINT, inputs STRING, whole BOOLEAN"

PROCEDURES: Mapping[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        Procedure(
            "compact",
            "Merges the sorted runs of buckets that have many; returns the version, or nothing if none needed it.",
            (_TABLE, Parameter("full", "all buckets", "BOOLEAN", "false"), _PARTITION),
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
                Parameter("even_young", "also those that are younger than an hour", "BOOLEAN", "false"),
            ),
            "path STRING, kind STRING, bytes BIGINT",
            _orphans,
        ),
        Procedure(
            "create_materialized_view",
            "Creates a view whose rows are stored, and computes them. CREATE MATERIALIZED VIEW calls it.",
            (
                _TABLE,
                Parameter("query", "its query"),
                *_VIEW_PARTS,
                Parameter("if_not_exists", "whether the name may be taken", "BOOLEAN", "false"),
                _VIEW_KEY,
            ),
            _REFRESHED,
            _create_view,
        ),
        Procedure(
            "explain_materialized_view",
            "Says how a view is refreshed: incrementally, or as a whole and why. EXPLAIN of the other statements calls "
            "it.",
            (
                _TABLE,
                Parameter("query", "that of a view to be created; null: the view exists", default="NULL"),
                *_VIEW_PARTS,
                Parameter("if_not_exists", "changes nothing", "BOOLEAN", "false"),
                _VIEW_KEY,
            ),
            "plan STRING",
            _explain_view,
        ),
        Procedure(
            "drop_materialized_view",
            "Drops a materialized view with its rows. DROP MATERIALIZED VIEW calls it.",
            (_TABLE, Parameter("if_exists", "whether there may be none", "BOOLEAN", "false")),
            _REFRESHED,
            _drop_view,
        ),
        Procedure(
            "refresh",
            "Adds what has changed to a materialized view, and before to the views that it reads; returns those that "
            "were not up to date. REFRESH MATERIALIZED VIEW [FULL] calls it.",
            (_TABLE, Parameter("rebuild", "computes all rows of the view again", "BOOLEAN", "false")),
            _REFRESHED,
            _refresh,
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
            "start_stream",
            "Starts a streaming query into a table. INSERT INTO … WITH ('checkpoint' = …) calls it.",
            (
                _TABLE,
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
            "Describes a table as FLIP-188 does: its log, its files, its buckets. DESCRIBE DETAIL calls it.",
            (_TABLE, _PARTITION),
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
        Procedure(
            "show_tables",
            "Lists the tables and views of a database, each with a text about it. SHOW TABLE EXTENDED calls it.",
            (Parameter("database", "their database"), Parameter("pattern", "names, as LIKE takes them", default="'*'")),
            "namespace STRING, tableName STRING, isTemporary BOOLEAN, information STRING",
            _tables,
        ),
    )
}
"""All procedures, by name."""
