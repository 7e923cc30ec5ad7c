"""Local scans: a version and a condition become a plan (pure), the plan becomes rows, stretch by stretch.

A stretch is a row group, or small files that have no more rows than one together. Memory: a stretch for each core and
one more; of a filtered one first only the columns that the condition reads.
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
import pyarrow.compute as pc

from filestore.delta.state import TableState
from filestore.files.bounds import file_bounds, row_group_bounds
from filestore.files.row_groups import RowGroups, Stretch, stretches
from filestore.files.writer import TableFiles
from filestore.lookup.file_lookup import FileLookup
from filestore.lookup.located import located
from filestore.model.files import DataFile, Slot
from filestore.reading.bucket_pruning import wanted_buckets, wanted_keys
from filestore.reading.key_filters import KeyCondition
from filestore.reading.overlay import Overlaid, PendingSlot, dead_rows, merged_chunks_of, pending_slots
from filestore.reading.predicate import Condition, Predicate
from filestore.reading.pruning import may_hold
from filestore.rows.frames import arrow_table
from filestore.sorting.chunks import by_slot
from filestore.sorting.order import sort_rows
from filestore.writing.slot_result import Dying

__all__ = ["ScanPlan", "plan_scan", "scan", "scan_frames", "scan_table"]

Rows = TypeVar("Rows")
Result = TypeVar("Result")
Positions = npt.NDArray[np.int64]
Part = Callable[[], pl.DataFrame | None]

_JUDGED_FILES = 64


@dataclass(frozen=True, slots=True, eq=False)
class ScanPlan:
    """What a scan of one version reads. Picklable.

    Attributes:
        version: The table's version.
        schema: What comes out.
        files: Those that may hold a wanted row.
        condition: Which rows are wanted; all if None.
        pending: Slots with runs that are merged as they are read; their files are among `files` too.
        keys: The primary keys that wanted rows can have, each once; None if the condition does not name them.
    """

    version: int
    schema: pa.Schema
    files: tuple[DataFile, ...]
    condition: Condition | None = None
    pending: tuple[PendingSlot, ...] = ()
    keys: pa.Table | None = None

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

    def hit(listed: Sequence[DataFile]) -> list[bool]:
        near = [buckets is None or file.slot.bucket in buckets for file in listed]
        asked = list(itertools.compress(listed, near))
        found = iter(may_hold(condition.expression, file_bounds(asked, condition.columns, definition)).tolist())
        return [inside and next(found) for inside in near]

    kept = tuple(itertools.compress(files, hit(files)))
    # by its place only: what a run makes of a stored row is wanted or not whatever the run itself holds
    anything = [replace(slot.runs[0].as_file(), min_key=None, max_key=None) for slot in pending]
    slots = tuple(itertools.compress(pending, hit(anything)))
    return ScanPlan(state.version, schema, kept, condition, slots, wanted_keys(condition.expression, definition))


def scan(table: TableFiles, plan: ScanPlan) -> Iterator[pa.Table]:
    """The rows of a plan as Arrow tables of exactly its schema; one a stretch, empty ones left out."""
    return _read_ahead(table, plan, lambda frame: arrow_table(frame, plan.schema))


def scan_table(table: TableFiles, plan: ScanPlan) -> pa.Table:
    """All rows of a plan."""
    return pa.concat_tables([plan.schema.empty_table(), *scan(table, plan)])


def scan_frames(table: TableFiles, plan: ScanPlan) -> Iterator[pl.DataFrame]:
    """The rows of a plan as polars frames; one a stretch, empty ones left out."""
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
    """The pieces of a scan, each to be read by any thread: stretches of files, rows of keys, and merged rows.

    Slots with pending runs come one by one, so that what is dead is held for a few of them only.
    """
    pending_files: dict[Slot, list[DataFile]] = {pending.slot: [] for pending in plan.pending}
    folded = [file for file in plan.files if file.slot not in pending_files]
    for file in plan.files:
        if file.slot in pending_files:
            pending_files[file.slot].append(file)
    yield from _live_rows(table, plan, folded) if plan.keys is None else _rows_of_keys(table, plan, folded, plan.keys)
    if table.definition.merges_values:
        keys = KeyCondition.of(plan.condition, table.definition)
        for pending in plan.pending:
            found = Overlaid(Dying(table, pending.base))
            for chunk in merged_chunks_of(table, pending, found, keys):
                yield partial(_wanted, plan, chunk.outcome.puts())
            yield from _live_rows(table, plan, pending_files[pending.slot], found.dead.rows(), keys)
        return
    calls = (partial(dead_rows, table, pending, pending_files[pending.slot]) for pending in plan.pending)
    for pending, dead in zip(plan.pending, _ahead(pool, calls), strict=True):
        files = [*pending_files[pending.slot], *(run.as_file() for run in pending.runs)]
        yield from _live_rows(table, plan, files, dead)


def _rows_of_keys(table: TableFiles, plan: ScanPlan, files: Sequence[DataFile], keys: pa.Table) -> Iterator[Part]:
    """The rows of the keys that a condition names, found as a point read finds them; in the order of the files."""
    for name in table.definition.partition_by:
        if pa.types.is_string(table.definition.schema.column(name).type):
            keys = keys.filter(pc.not_equal(keys.column(name), ""))  # no partition has this name
    near: dict[Slot, list[DataFile]] = {}
    for file in files:
        near.setdefault(file.slot, []).append(file)
    found: dict[str, list[Positions]] = {}
    for slot, probes in by_slot(sort_rows(keys, table.definition), table.definition):
        for file, _, _, match in located(table, near.get(slot, ()), probes):
            found.setdefault(file.path, []).append(match.positions)
    for file in files:
        if file.path in found:
            yield partial(_frame_at, table, plan, file, np.concatenate(found[file.path]))


def _frame_at(table: TableFiles, plan: ScanPlan, file: DataFile, rows: Positions) -> pl.DataFrame | None:
    columns = list(dict.fromkeys((*plan.schema.names, *(plan.condition.columns if plan.condition else ()))))
    return _wanted(plan, FileLookup(table, file, cache=table.cache).frame_at(rows, columns))


def _live_rows(
    table: TableFiles,
    plan: ScanPlan,
    files: Iterable[DataFile],
    dead: Mapping[str, Positions] | None = None,
    keys: KeyCondition | None = None,
) -> Iterator[Part]:
    """The stretches of files that may hold a wanted row."""
    gone = dead or {}
    opened = (RowGroups(table, file, gone.get(file.path)) for file in files)
    hits = itertools.chain.from_iterable(_hits(table, plan, some) for some in _growing(opened))
    for stretch in stretches(hits, table.definition.options["row-group.rows"]):
        yield partial(_frame, plan, stretch, keys)


def _growing(opened: Iterator[RowGroups]) -> Iterator[list[RowGroups]]:
    """Files that are judged at once: few of the first, so that reading begins soon. Memory: their footers."""
    size = 1
    while some := list(itertools.islice(opened, size)):
        yield some
        size = min(2 * size, _JUDGED_FILES)


def _wanted(plan: ScanPlan, rows: pl.DataFrame) -> pl.DataFrame | None:
    if plan.condition is not None:
        rows = rows.filter(plan.condition.wanted(rows.select(plan.condition.columns)))
    return rows.select(plan.schema.names) if rows.height else None


def _hits(table: TableFiles, plan: ScanPlan, files: Sequence[RowGroups]) -> Iterator[tuple[RowGroups, int]]:
    """The row groups that may hold a wanted row."""
    groups = [(file, group) for file in files for group in range(len(file))]
    if plan.condition is None:
        return iter(groups)
    opened = [(file.footer, file.file) for file in files]
    bounds = row_group_bounds(opened, plan.condition.columns, table.definition)
    return itertools.compress(groups, may_hold(plan.condition.expression, bounds))


def _frame(plan: ScanPlan, stretch: Stretch, keys: KeyCondition | None) -> pl.DataFrame | None:
    """The wanted live rows of a stretch; None if there are none. Of other `keys` nobody knows which rows live."""
    names, condition, alive = plan.schema.names, plan.condition, stretch.alive()
    if keys is not None and alive.any():
        alive[alive] = keys.of_frame(stretch.read(keys.condition.columns, alive))
    if not alive.any():
        return None
    if condition is None:
        return stretch.read(names, alive)
    # A dead row is never judged: a condition may fail on what it should not see.
    judged = stretch.read(condition.columns, alive)
    wanted = condition.wanted(judged)
    if not wanted.any():
        return None
    alive[alive] = wanted.to_numpy()
    rest = [name for name in names if name not in condition.columns]
    more = stretch.read(rest, alive).get_columns() if rest else []
    return judged.filter(wanted).hstack(more).select(names)
