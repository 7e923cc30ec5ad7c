"""Table options: every name, type, default and meaning in one table.

`OPTIONS` is the single source: parsing, documentation and error messages are drawn from it. Values
are kept as the strings that the user wrote; `TableOptions` parses them on access.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.functions import DEFAULT_FUNCTION, FUNCTIONS

__all__ = ["FIELD_OPTIONS", "OPTIONS", "PREFIXES", "OneOf", "Option", "TableOptions"]


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


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("'true' or 'false'")
    return text.lower() == "true"


def _any_text(text: str) -> str:
    return text


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
            _names,
            None,
            "Fields that tell the structs of a nested_update apart; without them structs are only added.",
        ),
        Option(
            "sequence-group",
            "column list",
            _names,
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

    def of_field(self, column: str) -> dict[str, Any]:
        """What was given for a column, parsed, by the option's name; sequence groups left out."""
        return {
            option.name: option.parse(text)
            for name, option, text in self._field_options()
            if name == column and option.name != "sequence-group"
        }

    def field_columns(self) -> list[str]:
        """The columns that options of fields name; sequence groups left out."""
        return [name for name, option, _ in self._field_options() if option.name != "sequence-group"]

    def sequence_groups(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Each group's sequence columns and its members."""
        return [
            (_names(name), option.parse(text))
            for name, option, text in self._field_options()
            if option.name == "sequence-group"
        ]

    def _field_options(self) -> Iterator[tuple[str, Option, str]]:
        for name, text in self.given:
            if (found := _field_option(name)) is not None:
                yield (*found, text)

    def as_dict(self) -> dict[str, str]:
        """What was given, by name."""
        return dict(self.given)


def _field_option(name: str) -> tuple[str, Option] | None:
    """The column (of a sequence group: columns) and the option of a ``fields.<column>.<option>``."""
    if not name.startswith(FIELD_PREFIX) or name in OPTIONS:
        return None
    column, _, last = name.removeprefix(FIELD_PREFIX).rpartition(".")
    return (column, FIELD_OPTIONS[last]) if column and last in FIELD_OPTIONS else None


def _refuse_unknown_field_option(name: str) -> None:
    column, _, last = name.removeprefix(FIELD_PREFIX).rpartition(".")
    if name.startswith(FIELD_PREFIX) and column:
        near = difflib.get_close_matches(last, FIELD_OPTIONS, n=1, cutoff=0.5)
        hint = f"did you mean 'fields.{column}.{near[0]}'?" if near else f"known: {', '.join(FIELD_OPTIONS)}"
        raise InvalidRequest(f"unknown option {name!r} of column {column!r}: {hint}", code="unknown-option")


def _check(name: str, value: str) -> None:
    if any(name.startswith(prefix) and name != prefix for prefix in PREFIXES):
        return
    field = _field_option(name)
    option = field[1] if field else OPTIONS.get(name)
    if option is None:
        _refuse_unknown_field_option(name)
        near = difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known options: {', '.join(OPTIONS)}"
        raise InvalidRequest(f"unknown option {name!r}: {hint}", code="unknown-option")
    try:
        option.parse(value)
    except ValueError as error:
        raise InvalidRequest(
            f"option {name!r} has value {value!r}; it takes {error}", code="bad-option-value"
        ) from error
