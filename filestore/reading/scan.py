"""Local scans: a version and a condition become a plan (pure), the plan becomes rows, row group by row group.

Memory: a row group for each core and one more; of a filtered one first only the columns that the condition reads.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from filestore.delta.state import TableState
from filestore.files.bounds import file_bounds, row_group_bounds
from filestore.files.row_groups import Mask, RowGroups
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile, Slot
from filestore.reading.bucket_pruning import wanted_buckets
from filestore.reading.key_filters import KeyCondition
from filestore.reading.overlay import Overlaid, PendingSlot, dead_rows, merged_chunks_of, pending_slots
from filestore.reading.predicate import Condition, Predicate
from filestore.reading.pruning import may_hold
from filestore.rows.frames import arrow_table
from filestore.writing.slot_result import Dying

__all__ = ["ScanPlan", "plan_scan", "scan", "scan_frames", "scan_table"]

Rows = TypeVar("Rows")
Result = TypeVar("Result")
Positions = npt.NDArray[np.int64]
Part = Callable[[], pl.DataFrame | None]


@dataclass(frozen=True, slots=True, eq=False)
class ScanPlan:
    """What a scan of one version reads. Picklable.

    Attributes:
        version: The table's version.
        schema: What comes out.
        files: Those that may hold a wanted row.
        condition: Which rows are wanted; all if None.
        pending: Slots with runs that are merged as they are read; their files are among `files` too.
    """

    version: int
    schema: pa.Schema
    files: tuple[DataFile, ...]
    condition: Condition | None = None
    pending: tuple[PendingSlot, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows come out at most."""
        return sum(f.live_rows for f in self.files) + sum(run.rows for slot in self.pending for run in slot.runs)

    @property
    def bucket(self) -> int:
        """Of one of its `parts`: the bucket of all rows."""
        return self.pending[0].slot.bucket if self.pending else self.files[0].slot.bucket

    def parts(self) -> list[ScanPlan]:
        """The plan as plans that can run anywhere: one for each file, and for each slot with pending runs one for all.

        Their order depends on nothing but the version.
        """
        overlaid = {pending.slot for pending in self.pending}
        settled = sorted((f for f in self.files if f.slot not in overlaid), key=lambda f: f.path)
        parts = [replace(self, files=(file,), pending=()) for file in settled]
        for pending in sorted(self.pending, key=lambda p: p.runs[0].path):
            parts.append(
                replace(self, files=tuple(f for f in self.files if f.slot == pending.slot), pending=(pending,))
            )
        return parts


def plan_scan(state: TableState, columns: Sequence[str] | None = None, where: Predicate | None = None) -> ScanPlan:
    """Plans a scan. Pure.

    Args:
        state: The version to read.
        columns: Which columns, in which order, at least one; all if None.
        where: Which rows.

    Raises:
        NotFound: a column that is not there.
        InvalidRequest: no columns or one twice, or a condition that cannot be evaluated (see `Condition.of`).
    """
    definition = state.definition
    schema = (definition.schema if columns is None else definition.schema.select(columns)).to_arrow()
    files, pending = tuple(state.files.values()), pending_slots(state)
    if where is None:
        return ScanPlan(state.version, schema, files, None, pending)
    condition = Condition.of(where, definition.schema)
    if not condition.columns:  # 1 = 1
        always = condition.wanted(pl.DataFrame(height=1)).all()
        return ScanPlan(state.version, schema, files, None, pending) if always else ScanPlan(state.version, schema, ())
    buckets = wanted_buckets(condition.expression, definition)

    def hits(listed: Sequence[DataFile]) -> Iterator[bool]:
        found = may_hold(condition.expression, file_bounds(listed, condition.columns, definition))
        return (hit and (buckets is None or f.slot.bucket in buckets) for f, hit in zip(listed, found, strict=True))

    kept = tuple(itertools.compress(files, hits(files)))
    # by its place only: what a run makes of a stored row is wanted or not whatever the run itself holds
    anything = [replace(slot.runs[0].as_file(), min_key=None, max_key=None) for slot in pending]
    slots = itertools.compress(pending, hits(anything))
    return ScanPlan(state.version, schema, kept, condition, tuple(slots))


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
    pool = ThreadPoolExecutor(os.cpu_count() or 1, "scan")
    try:
        calls = (partial(_finished, part, finish) for part in _parts(table, plan, pool))
        yield from (rows for rows in _ahead(pool, calls) if rows is not None)
    finally:  # also when the reader stops in the middle
        pool.shutdown(cancel_futures=True)


