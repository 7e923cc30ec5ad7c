"""The values by which any process opens a table's log (PROTOCOL.md section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from filestore.errors import Corrupt, InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.storage.schemes import is_local

__all__ = ["LogConfig", "log_behind", "log_config"]

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


def log_behind(table_id: str, bucket: int, end: int, needed: int) -> Corrupt:
    """Makes the error of a log that is older than its table: it ends there, and versions have records up to here."""
    return Corrupt(
        f"the log of table {table_id} is older than the table: in bucket {bucket} it ends with offset {end}, and "
        f"versions of the table have records up to offset {needed}. Restore a later copy of the log, or begin a new "
        "one at the newest version with `tablestore new-log` (Table.new_log)",
        code="log-behind",
    )
