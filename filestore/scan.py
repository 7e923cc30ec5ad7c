"""Local scans: a version and a condition become a plan (pure), the plan becomes rows, row group by row group.

Memory: a row group for each core and one more; of a filtered one first only the columns that the condition reads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from filestore.bounds import file_bounds, row_group_bounds
from filestore.delta.state import TableState
from filestore.frames import arrow_table
from filestore.model.files import DataFile
from filestore.predicate import Condition, Predicate
from filestore.pruning import may_hold
from filestore.row_groups import Mask, RowGroups
from filestore.writer import TableFiles

__all__ = ["ScanPlan", "plan_scan", "scan", "scan_frames", "scan_table"]

Rows = TypeVar("Rows")


@dataclass(frozen=True, slots=True, eq=False)
class ScanPlan:
    """What a scan of one version reads. Picklable.

    Attributes:
        version: The table's version.
        schema: What comes out.
        files: Those that may hold a wanted row.
        condition: Which rows are wanted; all if None.
    """

    version: int
    schema: pa.Schema
    files: tuple[DataFile, ...]
    condition: Condition | None = None


def plan_scan(state: TableState, columns: Sequence[str] | None = None, where: Predicate | None = None) -> ScanPlan:
    """Plans a scan. Pure.

    Args:
        state: The version to read.
        columns: Which columns, in which order; all if None.
        where: Which rows.

    Raises:
        NotFound: a column that is not there.
        InvalidRequest: no columns or one twice, or a condition that cannot be evaluated (see `Condition.of`).
    """
    definition = state.definition
    schema = (definition.schema if columns is None else definition.schema.select(columns)).to_arrow()
    files = tuple(state.files.values())
    if where is None:
        return ScanPlan(state.version, schema, files)
    condition = Condition.of(where, definition.schema)
    if not condition.columns:  # 1 = 1
        always = condition.wanted(pl.DataFrame(height=1)).all()
        return ScanPlan(state.version, schema, files if always else ())
    hits = may_hold(condition.expression, file_bounds(files, condition.columns, definition))
    kept = tuple(file for file, hit in zip(files, hits, strict=True) if hit)
    return ScanPlan(state.version, schema, kept, condition)


def scan(table: TableFiles, plan: ScanPlan) -> Iterator[pa.Table]:
    """The rows of a plan as Arrow tables of exactly its schema; one a row group, empty ones left out."""
    return _read_ahead(table, plan, lambda frame: arrow_table(frame, plan.schema))


def scan_table(table: TableFiles, plan: ScanPlan) -> pa.Table:
    """All rows of a plan."""
    return pa.concat_tables([plan.schema.empty_table(), *scan(table, plan)])


def scan_frames(table: TableFiles, plan: ScanPlan) -> Iterator[pl.DataFrame]:
    """The rows of a plan as polars frames; one a row group, empty ones left out."""
    return _read_ahead(table, plan, lambda frame: frame)


def _read_ahead(table: TableFiles, plan: ScanPlan, finish: Callable[[pl.DataFrame], Rows]) -> Iterator[Rows]:
    """Row groups in order, decoded by a thread for each core while the first ones are used."""
    threads = os.cpu_count() or 1
    pool = ThreadPoolExecutor(threads, "scan")
    reading: deque[Future[Rows | None]] = deque()
    try:
        for groups, group in _row_groups(table, plan):
            reading.append(pool.submit(_finished, plan, groups, group, finish))
            if len(reading) > threads and (rows := reading.popleft().result()) is not None:
                yield rows
        while reading:
            if (rows := reading.popleft().result()) is not None:
                yield rows
    finally:  # also when the reader stops in the middle
        pool.shutdown(cancel_futures=True)


def _finished(plan: ScanPlan, groups: RowGroups, group: int, finish: Callable[[pl.DataFrame], Rows]) -> Rows | None:
    frame = _frame(plan, groups, group)
    return None if frame is None else finish(frame)


def _row_groups(table: TableFiles, plan: ScanPlan) -> Iterator[tuple[RowGroups, int]]:
    """The row groups that may hold a wanted row."""
    for file in plan.files:
        groups = RowGroups(table, file)
        for group in np.flatnonzero(_hits(table, plan, file, groups)):
            yield groups, int(group)


def _hits(table: TableFiles, plan: ScanPlan, file: DataFile, groups: RowGroups) -> Mask:
    """For each row group whether it may hold a wanted row."""
    if plan.condition is None:
        return np.ones(len(groups), dtype=np.bool_)
    bounds = row_group_bounds(groups.footer, file, plan.condition.columns, table.definition)
    return may_hold(plan.condition.expression, bounds)


def _frame(plan: ScanPlan, groups: RowGroups, group: int) -> pl.DataFrame | None:
    """The wanted live rows of a row group; None if there are none."""
    names, condition, alive = plan.schema.names, plan.condition, groups.alive(group)
    if not alive.any():
        return None
    if condition is None:
        return groups.read(group, names, alive)
    # A dead row is never judged: a condition may fail on what it should not see.
    judged = groups.read(group, condition.columns, alive)
    wanted = condition.wanted(judged)
    if not wanted.any():
        return None
    alive[alive] = wanted.to_numpy()
    rest = [name for name in names if name not in condition.columns]
    more = groups.read(group, rest, alive).get_columns() if rest else []
    return judged.filter(wanted).hstack(more).select(names)
