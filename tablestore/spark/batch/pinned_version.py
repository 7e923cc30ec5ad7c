"""A relation of one row that says which version of a table is the newest one as a micro-batch runs.

Spark reads it in one task of each micro-batch and broadcasts the row. So all tasks of a look-up join read the same
version, also those that Spark tries again.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from filestore.delta.state import TableState
from managed_table.opened import OpenedTable
from tablestore.reading.log_tail import VisibleTail
from tablestore.spark.opened import opened

__all__ = ["LOG", "PIN", "VERSION", "PinnedVersionReader", "pickled_log", "pinned_type", "wants_pin"]

PIN = "pin"
"""The option that asks for it: ``version``, or ``fresh`` for the log beyond the version, too."""
VERSION, LOG = "__lookup_version", "__lookup_log"
"""The columns of the relation: the version, and with ``fresh`` the pickled parts of the log (`TailPart`)."""


def wants_pin(options: Mapping[str, str]) -> bool:
    """Returns whether options ask for this relation."""
    return PIN in options


def pinned_type() -> StructType:
    """The columns of the relation."""
    return StructType([StructField(VERSION, LongType()), StructField(LOG, BinaryType())])


def pickled_log(table: OpenedTable, state: TableState) -> bytes | None:
    """Returns what an eventual log has beyond a version, up to its end now, as pickled `TailPart`; None without any."""
    tail = VisibleTail.of(table, state.definition)
    return None if tail is None else pickle.dumps(tail.parts(state))


class PinnedVersionReader(DataSourceReader):
    """Reads the newest version when its task runs, since Spark may plan a read long before, and once for many."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the table's newest version, and then where its log ends."""
        table = opened(self._options)
        state = table.filestore.state()
        log = pickled_log(table, state) if self._options[PIN] == "fresh" else None
        columns = [pa.array([state.version], pa.int64()), pa.array([log], pa.binary())]
        yield pa.record_batch(columns, names=[VERSION, LOG])
