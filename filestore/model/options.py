"""All table options in one mapping: each with its name, type, default and meaning.

`OPTIONS` is the only source: the parser, OPTIONS.md and error messages use it.
"""

from __future__ import annotations

from collections.abc import Mapping

from filestore.model.functions import FUNCTIONS
from filestore.model.log_options import LITERAL_SECRETS, LOG_OPTIONS
from filestore.model.option_values import (
    Option,
    column_names,
    duration,
    flag,
    one_of,
    share,
    size,
    size_or_none,
    some_text,
    whole,
)
from filestore.model.partition_time import Formatter, TimestampPattern
from filestore.model.watermark import WATERMARK_OPTIONS

__all__ = ["OPTIONS", "PREFIXES"]

OPTIONS: Mapping[str, Option] = {
    o.name: o
    for o in (
        Option(
            "bucket",
            "integer",
            whole(1, 4096),
            "1",
            "Number of buckets of a partition: each is an LSM tree, a writing task and a partition of the log.",
            fixed="rows are already distributed by it",
        ),
        Option(
            "bucket-key",
            "column list",
            column_names,
            None,
            "The columns whose hash chooses the bucket; default: the primary key without the partition columns. "
            "With a primary key they must be part of it.",
            fixed="rows are already distributed by it",
        ),
        Option(
            "merge-engine",
            "enum",
            one_of("deduplicate", "partial-update", "aggregation", "first-row"),
            "deduplicate",
            "How rows of the same key are merged: the last row replaces the others (deduplicate); in each column the "
            "last value that is not null (partial-update); by each column's aggregate function (aggregation); the "
            "first row stays (first-row).",
            fixed="the stored rows were merged by the former one",
        ),
        Option(
            "ignore-delete",
            "boolean",
            flag,
            "false",
            "Deletes and first halves of updates (-D, -U) change nothing.",
        ),
        Option(
            "partial-update.remove-record-on-delete",
            "boolean",
            flag,
            "false",
            "With merge-engine = partial-update a -D removes the row. Otherwise it is an error, or in a table with "
            "sequence groups it retracts its values from the groups for which it has a sequence.",
        ),
        Option(
            "aggregation.remove-record-on-delete",
            "boolean",
            flag,
            "false",
            "With merge-engine = aggregation a -D removes the row instead of retracting its values.",
        ),
        Option(
            "fields.default-aggregate-function",
            "enum",
            one_of(*FUNCTIONS),
            None,
            "With merge-engine = aggregation or partial-update: the function of the columns that have no function of "
            "their own; default: last_non_null_value, in sequence groups last_value. Columns that order rows have "
            "none: sequence.field and those of sequence groups.",
            fixed="the stored values were merged by the former one",
        ),
        Option(
            "sequence.field",
            "column",
            some_text,
            None,
            "The column that orders the rows of a key. With merge-engine = deduplicate a row with a lower value than "
            "the stored one changes nothing; with partial-update and aggregation it is merged as if it preceded "
            "all that is stored (see aggregate functions).",
            fixed="the stored rows were ordered by the former one",
        ),
        Option(
            "sequence.tombstone-retention",
            "duration",
            duration,
            "1 d",
            "With merge-engine = deduplicate and a sequence.field: how long a delete is remembered at least, so that a "
            "late row with a lower sequence does not insert the key again.",
        ),
        Option(
            "write-mode",
            "enum",
            one_of("merge-on-write", "merge-on-read"),
            "merge-on-write",
            "When a write is merged: at its commit, so that every Delta reader sees it at once; or later, by a "
            "compaction: the cost of a commit then does not depend on the table's size, our readers merge pending rows "
            "as they read, and other readers see the table as of the last fold.",
            fixed="pending runs were written for the former one",
        ),
        Option(
            "changelog-producer",
            "enum",
            one_of("none", "input", "lookup", "full-compaction"),
            "none",
            "What Delta's change data feed contains: nothing; the rows as they arrived, for inputs that are complete "
            "changelogs (of statements, and with merge-on-read, as with lookup); exact images of each changed row, "
            "whose old rows a look-up finds; the same, produced by each full compaction.",
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
            "The size at which a bucket's writer starts a new data file.",
        ),
        Option(
            "write-buffer-size",
            "size",
            size,
            "192 mb",
            "The size of the rows that a writing task sorts in memory, which takes two to four times as much; it sorts "
            "more rows in runs, in memory and on its local disk, and merges them.",
        ),
        Option(
            "row-group.rows",
            "integer",
            whole(1024, 10_000_000),
            "131072",
            "The rows of a Parquet row group: the unit of pruning, of look-ups and of a worker's memory.",
        ),
        Option(
            "file.compression",
            "enum",
            one_of("zstd", "snappy", "lz4", "none"),
            "zstd",
            "The compression of data files.",
        ),
        Option(
            "file.bloom-filter",
            "boolean",
            flag,
            "false",
            "New data files have Bloom filters on the key's columns (except booleans), so that look-ups of few keys "
            "read fewer row groups.",
        ),
        Option(
            "file.bloom-filter.fpp",
            "number",
            share,
            "0.01",
            "The share of absent keys that a Bloom filter lets pass: a smaller share needs a larger filter.",
        ),
        Option(
            "lookup.cache-max-memory-size",
            "size",
            size,
            "256 mb",
            "The memory of a process for what look-ups and scans cache: files' footers and dead rows, and columns "
            "of small files. Spark's Python processes on one machine divide it.",
        ),
        Option(
            "lookup.cache-max-disk-size",
            "size",
            size,
            None,
            "The space on the local disk, for each process, for columns that reads and writes look up repeatedly; "
            "default: the disk's free space except for a tenth. Spark's Python processes on one machine divide it.",
        ),
        Option(
            "lookup.cache-file-retention",
            "duration",
            duration,
            "1 h",
            "What look-ups cache is dropped when it was not used for this time.",
        ),
        Option(
            "checkpoint.interval",
            "integer",
            whole(1, 10_000),
            "10",
            "A Delta checkpoint is written after so many versions, if they have changed a tenth of the table's files, "
            "and after 100 in any case. No commit waits for it.",
        ),
        Option(
            "commit.max-retries",
            "integer",
            whole(0, 10_000),
            "100",
            "How many times a commit that lost the race is rebased and retried.",
        ),
        Option(
            "snapshot.num-retained.min",
            "integer",
            whole(1, 10_000_000),
            "10",
            "This number of the newest versions is kept, however old they are.",
        ),
        Option(
            "snapshot.num-retained.max",
            "integer",
            whole(1, 10_000_000),
            None,
            "An expiry keeps at most this number of the newest versions, however young they are; default: any number.",
        ),
        Option(
            "snapshot.time-retained",
            "duration",
            duration,
            "1 d",
            "An expiry keeps every version that was the newest one at some time within this duration.",
        ),
        Option(
            "consumer.expiration-time",
            "duration",
            duration,
            "7 d",
            "A consumer that did not report for this time no longer keeps versions from expiring.",
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
            "The period of the automatic tags.",
        ),
        Option(
            "tag.num-retained-max",
            "integer",
            whole(1, 1_000_000),
            None,
            "How many of the newest automatic tags are kept; default: all.",
        ),
        Option(
            "num-sorted-run.compaction-trigger",
            "integer",
            whole(2, 10_000),
            "5",
            "A compaction chooses a bucket with at least so many sorted runs, and leaves fewer; in a table without "
            "a key, one with at least so many small files.",
        ),
        Option(
            "compaction.size-ratio",
            "integer",
            whole(0, 10_000),
            "1",
            "A run joins a compaction of smaller runs if it is at most so many percent larger than all of them.",
        ),
        Option(
            "compaction.max-size-amplification-percent",
            "integer",
            whole(0, 100_000),
            "50",
            "The size of a bucket's dead rows in percent of its live rows that is allowed; above it, the files with "
            "a larger share are rewritten.",
        ),
        Option(
            "compaction.in-writer",
            "boolean",
            flag,
            "false",
            "Long-lived writers compact the table when needed, concurrently with their next commits. A compaction that "
            "fails or loses a race is logged, and does not fail a write.",
        ),
        Option(
            "partition.expiration-time",
            "duration",
            duration,
            None,
            "Older partitions are dropped by writers, `expire_partitions` and `tablestore partitions expire`.",
        ),
        Option(
            "partition.expiration-check-interval",
            "duration",
            duration,
            "1 h",
            "How often a long-lived writer checks for expired partitions, beginning with its first write.",
        ),
        Option(
            "partition.expiration-strategy",
            "enum",
            one_of("values-time", "update-time"),
            "values-time",
            "How the age of a partition is determined: by the time in its values, or by its newest file.",
        ),
        Option(
            "partition.timestamp-pattern",
            "text",
            TimestampPattern.parse,
            None,
            "The text with a partition's time, made from its values, such as `$day` or `$year-$month-$day "
            "$hour:00:00`; default: the value of the first partition column.",
        ),
        Option(
            "partition.timestamp-formatter",
            "text",
            Formatter.of,
            None,
            "The format of that time: `yyyy MM M dd d HH H mm m ss s SSS`, other letters in single quotes, such as "
            "`yyyyMMdd`; UTC. Default: `yyyy-M-d H:m:s` or `yyyy-M-d`, or the time of a DATE or TIMESTAMP column.",
        ),
        *WATERMARK_OPTIONS,
        Option(
            "view.query",
            "text",
            some_text,
            None,
            "The query whose result the table is, as a maintained view (docs/views.md). Only refreshes write its rows.",
            fixed="the stored rows are its result",
        ),
        Option(
            "view.engine",
            "enum",
            one_of("tablestore", "spark", "lookup"),
            "tablestore",
            "What computes the rows of a maintained view: a join of tables (tablestore), any query (spark), or a "
            "look-up of new events (lookup). Writers set it.",
            fixed="it follows from the query",
        ),
        Option(
            "view.incremental",
            "enum",
            one_of("auto", "required"),
            "auto",
            "A view whose query does not allow refreshes from what changed is computed as a whole each time (auto), or "
            "refused (required).",
        ),
        Option(
            "view.local-memory",
            "size",
            size_or_none,
            "256 mb",
            "The size of the rows, in memory, that the process which refreshes a view may read to compute them itself. "
            "With more, and for queries that it does not know, Spark computes them; with 0 it always does.",
        ),
        Option(
            "view.whole-size",
            "size",
            size_or_none,
            "128 mb",
            "As long as the files of a view's tables and its own have no more bytes than this, Spark computes all rows "
            "in one step, where it is needed, and the process compares them with the stored ones, within "
            "view.local-memory. With more, and with 0, Spark finds what changes reach, in several steps.",
        ),
        Option(
            "view.check",
            "enum",
            one_of("none", "sample"),
            "none",
            "With sample, a refresh that reads what changed computes a few rows anew first, drawn at random, and "
            "compares them with the stored ones. If one is wrong, it computes all rows, and its commit says so.",
        ),
        Option(
            "view.removed-events",
            "enum",
            one_of("refuse", "keep"),
            "refuse",
            "With view.engine = lookup: when partitions of the table of events were dropped, a refresh fails (refuse), "
            "or the view keeps what it has of them (keep), which stays so.",
            final=("keep", "the view may have results of events that were removed"),
        ),
        Option(
            "view.expired-versions",
            "enum",
            one_of("fail", "oldest"),
            "fail",
            "With view.engine = lookup and a time of each event: when the version of that time has expired, a refresh "
            "fails, or the oldest version that is left stands for it (oldest).",
        ),
        Option(
            "schema.evolution-mode",
            "enum",
            one_of("rewrite", "metadata"),
            "rewrite",
            "How columns are dropped, renamed and widened: all files are rewritten, and every reader can still read "
            "the table; or only metadata changes, with Delta features that some readers lack.",
        ),
        *LOG_OPTIONS,
        LITERAL_SECRETS,
    )
}

PREFIXES: Mapping[str, str] = {
    "view.setting.": "A setting of Spark with which the query of a maintained view runs, such as "
    "view.setting.spark.sql.session.timeZone: those of the session that created the view, so that each refresh has the "
    "same rows. Fixed.",
    "log.kafka.properties.": "Passed unchanged to the Kafka clients (librdkafka), e.g. "
    "log.kafka.properties.security.protocol. SASL PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 and TLS with PEM files are "
    "supported. The values are stored in the Delta log, which whoever may read the table may read. So passwords are "
    "references, ${env:NAME} or ${file:/path}, which each process that connects resolves (docs/operating.md, Secrets).",
}
