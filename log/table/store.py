"""The interface of a table's log, and the values that it takes and returns (PROTOCOL.md sections 1, 4 and 5).

The snapshot is the only decision record. A writer *prepares* its records, the caller names the prepared
transaction in a commit, and only then anyone *ends* it. Snapshots say which ranges a reader reads. From a
range it takes only the records of that transaction, whatever is between them: dead attempts, other writers, a
broker's markers. So it never asks the log what is committed, which is what FLIP-188 left open (its
log and its snapshots had no order).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from filestore.contexts import Closing
from filestore.errors import Corrupt, InvalidRequest, NotFound
from filestore.model.definition import TableDefinition
from filestore.model.log_range import LogTransaction
from filestore.model.schema import Schema
from filestore.storage.schemes import is_local
from log.table.open_transaction import OpenTransaction

__all__ = [
    "EndReport",
    "LogBatch",
    "LogConfig",
    "LogControl",
    "LogStore",
    "LogTail",
    "LogWriter",
    "gap",
    "log_behind",
    "log_config",
]

LOG_FOLDER = "_log"
TOPIC_NAME_MAX = 249


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The values by which any process opens a table's log: frozen and picklable.

    Attributes:
        system: ``embedded`` or ``kafka``.
        database: Name of the database.
        table: Name of the table in it.
        table_id: The table's UUID: a table that is dropped and made again gets another log.
        schema: The table's columns.
        primary_key: Key columns in order; empty without a key.
        buckets: Number of partitions.
        location: Folder of an embedded log; not used by Kafka.
        topic: Kafka's topic.
        bootstrap_servers: Kafka's brokers.
        properties: Passed to the Kafka clients as they are.
        replication_factor: Of the topic, when it is created; None: the broker's.
        tombstones: A delete is a record without a value, of which only the key is known.
        retention_ms: How long records are kept; None for the broker's time, and in an embedded log for ever.
        cleanup_policy: Kafka's ``cleanup.policy`` of the topic.
        transactions: Whether records are written in transactions of Kafka's.
        eventual: Whether readers see records before the snapshot, so that none is ever taken back.
        covered: For a writer by bucket the offset up to which versions have records: its own get no lower ones.
    """

    system: str
    database: str
    table: str
    table_id: str
    schema: Schema
    primary_key: tuple[str, ...]
    buckets: int
    location: str
    topic: str | None = None
    bootstrap_servers: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    replication_factor: int | None = None
    transactions: bool = True
    tombstones: bool = False
    retention_ms: int | None = None
    cleanup_policy: str = "delete"
    eventual: bool = False
    covered: tuple[int, ...] = ()

    def reached_by(self, definition: TableDefinition) -> LogConfig:
        """Returns the config by which another version of the table reaches its log; columns stay those of this one."""
        return replace(self, **_access(definition))

    def behind(self, offsets: Mapping[int, int]) -> LogConfig:
        """Returns the log for a writer that knows of records up to these offsets."""
        return replace(self, covered=tuple(offsets.get(bucket, 0) for bucket in range(self.buckets)))

    def check_offset(self, bucket: int, offset: int) -> None:
        """Checks the offset of a new record.

        Raises:
            Corrupt: ``log-behind``.
        """
        if self.covered and offset < self.covered[bucket]:
            raise log_behind(self.table_id, bucket, offset, self.covered[bucket])

    @property
    def compacts(self) -> bool:
        """Returns whether Kafka may remove a record once a later one of the same key supersedes it."""
        return "compact" in self.cleanup_policy

    @property
    def if_gone(self) -> str:
        """Returns what to do if the log does not exist any more."""
        return (
            f"it was the log of table {self.database}.{self.table}. scan() and get() still read the table. Restore the "
            f"log, or begin a new one at the newest version: `tablestore new-log {self.database}.{self.table}` "
            "(Table.new_log)"
        )


