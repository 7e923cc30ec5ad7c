"""A Kafka table as options of ``format("tablestore")``, by which Spark's own processes read it without a catalog."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.table_columns import TableColumns
from log.connector.declaration import KafkaDeclaration
from log.connector.ranges import PartitionRange
from tablestore.following.result_mode import ResultMode, result_mode
from tablestore.spark.opened import token_of
from tablestore.spark.streaming.options import whole_option
from tablestore.topics.spec import is_complete, state_unused

__all__ = ["RECORDS_PER_TASK", "KafkaRead", "kafka_read"]

RECORDS_PER_TASK = 1_000_000
"""The default for the largest number of messages that a task of a batch reads."""

_CHANGELOG_ROWS = 1_000_000  # a task that finds the rows before holds a quarter of its batch

# Spark hides the values of options whose names say that they are secret: the table's may have passwords among them.
_DECLARATION = "declarationSecret"


@dataclass(frozen=True, slots=True)
class KafkaRead:
    """The options of a read of a Kafka table.

    Attributes:
        declaration: The table, with the reader's own ``scan.*`` options.
        columns: ``columns``, as JSON: the columns to read; all if None.
        ranges: ``ranges``, as JSON: the offsets to read; None for those that the topic has when the query runs.
        records_per_task: ``maxRecordsPerTask``: the largest number of messages for a task of a batch read.
        rows_per_batch: ``maxRowsPerBatch``: of a stream.
        mode: ``mode``: what it gets of an update.
        state: ``state``: of a stream that gets complete changes, the folder of what is known of the keys.
    """

    declaration: KafkaDeclaration
    columns: tuple[str, ...] | None = None
    ranges: tuple[PartitionRange, ...] | None = None
    records_per_task: int = RECORDS_PER_TASK
    rows_per_batch: int | None = None
    mode: ResultMode = ResultMode.UPSERT
    state: str | None = None

    @property
    def normalizes(self) -> bool:
        """Returns whether it has to find the rows that changes replace."""
        return self.mode is ResultMode.CHANGELOG and not is_complete(self.declaration)

    @property
    def most_rows(self) -> int | None:
        """The largest number of messages in a micro-batch; None without a limit."""
        return self.rows_per_batch or (_CHANGELOG_ROWS if self.normalizes else None)

    def check_state(self) -> None:
        """Checks the option ``state`` of a stream. `InvalidRequest`: ``state-missing`` or ``state-unused``."""
        if self.normalizes and self.state is None:
            raise InvalidRequest(
                f"a stream of the complete changes of topic {self.declaration.topic} needs state: a folder of its own, "
                "on a disk that all workers have",
                code="state-missing",
            )
        if self.state is not None and not self.normalizes:
            raise state_unused(self.state)

    def to_options(self) -> dict[str, str]:
        """Converts it to options for Spark, which are texts."""
        table = self.declaration
        declared = {
            "columns": base64.b64encode(table.columns.to_arrow().serialize()).decode(),
            "key": table.primary_key,
            "options": table.options,
        }
        return {
            _DECLARATION: json.dumps(declared),
            "maxRecordsPerTask": str(self.records_per_task),
            "mode": str(self.mode),
            **({} if self.state is None else {"state": self.state}),
            **({} if self.columns is None else {"columns": json.dumps(self.columns)}),
            **({} if self.ranges is None else {"ranges": json.dumps([_spelled(r) for r in self.ranges])}),
            **({} if self.rows_per_batch is None else {"maxRowsPerBatch": str(self.rows_per_batch)}),
        }

    @classmethod
    def of(cls, declaration: KafkaDeclaration, options: Mapping[str, str]) -> Self:
        """Parses the options of a read of a table; the case of their names does not matter.

        Raises:
            InvalidRequest: ``bad-option-value``, ``bad-result-mode``, or an option ``scan.*`` that is none.
        """
        given = {name.lower(): value for name, value in options.items()}
        scan = {name: value for name, value in given.items() if name.startswith("scan.")}
        columns, ranges = given.get("columns"), given.get("ranges")
        return cls(
            declaration.with_scan(scan),
            None if columns is None else tuple(_list("columns", columns)),
            None if ranges is None else _ranges(_list("ranges", ranges)),
            whole_option(given, "maxRecordsPerTask", least=1) or RECORDS_PER_TASK,
            whole_option(given, "maxRowsPerBatch", least=1),
            result_mode(given.get("mode", str(ResultMode.UPSERT))),
            given.get("state"),
        )


def kafka_read(options: Mapping[str, str]) -> KafkaRead | None:
    """Parses options; returns None if the table that they name is not a Kafka table.

    Args:
        options: Those of `KafkaRead.to_options`; or ``path`` and ``catalog`` (and ``token-file``), as for managed
            tables, and perhaps ``scan.*``, ``columns``, ``maxRecordsPerTask``, ``maxRowsPerBatch``, ``mode``,
            ``state``.

    Raises:
        InvalidRequest: as `KafkaRead.of`.
        NotFound: there is no such table.
    """
    given = {name.lower(): value for name, value in options.items()}
    if (text := given.get(_DECLARATION.lower())) is not None:
        declared = json.loads(text)
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(declared["columns"])))
        return KafkaRead.of(
            KafkaDeclaration.of(TableColumns.from_arrow(schema), declared["key"], declared["options"]), given
        )
    if "$" in given.get("path", "$") or not given.get("catalog") or given.get("location"):
        return None
    from tablestore.kafka_table import KafkaTable  # the catalog takes a second to import
    from tablestore.store import connect

    with connect(given["catalog"], token=token_of(given)) as store:
        table = store.any_table(given["path"])
    return KafkaRead.of(table.declaration, given) if isinstance(table, KafkaTable) else None


def _list(option: str, text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, list):
        raise InvalidRequest(f"{option} = {text!r} is not a list as JSON", code="bad-option-value")
    return found


def _spelled(part: PartitionRange) -> Sequence[int]:
    return part.partition, part.start, part.end


def _ranges(spelled: Iterable[Sequence[int]]) -> tuple[PartitionRange, ...]:
    return tuple(PartitionRange(*part) for part in spelled)
