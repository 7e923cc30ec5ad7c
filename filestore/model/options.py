"""Table options: every name, type, default and meaning in one table.

`OPTIONS` is the single source: parsing, documentation and error messages are drawn from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from filestore.model.functions import DEFAULT_FUNCTION, FUNCTIONS
from filestore.model.log_options import LOG_OPTIONS
from filestore.model.option_values import (
    Option,
    column_names,
    duration,
    flag,
    one_of,
    share,
    size,
    some_text,
    whole,
)
from filestore.model.partition_time import Formatter, TimestampPattern

__all__ = ["OPTIONS", "PREFIXES"]

OPTIONS: Mapping[str, Option] = {
    o.name: o
    for o in (
        Option(
            "bucket",
            "integer",
            whole(1, 4096),
            "1",
            "Number of buckets: each is one LSM, one writing task and one partition of the log.",
        ),
        Option(
            "bucket-key",
            "column list",
            column_names,
            None,
            "Columns whose hash chooses the bucket; default: the primary key without the partition columns. "
            "With a primary key they must be part of it.",
        ),
        Option(
            "merge-engine",
            "enum",
            one_of("deduplicate", "partial-update", "aggregation", "first-row"),
            "deduplicate",
            "How the rows of a key become one: the last wins; column by column the last value that is not null wins; "
            "each column has its aggregate function; the first stays.",
        ),
        Option(
            "ignore-delete",
            "boolean",
            flag,
            "false",
            "Rows that take away (-U, -D) change nothing.",
        ),
        Option(
            "partial-update.remove-record-on-delete",
            "boolean",
            flag,
            "false",
            "With merge-engine = partial-update a -D removes the row; without it, it is an error, or in a table with "
            "sequence groups takes its values back from the groups of which it has a sequence.",
        ),
        Option(
            "aggregation.remove-record-on-delete",
            "boolean",
            flag,
            "false",
            "With merge-engine = aggregation a -D removes the row instead of taking its values back.",
        ),
        Option(
            "fields.default-aggregate-function",
            "enum",
            one_of(*FUNCTIONS),
            DEFAULT_FUNCTION,
            "With merge-engine = aggregation the function of the columns that have none of their own.",
        ),
        Option(
            "sequence.field",
            "column",
            some_text,
            None,
            "Column that orders the rows of a key. With merge-engine = deduplicate a row below the stored value "
            "changes nothing; with partial-update and aggregation it counts before all that is stored (see aggregate "
            "functions).",
        ),
        Option(
            "sequence.tombstone-retention",
            "duration",
            duration,
            "1 d",
            "With merge-engine = deduplicate and a sequence.field: how long at least a delete is remembered, so that a "
            "late row with a lower sequence does not bring the key back.",
        ),
        Option(
            "write-mode",
            "enum",
            one_of("merge-on-write", "merge-on-read"),
            "merge-on-write",
            "When a write is merged: at its commit, so that every Delta reader sees it at once; or later, by a "
            "compaction: commits then cost the same however large the table is, our readers merge what is pending as "
            "they read, and other readers see the table as it was folded last.",
        ),
        Option(
            "changelog-producer",
            "enum",
            one_of("none", "input", "lookup", "full-compaction"),
            "none",
            "What Delta's change data feed gives: nothing; the rows as they came, for inputs that are complete "
            "changelogs; exact images of each changed row, from the old rows found by look-up; the same, at each full "
            "compaction.",
        ),
        Option(
            "full-compaction.delta-commits",
            "integer",
            whole(1, 1_000_000),
            None,
            "With changelog-producer = full-compaction: a full compaction is due after so many commits.",
        ),
        Option(
            "changelog-producer.compaction-interval",
            "duration",
            duration,
            "30 min",
            "With changelog-producer = full-compaction: a full compaction is due after this time, e.g. 1 h.",
        ),
        Option(
            "target-file-size",
            "size",
            size,
            "128 mb",
            "A bucket's writer starts a new data file at about this size.",
        ),
        Option(
            "write-buffer-size",
            "size",
            size,
            "192 mb",
            "Rows that a writing task sorts in memory, which takes two to four times as much; more are sorted in runs "
            "on its local disk, and merged.",
        ),
        Option(
            "row-group.rows",
            "integer",
            whole(1024, 10_000_000),
            "131072",
            "Rows of a Parquet row group: the unit of pruning, of look-ups and of a worker's memory.",
        ),
        Option(
            "file.compression",
            "enum",
            one_of("zstd", "snappy", "lz4", "none"),
            "zstd",
            "Compression of data files.",
        ),
        Option(
            "file.bloom-filter",
            "boolean",
            flag,
            "false",
            "New data files have Bloom filters on the key's columns (booleans have none), so that look-ups of few keys "
            "read fewer row groups.",
        ),
        Option(
            "file.bloom-filter.fpp",
            "number",
            share,
            "0.01",
            "How many of the keys that are not there a Bloom filter lets pass: fewer need a larger one.",
        ),
        Option(
            "lookup.cache-max-memory-size",
            "size",
            size,
            "256 mb",
            "Memory of a process for what look-ups and scans keep there: files' footers and dead rows, and columns of "
            "small files.",
        ),
        Option(
            "lookup.cache-max-disk-size",
            "size",
            size,
            None,
            "Room on the local disk, for each process, for columns that reads and writes look up again and again; "
            "default: what the disk has, but a tenth.",
        ),
        Option(
            "lookup.cache-file-retention",
            "duration",
            duration,
            "1 h",
            "What look-ups keep is dropped when none used it for this time.",
        ),
        Option(
            "checkpoint.interval",
            "integer",
            whole(1, 10_000),
            "10",
            "A Delta checkpoint is written after every so many versions.",
        ),
        Option(
            "commit.max-retries",
            "integer",
            whole(0, 10_000),
            "100",
            "How often a commit that lost the race is rebased and tried again.",
        ),
        Option(
            "snapshot.num-retained.min",
            "integer",
            whole(1, 10_000_000),
            "10",
            "So many of the newest versions are kept, however old they are.",
        ),
        Option(
            "snapshot.num-retained.max",
            "integer",
            whole(1, 10_000_000),
            None,
            "An expiry keeps at most so many of the newest versions, however young they are; default: any number.",
        ),
        Option(
            "snapshot.time-retained",
            "duration",
            duration,
            "1 d",
            "An expiry keeps every version that was the newest one within this time.",
        ),
        Option(
            "consumer.expiration-time",
            "duration",
            duration,
            "7 d",
            "A consumer that was not heard of for so long no longer keeps versions from expiring.",
        ),
        Option(
            "tag.automatic-creation",
            "enum",
            one_of("none", "process-time"),
            "none",
            "Whether maintenance tags the last version of each period, by the clock (UTC).",
        ),
        Option(
            "tag.creation-period",
            "enum",
            one_of("daily", "hourly"),
            "daily",
            "The periods of tags that are created automatically.",
        ),
        Option(
            "tag.num-retained-max",
            "integer",
            whole(1, 1_000_000),
            None,
            "So many automatic tags are kept, the newest ones; default: all.",
        ),
        Option(
            "num-sorted-run.compaction-trigger",
            "integer",
            whole(2, 10_000),
            "5",
            "A bucket with at least so many sorted runs is chosen by a compaction, and fewer stay; in a table without "
            "a key, with at least so many small files.",
        ),
        Option(
            "compaction.size-ratio",
            "integer",
            whole(0, 10_000),
            "1",
            "A run joins a compaction of smaller ones if it is at most so many percent larger than they are together.",
        ),
        Option(
            "compaction.max-size-amplification-percent",
            "integer",
            whole(0, 100_000),
            "50",
            "Dead rows may take so many percent of the room of a bucket's live rows; then its files with more are "
            "rewritten.",
        ),
        Option(
            "compaction.in-writer",
            "boolean",
            flag,
            "false",
            "Writers that live long compact what needs it, beside their next commits. A compaction that fails or "
            "loses a race is logged, and fails no write.",
        ),
        Option(
            "partition.expiration-time",
            "duration",
            duration,
            None,
            "Partitions that are older are dropped by writers, `expire_partitions` and `tablestore partitions expire`.",
        ),
        Option(
            "partition.expiration-check-interval",
            "duration",
            duration,
            "1 h",
            "How often a writer that lives long looks for expired partitions, beginning with its first write.",
        ),
        Option(
            "partition.expiration-strategy",
            "enum",
            one_of("values-time", "update-time"),
            "values-time",
            "What the age of a partition is counted from: the time in its values, or its newest file.",
        ),
        Option(
            "partition.timestamp-pattern",
            "text",
            TimestampPattern.parse,
            None,
            "Where the time stands in a partition's values, such as `$day` or `$year-$month-$day $hour:00:00`; "
            "default: in the first partition column.",
        ),
        Option(
            "partition.timestamp-formatter",
            "text",
            Formatter.of,
            None,
            "How that time is written: `yyyy MM M dd d HH H mm m ss s SSS`, other letters in single quotes, such as "
            "`yyyyMMdd`; UTC. Default: `yyyy-M-d H:m:s` or `yyyy-M-d`, or the time of a DATE or TIMESTAMP column.",
        ),
        Option(
            "schema.evolution-mode",
            "enum",
            one_of("rewrite", "metadata"),
            "rewrite",
            "How columns are dropped, renamed and widened: all files are written anew, and every reader keeps working; "
            "or only metadata changes, with features of Delta that some readers lack.",
        ),
        *LOG_OPTIONS,
    )
}

PREFIXES: Mapping[str, str] = {
    "log.kafka.properties.": "Passed to the Kafka clients (librdkafka) as it is, e.g. "
    "log.kafka.properties.security.protocol. Of SASL PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 can be used, of TLS files "
    "of PEM. They lie in the Delta log as they are, passwords too: whoever may read the table may read them."
}