def log_config(
    definition: TableDefinition, *, database: str, table: str, folder: str, table_id: str, location: str
) -> LogConfig | None:
    """Returns the log's configuration from a table's definition; None for ``log.system = none``.

    Args:
        definition: The table's columns, key and options.
        database: Name of the database.
        table: Name of the table in it.
        folder: Name of the table's folder, which stays when the table is renamed, as the name of its topic does.
        table_id: The table's UUID.
        location: Where the table is: a path or a URL. An embedded log needs it on a local disk.

    Raises:
        InvalidRequest: ``log-location``: an embedded log of a table in a store of objects; ``log-topic``: a name Kafka
            refuses.
    """
    options = definition.options
    system = options["log.system"]
    if system == "none":
        return None
    topic = (options["log.kafka.topic"] or f"{database}.{folder}.{table_id}") if system == "kafka" else None
    if topic is not None and len(topic) > TOPIC_NAME_MAX:
        raise InvalidRequest(
            f"topic name {topic!r} has {len(topic)} characters, Kafka takes {TOPIC_NAME_MAX}: "
            "choose one with log.kafka.topic",
            code="log-topic",
        )
    return LogConfig(
        system=system,
        database=database,
        table=table,
        table_id=table_id,
        schema=definition.schema,
        primary_key=definition.primary_key,
        buckets=definition.buckets,
        location=_log_folder(location) if system == "embedded" else "",
        topic=topic,
        **_access(definition),
        replication_factor=options["log.kafka.replication-factor"],
        tombstones=options["log.delete-format"] == "tombstone",
        retention_ms=options.milliseconds("log.retention") if options["log.retention"] is not None else None,
        cleanup_policy=options["log.kafka.cleanup.policy"],
        transactions=options["log.kafka.transactions"] and options["log.consistency"] == "transactional",
        eventual=options["log.consistency"] == "eventual",
    )


def _access(definition: TableDefinition) -> dict[str, Any]:
    options = definition.options
    return {
        "bootstrap_servers": options["log.kafka.bootstrap.servers"] if options["log.system"] == "kafka" else None,
        "properties": tuple(sorted(options.with_prefix("log.kafka.properties.").items())),
    }


