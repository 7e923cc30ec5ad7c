"""Plans which files of a version a query of Spark reads, if the version has nothing but Parquet files and vectors.

``PlainScans.java`` asks, each time that a query is planned. Delta's planning would find the same files by Spark jobs.
"""

from __future__ import annotations

import itertools
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from filestore.delta.state import TableState
from filestore.errors import NotFound, TableStoreError
from filestore.lazily import pl
from filestore.model.files import DataFile, Partition
from filestore.model.schema import Schema
from filestore.reading.scan import plan_scan
from filestore.table import FileStore
from tablestore.spark.batch.whole_files import hides_values
from tablestore.spark.jobs.java_classes import our_class

__all__ = ["handled", "plain_files", "plain_version", "use_plain_scans"]

_MOST_TABLES = 256
_KEPT_STATES = 4
_numbers = itertools.count()
_handles: WeakKeyDictionary[FileStore, str] = WeakKeyDictionary()
_states: WeakKeyDictionary[FileStore, OrderedDict[int, TableState]] = WeakKeyDictionary()
"""The older versions that queries have named last: each would be replayed from the log again."""
_tables: OrderedDict[str, FileStore] = OrderedDict()
"""The tables that this process reads without a catalog of Spark, by the handles that Java knows."""

_OPERATORS: Mapping[str, Callable[[pl.Expr, pl.Series], pl.Expr]] = {
    "=": lambda column, values: column == values[0],
    "<": lambda column, values: column < values[0],
    "<=": lambda column, values: column <= values[0],
    ">": lambda column, values: column > values[0],
    ">=": lambda column, values: column >= values[0],
    "in": lambda column, values: column.is_in(values.implode()),
}


def use_plain_scans(spark: SparkSession, files: FileStore) -> None:
    """Makes a session ask this module when it plans queries of a table; does nothing in a session without our jar."""
    scans = our_class(spark.sparkContext, "PlainScans")
    if scans is None:
        return
    handle = _handles.setdefault(files, str(next(_numbers)))
    _tables[handle] = files
    _tables.move_to_end(handle)
    while len(_tables) > _MOST_TABLES:
        _tables.popitem(last=False)
    scans.know(spark._jsparkSession, files.location, json.dumps({"handle": handle}))


def handled(request: Mapping[str, Any]) -> Any:
    """Answers a request about a table that `use_plain_scans` has named."""
    files = _tables.get(request["handle"])
    if request["operation"] == "plain_version":  # without an answer Delta plans the query
        try:
            return {} if files is None else plain_version(files, request["planned"], pinned=request["pinned"])
        except (RuntimeError, OSError):  # its store was closed
            return {}
    if files is None:
        raise NotFound("too many tables were read since this query was planned: run it again", code="no-table")
    return plain_files(files, request["version"], request["conditions"])


def plain_version(files: FileStore, planned: int, *, pinned: bool) -> dict[str, int]:
    """Says which version a query reads, its bytes, and whether files have deletion vectors.

    None of that if there is more to the version than its Parquet files and vectors. ``hides`` is there in any case, and
    says whether Parquet's reader must not skip row groups, since it would miss a NaN (FORMAT.md section 7, rule 9).

    Args:
        files: The table.
        planned: The version with which the query was analyzed.
        pinned: Whether it reads that version, and not the newest one.
    """
    try:
        known = _state(files, planned)
        state = known if pinned else files.state()
    except TableStoreError:
        return {}  # such as an expired version: Delta says what is wrong
    hides: dict[str, int] = {"hides": hides_values(state)}
    if not _is_plain(state) or state.definition.schema != known.definition.schema:
        return hides
    return hides | {
        "version": state.version,
        "bytes": state.totals.size,
        "vectors": state.totals.vectors > 0,
    }


def _state(files: FileStore, version: int) -> TableState:
    newest = files.state()
    if newest.version == version:
        return newest
    kept = _states.setdefault(files, OrderedDict())
    state = kept.pop(version, None) or files.state(version)
    kept[version] = state
    while len(kept) > _KEPT_STATES:
        kept.popitem(last=False)
    return state


def _is_plain(state: TableState) -> bool:
    """Returns whether the version's rows are those of its Parquet files without those in its vectors. Pure."""
    return not state.definition.features and not state.pending


def plain_files(files: FileStore, version: int, conditions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the files that may hold wanted rows, by partition.

    Args:
        files: The table.
        version: The version to read.
        conditions: ``column``, ``operator`` and ``values``, as texts in UTC; a wanted row fulfils all of them.

    Returns:
        For each partition ``values``, as Delta writes them, and ``files`` with path, bytes, time in milliseconds, and
        the descriptor of the vector, if there is one.
    """
    state = _state(files, version)
    parts = [part for part in (_expression(c, state.definition.schema) for c in conditions) if part is not None]
    wanted = plan_scan(state, where=reduce(and_, parts) if parts else None).files
    by_partition: dict[Partition, list[DataFile]] = {}
    for file in wanted:
        by_partition.setdefault(file.slot.partition, []).append(file)
    return [
        {
            "values": [value for _, value in partition],
            "files": [_described(file) for file in listed],
        }
        for partition, listed in by_partition.items()
    ]


def _described(file: DataFile) -> list[Any]:
    described = [file.path, file.size, file.modified_ms]
    return described if file.vector is None else [*described, file.vector.to_action()]


def _expression(condition: Mapping[str, Any], schema: Schema) -> pl.Expr | None:
    """The condition for polars; None if its values are of a type that is not compared the same way by both."""
    if condition["column"] not in schema:
        return None
    column = schema.column(condition["column"])
    texts = [text for text in condition["values"] if text is not None]
    values = _values(texts, column.type)
    if not texts or values is None:
        return None
    return _OPERATORS[condition["operator"]](pl.col(column.name), values)


def _values(texts: Sequence[str], type_: pa.DataType) -> pl.Series | None:
    if not (
        pa.types.is_integer(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_date(type_)
        or pa.types.is_timestamp(type_)
    ):
        return None
    zone = "Z" if pa.types.is_timestamp(type_) and type_.tz is not None else ""
    try:
        found = pl.from_arrow(pc.cast(pa.array([text + zone for text in texts], pa.string()), type_))
    except pa.ArrowInvalid:  # such as a year that Arrow does not parse
        return None
    assert isinstance(found, pl.Series)
    return found
