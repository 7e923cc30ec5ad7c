"""Table options: every name, type, default and meaning in one table.

`OPTIONS` is the single source: parsing, documentation and error messages are drawn from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from filestore.model.functions import DEFAULT_FUNCTION, FUNCTIONS

__all__ = ["FIELD_OPTIONS", "FIELD_PREFIX", "OPTIONS", "PREFIXES", "OneOf", "Option", "column_names"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, how its text is read, its default's text and one sentence of meaning."""

    name: str
    kind: str
    parse: Callable[[str], Any]
    default: str | None
    doc: str


_SIZE_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def _size(text: str) -> int:
    match = re.fullmatch(r"\s*([0-9]+)\s*([kmgt]?b?)\s*", text.lower())
    unit = match[2] if match else ""
    unit = unit if unit.endswith("b") or not unit else unit + "b"
    if match is None or int(match[1]) == 0:
        raise ValueError("a size above zero such as '128 mb'")
    return int(match[1]) * _SIZE_UNITS[unit]


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


@dataclass(frozen=True, slots=True)
class OneOf:
    """Reads one of some texts."""

    choices: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """The text, if it is one of them."""
        if text not in self.choices:
            raise ValueError(" or ".join(repr(c) for c in self.choices))
        return text


def _one_of(*choices: str) -> OneOf:
    return OneOf(choices)


_TIME_UNITS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*(ms|s|min|h|d)\s*", text.lower())
    if match is None or int(match[1]) == 0:
        raise ValueError("a time above zero such as '30 min' (units: ms, s, min, h, d)")
    return timedelta(milliseconds=int(match[1]) * _TIME_UNITS[match[2]])


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("'true' or 'false'")
    return text.lower() == "true"


def _any_text(text: str) -> str:
    return text


def column_names(text: str) -> tuple[str, ...]:
    """The names in a list of columns; `ValueError` says what is expected."""
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError("column names separated by commas")
    return names


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("a text that is not empty")
    return text