def _log_folder(location: str) -> str:
    if not is_local(location):
        raise InvalidRequest(
            f"log.system = embedded needs a table on a local disk, and this one is at {location}: "
            "use log.system = kafka or none",
            code="log-location",
        )
    return f"{location.removeprefix('file://').rstrip('/')}/{LOG_FOLDER}"


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Rows of one transaction in one bucket, in log order.

    Attributes:
        bucket: The partition.
        transaction_id: Whose rows these are.
        rows: The table's columns, as asked for, and ``_kind`` last. Columns outside the key are nullable: a
            tombstone has the key alone.
        end_offset: Where reading goes on after these rows.
        written_ms: In a tail: when the log took the last of them.
    """

    bucket: int
    transaction_id: str
    rows: pa.RecordBatch
    end_offset: int
    written_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogControl:
    """A control record: something happened to the table that rows do not say, such as an overwrite."""

    bucket: int
    transaction_id: str
    payload: Mapping[str, Any]
    end_offset: int


@dataclass(frozen=True, slots=True)
class EndReport:
    """The result of `LogStore.end`.

    Attributes:
        ended: Ids that are now as asked for, also those that were before.
        lost: Ids that were to be committed and were aborted by the log itself (a time-out, a fencing). A
            foreign reader will never see their records: the caller publishes them again from the snapshot's
            files.
    """

    ended: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class LogWriter(Protocol):
    """One transaction of one writing task: `append`…, then `prepare` or `abort`, each once.

    A writer that is dropped without either leaves an open transaction, which `LogStore.abort_unnamed` finds.
    """

    def append(self, bucket: int, rows: pa.RecordBatch | pa.Table) -> None:
        """Adds changes: the table's columns and ``_kind``, in any order of columns. Rows keep their order.

        Raises:
            InvalidRequest: a column is missing or of another type, ``_kind`` has an unknown value, or a value
                has no spelling in the record format.
        """

    def control(self, bucket: int, payload: Mapping[str, Any]) -> None:
        """Adds a control record: a JSON object with a member ``control`` that names what happened."""

    def prepare(self) -> LogTransaction | None:
        """Makes everything durable and returns where it is; None if nothing was added (nothing to end then).

        Afterwards the records survive the death of this process and of the log's server, and stay invisible
        to foreign ``read_committed`` readers until `LogStore.end`.
        """

    def abort(self) -> None:
        """Aborts the transaction, also after `prepare`: no reader ever returns its records.

        Errors are only logged, since the caller already handles the one that made it abort.
        """


class LogTail(Closing, Protocol):
    """A reader of all records as they arrive in a log, whether or not a snapshot names them. One thread at a time."""

    @property
    def offsets(self) -> dict[int, int]:
        """The offset of the next record to read, by bucket."""

    def poll(self, seconds: float) -> list[LogBatch | LogControl]:
        """Returns what has arrived, as soon as something has; an empty list after that many seconds.

        Within a bucket it is in the log's order. Rows of one batch are of one transaction. Records that are not
        Tablestore's are skipped; `offsets` says how far reading is.

        Raises:
            NotFound: ``log-gap``: the records where it went on are gone.
            Unavailable: the log's server does not answer.
        """

    def close(self) -> None:
        """Closes the connections."""


class LogStore(Closing, Protocol):
    """The log of one table. Use it from one thread at a time, and open it again in another process."""

    def create(self) -> None:
        """Creates the log; a second call for the same table changes nothing.

        Raises:
            AlreadyExists: ``log-exists``: another table's, or with another number of partitions, is there.
            InvalidRequest: ``log-not-authorized``: a right that making it needs is missing.
            Unsupported: ``kafka-transaction-timeout``: the broker's limit, if it is known, would abort prepared
                transactions; ``log-sasl``, ``log-tls``: they could not be ended over such a connection.
            Unavailable: the log's server does not answer.
        """

    def create_anew(self) -> None:
        """Creates the log in the place of one that is gone or damaged. It deletes nothing, and may be called again.

        What is left of an embedded log is moved aside. A topic of the name that somebody has made since is taken if it
        agrees with the table's options, whatever is in it.

        Raises: as `create`.
        """

    def drop(self) -> None:
        """Deletes the log with all records, if there is one."""

    def exists(self) -> bool:
        """Returns whether `create` has made it."""

    def check_adoptable(self) -> None:
        """Checks that the existing log fits a new table; else `AlreadyExists` (``log-exists``) or ``log-topic``."""

    def check_writable(self) -> None:
        """Checks what a write needs of the log's server: an answer, the log, the rights, and Kafka's time for it.

        Raises:
            NotFound: ``log-not-found``.
            InvalidRequest: ``log-properties``, ``log-settings``: a setting of its clients does not exist, or its
                value cannot be; ``log-not-authorized``: a right is missing.
            Unsupported: as `create`.
            Unavailable: the log's server does not answer.
        """

    def identity(self) -> dict[str, str]:
        """Returns what offsets of this log belong to.

        ``system``, ``topic``, ``topic_id`` and ``cluster_id``, for the commit.
        """

    def begin(self, transaction_id: str) -> LogWriter:
        """Opens a transaction.

        Args:
            transaction_id: ``{table uuid}/{commit id}/{task}.{attempt}``, never used before.
        """

    def end(self, transactions: Iterable[LogTransaction], *, commit: bool, late: bool = False) -> EndReport:
        """Commits or aborts prepared transactions. Any process may do so, and again.

        Args:
            transactions: Which.
            commit: Whether they are committed.
            late: Whether so much time may have passed that retention took records of transactions that nobody had
                ended: those are lost.

        REQUIRES: for ``commit=True`` a snapshot names them; for ``commit=False`` no snapshot does or ever
            will.
        """

    def abort_unnamed(self, dead_among: Callable[[Sequence[str]], Collection[str]]) -> list[str]:
        """Aborts open transactions of this table whose writers are dead; returns their ids.

        Args:
            dead_among: Returns which of some open ones are aborted. It may be asked several times, since more of them
                may become known.

        REQUIRES: it returns no id that a snapshot names, or that a writer may still name.
        """

    def aborted(self, transactions: Sequence[LogTransaction]) -> list[str]:
        """Returns the ids of those that were aborted: no reader with ``read_committed`` ever gets their records.

        Those that are open, or whose records retention has deleted, are not among them.
        """

    def damages(self, covered: Mapping[int, int]) -> list[str]:
        """Looks at every stored byte, and describes what is damaged. Kafka's brokers look at theirs themselves.

        Args:
            covered: By bucket the offset up to which the newest version covers the log.
        """

    def end_hanging(self) -> list[str]:
        """Ends this table's transactions that a partition takes for open after their end; returns their ids.

        Only foreign readers wait for them. A log that ends a transaction everywhere at once has none.

        Raises:
            InvalidRequest: ``log-not-authorized``: there are some, and it takes more rights.
        """

    def events(
        self,
        transactions: Sequence[LogTransaction],
        *,
        bucket: int | None = None,
        columns: Sequence[str] | None = None,
        committed_ms: int | None = None,
    ) -> Iterator[LogBatch | LogControl]:
        """Yields the rows and control records of exactly those transactions.

        Within a bucket they come in the order of ``transactions`` (the order of snapshots, which may differ
        from that of the log), and within a transaction in log order. A batch is bounded, so memory is.
        From a topic that is compacted, records are missing that a later one of their key supersedes.

        Args:
            transactions: Named by snapshots.
            bucket: Whose records; all if None.
            columns: The columns wanted; all if None.
            committed_ms: When the oldest of those snapshots was committed, in milliseconds since 1970 UTC: a topic that
                is compacted forgets tombstones some time after. None if unknown.

        Raises:
            NotFound: ``log-gap``: records are gone (retention, an abort), or perhaps tombstones, so reading goes
                on with ``scan="full"`` only.
        """

    def read(
        self,
        transactions: Sequence[LogTransaction],
        *,
        bucket: int | None = None,
        columns: Sequence[str] | None = None,
        committed_ms: int | None = None,
    ) -> Iterator[LogBatch]:
        """Yields what `events` does, without the control records."""
        for event in self.events(transactions, bucket=bucket, columns=columns, committed_ms=committed_ms):
            if isinstance(event, LogBatch):
                yield event

    def tail(self, offsets: Mapping[int, int], columns: Sequence[str] | None = None) -> LogTail:
        """Opens a reader of all records from those offsets on, in the order of the log (PROTOCOL.md section 5.2).

        Args:
            offsets: Which buckets, and where each begins.
            columns: Which columns; all if None.
        """

    def start_offsets(self) -> dict[int, int]:
        """Returns the first offset that is still kept, by bucket."""

    def end_offsets(self) -> dict[int, int]:
        """Returns the offset that the next record will get, by bucket."""

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the transactions that foreign ``read_committed`` readers wait for, by bucket and offset; anyone's."""

    def stable_offsets(self) -> dict[int, int]:
        """Returns by bucket where foreign ``read_committed`` readers stop: at the bucket's first open transaction."""

    def trim(self, before: Mapping[int, int]) -> None:
        """Deletes, in each bucket that is named, the records below that offset."""

    def keep_for(self, milliseconds: int | None) -> None:
        """Sets how long records are kept; None for as long as the log's server does by itself.

        An embedded log deletes nothing by itself: maintenance trims it.
        """

    def close(self) -> None:
        """Closes files and connections."""


def gap(where: str, problem: str) -> NotFound:
    """Makes the error of a reader whose records were deleted."""
    return NotFound(
        f"the log of {where} has a gap: {problem}. The changes can no longer be read one by one: "
        'start again from a snapshot with scan="full"',
        code="log-gap",
    )


def log_behind(table_id: str, bucket: int, end: int, needed: int) -> Corrupt:
    """Makes the error of a log that is older than its table: it ends there, and versions have records up to here."""
    return Corrupt(
        f"the log of table {table_id} is older than the table: in bucket {bucket} it ends with offset {end}, and "
        f"versions of the table have records up to offset {needed}. Restore a later copy of the log, or begin a new "
        "one at the newest version with `tablestore new-log` (Table.new_log)",
        code="log-behind",
    )
