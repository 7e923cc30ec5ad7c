"""The options of a table's log: a part of `filestore.model.options.OPTIONS`."""

from __future__ import annotations

from filestore.model.option_values import Option, flag, one_of, positive_duration, seconds_or_more, some_text, whole

__all__ = ["LITERAL_SECRETS", "LOG_OPTIONS"]

LITERAL_SECRETS = Option(
    "allow-literal-secrets",
    "boolean",
    flag,
    "false",
    "Whether options may hold passwords, tokens and keys themselves instead of references to them. Whoever may read "
    "the table's metadata may read those.",
)

LOG_OPTIONS: tuple[Option, ...] = (
    Option(
        "log.system",
        "enum",
        one_of("none", "embedded", "kafka"),
        "embedded",
        "Where changes are logged: nowhere, in SQLite files inside the table's folder, or in a Kafka topic. In a store "
        "of objects the default is kafka if brokers are named, by the options or the catalog, and otherwise none.",
        fixed="the table's offsets belong to the former log",
    ),
    Option(
        "log.consistency",
        "enum",
        one_of("transactional", "eventual"),
        "transactional",
        "When a reader of the log sees a change: after the commit of the snapshot that covers it; or as soon as it is "
        "written, which needs a primary key, write-mode = merge-on-write and log.changelog-mode other than all; other "
        "consumers of the topic may then get a record twice, and our own readers may, too.",
        fixed="the log's records were written for the former one",
    ),
    Option(
        "log.changelog-mode",
        "enum",
        one_of("auto", "upsert", "all"),
        "auto",
        "What the log contains: for each changed key its new row, or its delete (upsert); or complete changes, with "
        "the former row (-U, -D) and the new one (+U) (all). auto: all, if the table has no primary key or has a "
        "changelog-producer that knows complete changes when a write is committed, without which all is refused; "
        "otherwise upsert.",
    ),
    Option(
        "log.delete-format",
        "enum",
        one_of("full", "tombstone"),
        "full",
        "With log.changelog-mode = upsert: a delete is a row, as far as the write knows it, or a record without a "
        "value, as readers of compacted topics and upsert-kafka expect it; then it contains only the key.",
        fixed="readers know by it which deletes a compacted topic may have lost",
    ),
    # The two formats are options of FLIP-188 and have one value each. So they are only checked, and no code reads them.
    Option(
        "log.key.format",
        "enum",
        one_of("json"),
        "json",
        "The format of a record's key, which contains the primary key.",
        fixed="the log's records are written in the former one",
    ),
    Option(
        "log.format",
        "enum",
        one_of("debezium-json"),
        "debezium-json",
        "The format of a record's value, which contains the change.",
        fixed="the log's records are written in the former one",
    ),
    Option(
        "log.retention",
        "duration",
        positive_duration,
        None,
        "How long records are kept: retention.ms of the topic; from an embedded log maintenance removes older ones, "
        "except those that follow versions that a tag or consumer holds. Default: the broker's; embedded: for ever.",
    ),
    Option(
        "log.lease-timeout",
        "duration",
        seconds_or_more,
        "60 s",
        "In a store of objects: after this time without a sign of life a writer's log transactions are given up; while "
        "it writes, it gives one every quarter of it.",
    ),
    Option(
        "log.scan",
        "enum",
        one_of("full", "latest", "from-timestamp"),
        "full",
        "Where readers of changes begin by default: with all rows, with later changes only, or with the changes since "
        "log.scan.timestamp-millis.",
    ),
    Option(
        "log.scan.timestamp-millis",
        "integer",
        whole(0, 253_402_300_799_999),
        None,
        "With log.scan = from-timestamp: the time in milliseconds since 1970, UTC. Readers get the changes of that "
        "millisecond and later ones.",
    ),
    Option(
        "log.kafka.bootstrap.servers",
        "text",
        some_text,
        None,
        "Kafka brokers as host:port, separated by commas; needed when log.system = kafka, unless the catalog has some.",
    ),
    Option(
        "log.kafka.topic",
        "text",
        some_text,
        None,
        "The log's topic; default: <database>.<table>.<table uuid>. A topic that exists already is used if it is empty "
        "and fits, and is not deleted when the table is dropped.",
        fixed="the table's offsets belong to the former topic",
    ),
    Option(
        "log.kafka.transactions",
        "boolean",
        flag,
        "true",
        "Whether records are written in Kafka transactions: other consumers with read_committed then see those of "
        "committed snapshots only. Set false for brokers whose transaction.max.timeout.ms cannot be raised.",
        fixed="the log's records were written for the former value",
    ),
    Option(
        "log.kafka.replication-factor",
        "integer",
        whole(1, 100),
        None,
        "The replication factor of the topic that is created; default: the broker's.",
        fixed="it is used when the topic is created; change it with Kafka's own tools",
    ),
    Option(
        "log.kafka.cleanup.policy",
        "enum",
        one_of("delete", "compact", "compact,delete"),
        "delete",
        "How the broker deletes records: by age, or by keeping the last record of each key, which needs "
        "log.changelog-mode = upsert, write-mode = merge-on-write and Kafka's transactions; or by both.",
        fixed="the log's records were ordered for the former one",
    ),
)
