"""Options of a table's log: part of `filestore.model.options.OPTIONS`."""

from __future__ import annotations

from filestore.model.option_values import Option, flag, lasting, one_of, some_text, whole

__all__ = ["LOG_OPTIONS"]

LOG_OPTIONS: tuple[Option, ...] = (
    Option(
        "log.system",
        "enum",
        one_of("none", "embedded", "kafka"),
        "embedded",
        "Where changes are logged: nowhere, in SQLite files inside the table's folder, or in a Kafka topic.",
    ),
    Option(
        "log.consistency",
        "enum",
        one_of("transactional", "eventual"),
        "transactional",
        "When a reader of the log sees a change: once the snapshot that covers it is committed; or as soon as it is "
        "written, which needs a primary key, write-mode = merge-on-write and log.changelog-mode other than all; "
        "other consumers of the topic may get a record twice then, and our readers now and then.",
    ),
    Option(
        "log.changelog-mode",
        "enum",
        one_of("auto", "upsert", "all"),
        "auto",
        "What the log tells: of each changed key the row that it has from then on, or its delete; or complete changes, "
        "with the row that was there (-U, -D) and the one that takes its place (+U). auto: all, if the table has no "
        "primary key or a changelog-producer that has complete changes when a write is committed, without which all is "
        "refused; else upsert.",
    ),
    Option(
        "log.delete-format",
        "enum",
        one_of("full", "tombstone"),
        "full",
        "With log.changelog-mode = upsert: a delete is a row, as far as the write knows it, or a record without a "
        "value, as readers of compacted topics and upsert-kafka expect it; then only its key is known.",
    ),
    Option(
        "log.key.format",
        "enum",
        one_of("json"),
        "json",
        "How the primary key is written as a record's key.",
    ),
    Option(
        "log.format",
        "enum",
        one_of("debezium-json"),
        "debezium-json",
        "How a change is written as a record's value.",
    ),
    Option(
        "log.retention",
        "duration",
        lasting,
        None,
        "How long records are kept: retention.ms of the topic; in an embedded log maintenance removes older ones, but "
        "for those that lead on from versions that a tag or consumer holds. Default: the broker's; embedded: for ever.",
    ),
    Option(
        "log.scan",
        "enum",
        one_of("full", "latest", "from-timestamp"),
        "full",
        "Where readers of changes begin that do not say it: with all rows, with later changes only, or with the "
        "changes since log.scan.timestamp-millis.",
    ),
    Option(
        "log.scan.timestamp-millis",
        "integer",
        whole(0, 253_402_300_799_999),
        None,
        "With log.scan = from-timestamp: milliseconds since 1970, UTC.",
    ),
    Option(
        "log.kafka.bootstrap.servers",
        "text",
        some_text,
        None,
        "Kafka brokers as host:port, separated by commas; needed when log.system = kafka.",
    ),
    Option(
        "log.kafka.topic",
        "text",
        some_text,
        None,
        "Topic of the log; default: <database>.<table>.<table uuid>. One that is there already is taken if it is empty "
        "and fits, and stays when the table is dropped.",
    ),
    Option(
        "log.kafka.transactions",
        "boolean",
        flag,
        "true",
        "Whether records are written in Kafka transactions: other consumers with read_committed then see those of "
        "committed snapshots only. Set false for brokers whose transaction.max.timeout.ms cannot be raised.",
    ),
    Option(
        "log.kafka.replication-factor",
        "integer",
        whole(1, 100),
        None,
        "Replication factor of the topic that is created; default: the broker's.",
    ),
    Option(
        "log.kafka.cleanup.policy",
        "enum",
        one_of("delete", "compact", "compact,delete"),
        "delete",
        "How the broker makes room in the topic: by age, or by keeping the last record of each key, which needs "
        "log.changelog-mode = upsert, write-mode = merge-on-write and Kafka's transactions; or by both.",
    ),
)
