"""Table options: every name, type, default and meaning in one table.

`OPTIONS` is the single source: parsing, documentation and error messages are drawn from it. Values
are kept as the strings that the user wrote; `TableOptions` parses them on access.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from filestore.errors import InvalidRequest

__all__ = ["OPTIONS", "PREFIXES", "Option", "TableOptions"]


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


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(" or ".join(repr(c) for c in choices))
        return text

    return parse


def _names(text: str) -> tuple[str, ...]:
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
            _names,
            None,
            "Columns whose hash chooses the bucket; default: the primary key without the partition columns. "
            "With a primary key they must be part of it.",
        ),
        Option(
            "merge-engine",
            "enum",
            _one_of("deduplicate"),
            "deduplicate",
            "How rows of one key become one row: the last row wins.",
        ),
        Option(
            "sequence.field",
            "column",
            _text,
            None,
            "Column that orders the rows of a key: a row below the stored value changes nothing.",
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

PREFIXES: Mapping[str, str] = {
    "log.kafka.properties.": "Passed to the Kafka clients as it is, e.g. log.kafka.properties.security.protocol."
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options that a table was given, checked. Defaults are not stored, so a later default reaches it."""

    given: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> TableOptions:
        """Checks names and values.

        Raises:
            InvalidRequest: an unknown name (``unknown-option``, with the nearest known one) or a value that does
                not parse (``bad-option-value``, with what is expected).
        """
        for name, value in given.items():
            _check(name, str(value))
        return cls(tuple(sorted((name, str(value)) for name, value in given.items())))

    def __getitem__(self, name: str) -> Any:
        """The parsed value, or the parsed default (None where there is none)."""
        option = OPTIONS[name]
        text = dict(self.given).get(name, option.default)
        return None if text is None else option.parse(text)

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """The options below a pass-through prefix, by the rest of their names."""
        return {name.removeprefix(prefix): value for name, value in self.given if name.startswith(prefix)}

    def as_dict(self) -> dict[str, str]:
        """What was given, by name."""
        return dict(self.given)


def _check(name: str, value: str) -> None:
    if any(name.startswith(prefix) and name != prefix for prefix in PREFIXES):
        return
    option = OPTIONS.get(name)
    if option is None:
        near = difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known options: {', '.join(OPTIONS)}"
        raise InvalidRequest(f"unknown option {name!r}: {hint}", code="unknown-option")
    try:
        option.parse(value)
    except ValueError as error:
        raise InvalidRequest(
            f"option {name!r} has value {value!r}; it takes {error}", code="bad-option-value"
        ) from error