OPTIONS: Mapping[str, Option] = {
    o.name: o
    for o in (
        Option(
            "bucket",
            "integer",
            _whole(1, 4096),
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
            _one_of("deduplicate", "partial-update", "aggregation", "first-row"),
            "deduplicate",
            "How the rows of a key become one: the last wins; column by column the last value that is not null wins; "
            "each column has its aggregate function; the first stays.",
        ),
        Option(
            "ignore-delete",
            "boolean",
            _flag,
            "false",
            "Rows that take away (-U, -D) change nothing.",
        ),
        Option(
            "partial-update.remove-record-on-delete",
            "boolean",
            _flag,
            "false",
            "With merge-engine = partial-update a -D removes the row; without it, it is an error.",
        ),
        Option(
            "aggregation.remove-record-on-delete",
            "boolean",
            _flag,
            "false",
            "With merge-engine = aggregation a -D removes the row instead of taking its values back.",
        ),
        Option(
            "fields.default-aggregate-function",
            "enum",
            _one_of(*FUNCTIONS),
            DEFAULT_FUNCTION,
            "With merge-engine = aggregation the function of the columns that have none of their own.",
        ),
        Option(
            "sequence.field",
            "column",
            _text,
            None,
            "Column that orders the rows of a key: a row below the stored value changes nothing.",
        ),
        Option(
            "write-mode",
            "enum",
            _one_of("merge-on-write", "merge-on-read"),
            "merge-on-write",
            "When a write is merged: at its commit, so that every Delta reader sees it at once; or later, by a "
            "compaction: commits then cost the same however large the table is, our readers merge what is pending as "
            "they read, and other readers see the table as it was folded last.",
        ),
        Option(
            "changelog-producer",
            "enum",
            _one_of("none", "input", "lookup", "full-compaction"),
            "none",
            "What Delta's change data feed gives: nothing; the rows as they came, for inputs that are complete "
            "changelogs; exact images of each changed row, from the old rows found by look-up; the same, at each full "
            "compaction.",
        ),
        Option(
            "full-compaction.delta-commits",
            "integer",
            _whole(1, 1_000_000),
            None,
            "With changelog-producer = full-compaction: a full compaction is due after so many commits.",
        ),
        Option(
            "changelog-producer.compaction-interval",
            "duration",
            _duration,
            "30 min",
            "With changelog-producer = full-compaction: a full compaction is due after this time, e.g. 1 h.",
        ),
        Option(
            "target-file-size",
            "size",
            _size,
            "128 mb",
            "A bucket's writer starts a new data file at about this size.",
        ),
        Option(
            "write-buffer-size",
            "size",
            _size,
            "192 mb",
            "Rows that a writing task sorts in memory, which takes two to four times as much; more are sorted in runs "
            "on its local disk, and merged.",
        ),
        Option(
            "row-group.rows",
            "integer",
            _whole(1024, 10_000_000),
            "131072",
            "Rows of a Parquet row group: the unit of pruning, of look-ups and of a worker's memory.",
        ),
        Option(
            "file.compression",
            "enum",
            _one_of("zstd", "snappy", "lz4", "none"),
            "zstd",
            "Compression of data files.",
        ),
        Option(
            "checkpoint.interval",
            "integer",
            _whole(1, 10_000),
            "10",
            "A Delta checkpoint is written after every so many versions.",
        ),
        Option(
            "commit.max-retries",
            "integer",
            _whole(0, 10_000),
            "100",
            "How often a commit that lost the race is rebased and tried again.",
        ),
        Option(
            "num-sorted-run.compaction-trigger",
            "integer",
            _whole(2, 10_000),
            "5",
            "A bucket with at least so many sorted runs is chosen by a compaction.",
        ),
        Option(
            "log.system",
            "enum",
            _one_of("none", "embedded", "kafka"),
            "embedded",
            "Where changes are logged: nowhere, in SQLite files inside the table's folder, or in a Kafka topic.",
        ),
        Option(
            "log.consistency",
            "enum",
            _one_of("transactional"),
            "transactional",
            "When a reader of the log sees a change: once the snapshot that covers it is committed.",
        ),
        Option(
            "log.kafka.bootstrap.servers",
            "text",
            _text,
            None,
            "Kafka brokers as host:port, separated by commas; needed when log.system = kafka.",
        ),
        Option(
            "log.kafka.topic",
            "text",
            _text,
            None,
            "Topic of the log; default: <database>.<table>.<table uuid>.",
        ),
        Option(
            "log.kafka.replication-factor",
            "integer",
            _whole(1, 100),
            "1",
            "Replication factor of the topic that is created.",
        ),
    )
}

FIELD_PREFIX = "fields."
FIELD_OPTIONS: Mapping[str, Option] = {
    o.name: o
    for o in (
        Option(
            "aggregate-function",
            "enum",
            _one_of(*FUNCTIONS),
            None,
            "How the column's values become one, with merge-engine = aggregation or partial-update.",
        ),
        Option(
            "ignore-retract",
            "boolean",
            _flag,
            "false",
            "Rows that take away (-U, -D) leave this column as it is.",
        ),
        Option(
            "list-agg-delimiter",
            "text",
            _any_text,
            ",",
            "What stands between the texts of a listagg.",
        ),
        Option(
            "distinct",
            "boolean",
            _flag,
            "false",
            "A collect keeps each element once.",
        ),
        Option(
            "nested-key",
            "column list",
            column_names,
            None,
            "Fields that tell the structs of a nested_update apart; without them structs are only added.",
        ),
        Option(
            "sequence-group",
            "column list",
            column_names,
            None,
            "With merge-engine = partial-update: these columns follow the row with the highest value of the column (or "
            "columns, separated by commas) that the option is named by.",
        ),
    )
}
"""Options of single columns, ``fields.<column>.<name>``."""

PREFIXES: Mapping[str, str] = {
    "log.kafka.properties.": "Passed to the Kafka clients as it is, e.g. log.kafka.properties.security.protocol."
}