def _ahead(pool: ThreadPoolExecutor, calls: Iterable[Callable[[], Result]]) -> Iterator[Result]:
    """What the calls give, in their order, with one for each core under way."""
    threads = os.cpu_count() or 1
    running: deque[Future[Result]] = deque()
    for call in calls:
        running.append(pool.submit(call))
        if len(running) > threads:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


def _finished(part: Part, finish: Callable[[pl.DataFrame], Rows]) -> Rows | None:
    frame = part()
    return None if frame is None else finish(frame)


def _parts(table: TableFiles, plan: ScanPlan, pool: ThreadPoolExecutor) -> Iterator[Part]:
    """The pieces of a scan, each to be read by any thread: the row groups that may hold a wanted row, and merged rows.

    Slots with pending runs come one by one, so that what is dead is held for a few of them only.
    """
    by_slot: dict[Slot, list[DataFile]] = {pending.slot: [] for pending in plan.pending}
    for file in plan.files:
        if file.slot in by_slot:
            by_slot[file.slot].append(file)
        else:
            yield from _row_groups(table, plan, file)
    if table.definition.merges_values:
        keys = KeyCondition.of(plan.condition, table.definition)
        for pending in plan.pending:
            found = Overlaid(Dying(table, pending.base))
            for chunk in merged_chunks_of(table, pending, found, keys):
                yield partial(_wanted, plan, chunk.outcome.puts())
            yield from _live_rows(table, plan, by_slot[pending.slot], found.dead.rows(), keys)
        return
    calls = (partial(dead_rows, table, pending, by_slot[pending.slot]) for pending in plan.pending)
    for pending, dead in zip(plan.pending, _ahead(pool, calls), strict=True):
        files = [*by_slot[pending.slot], *(run.as_file() for run in pending.runs)]
        yield from _live_rows(table, plan, files, dead)


def _live_rows(
    table: TableFiles,
    plan: ScanPlan,
    files: Iterable[DataFile],
    dead: Mapping[str, Positions],
    keys: KeyCondition | None = None,
) -> Iterator[Part]:
    for file in files:
        yield from _row_groups(table, plan, file, dead.get(file.path), keys)


def _row_groups(
    table: TableFiles,
    plan: ScanPlan,
    file: DataFile,
    dead: Positions | None = None,
    keys: KeyCondition | None = None,
) -> Iterator[Part]:
    groups = RowGroups(table, file, dead)
    for group in np.flatnonzero(_hits(table, plan, file, groups)):
        yield partial(_frame, plan, groups, int(group), keys)


def _wanted(plan: ScanPlan, rows: pl.DataFrame) -> pl.DataFrame | None:
    if plan.condition is not None:
        rows = rows.filter(plan.condition.wanted(rows.select(plan.condition.columns)))
    return rows.select(plan.schema.names) if rows.height else None


def _hits(table: TableFiles, plan: ScanPlan, file: DataFile, groups: RowGroups) -> Mask:
    """For each row group whether it may hold a wanted row."""
    if plan.condition is None:
        return np.ones(len(groups), dtype=np.bool_)
    bounds = row_group_bounds(groups.footer, file, plan.condition.columns, table.definition)
    return may_hold(plan.condition.expression, bounds)


def _frame(plan: ScanPlan, groups: RowGroups, group: int, keys: KeyCondition | None) -> pl.DataFrame | None:
    """The wanted live rows of a row group; None if there are none. Of other `keys` nobody knows which rows live."""
    names, condition, alive = plan.schema.names, plan.condition, groups.alive(group)
    if keys is not None and alive.any():
        alive[alive] = keys.of_frame(groups.read(group, keys.condition.columns, alive))
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
