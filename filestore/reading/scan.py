"""Local scans: a version and a condition become a plan (pure), and the plan becomes rows, batch by batch.

A batch is a row group, or small files with no more rows than one. It takes the memory of a batch for each core and one
more; of a filtered batch only the columns of the condition are read first.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.files.bounds import file_bounds, row_group_bounds
from filestore.files.row_groups import DecodeBatch, RowGroups, decode_batches
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.lookup.file_lookup import FileLookup
from filestore.lookup.locate import locate
from filestore.model.files import DataFile, Slot
from filestore.reading.bucket_pruning import wanted_buckets, wanted_keys
from filestore.reading.candidates import Wanted
from filestore.reading.key_filters import KeyCondition
from filestore.reading.overlay import (
    PendingSlot,
    SupersededRows,
    dead_rows,
    merged_chunks_of,
    merged_rows,
    pending_slots,
)
from filestore.reading.predicate import Condition, Predicate
from filestore.reading.pruning import may_hold
from filestore.rows.frames import arrow_table
from filestore.sorting.chunks import by_slot
from filestore.sorting.order import sort_rows
from filestore.writing.slot_result import MarkedRows

__all__ = ["ScanPlan", "plan_scan", "scan", "scan_frames", "scan_table"]

Rows = TypeVar("Rows")
Result = TypeVar("Result")
Positions = npt.NDArray[np.int64]
Part: TypeAlias = "Callable[[], pl.DataFrame | None]"

_JUDGED_FILES = 64
_PLANNED_FILES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class ScanPlan:
    """The plan of a scan of one version. Picklable.

    Attributes:
        version: The table's version.
        schema: The schema of the result.
        files: The files that may contain a wanted row.
        condition: Chooses the wanted rows; None: all rows.
        pending: Slots with runs that are merged on reading; their files are in `files`, too.
        keys: The primary keys of rows that can be wanted, each once; None if the condition does not name them.
    """

    version: int
    schema: pa.Schema
    files: tuple[DataFile, ...]
    condition: Condition | None = None
    pending: tuple[PendingSlot, ...] = ()
    keys: pa.Table | None = None

    @property
    def rows(self) -> int:
        """The largest possible number of rows."""
        return sum(f.live_rows for f in self.files) + sum(run.rows for slot in self.pending for run in slot.runs)

    @property
    def bucket(self) -> int:
        """The bucket of all rows, if the plan is one of `parts`."""
        return self.pending[0].slot.bucket if self.pending else self.files[0].slot.bucket

    def of_buckets(self, buckets: Container[int]) -> ScanPlan:
        """Returns the plan of the rows in some buckets."""
        return replace(
            self,
            files=tuple(file for file in self.files if file.slot.bucket in buckets),
            pending=tuple(slot for slot in self.pending if slot.slot.bucket in buckets),
        )

    def parts(self) -> list[ScanPlan]:
        """Splits the plan into plans that can run anywhere: one for each file, and one for each slot with pending runs.

        Their order depends only on the version.
        """
        overlaid = {pending.slot for pending in self.pending}
        others = sorted((f for f in self.files if f.slot not in overlaid), key=lambda f: f.path)
        parts = [replace(self, files=(file,), pending=()) for file in others]
        for pending in sorted(self.pending, key=lambda p: p.runs[0].path):
            parts.append(
                replace(self, files=tuple(f for f in self.files if f.slot == pending.slot), pending=(pending,))
            )
        return parts


def plan_scan(state: TableState, columns: Sequence[str] | None = None, where: Predicate | None = None) -> ScanPlan:
    """Plans a scan. Pure.

    Args:
        state: The version to read.
        columns: The columns in the order of the result, at least one; all if None.
        where: The condition of wanted rows.

    Raises:
        NotFound: a column does not exist.
        InvalidRequest: no columns or one twice, or a condition that cannot be evaluated (see `Condition.of`).
    """
    definition = state.definition
    schema = (definition.schema if columns is None else definition.schema.select(columns)).to_arrow()
    pending = pending_slots(state)
    if where is None:
        return ScanPlan(state.version, schema, tuple(state.files), None, pending)
    condition = Condition.of(where, definition.schema)
    if not condition.columns:  # 1 = 1
        always = condition.wanted(pl.DataFrame(height=1)).all()
        files = tuple(state.files) if always else ()
        return ScanPlan(state.version, schema, files, None, pending if always else ())
    buckets = wanted_buckets(condition.expression, definition)

    def hit(listed: Sequence[DataFile]) -> list[bool]:
        if not listed:
            return []
        near = [buckets is None or file.slot.bucket in buckets for file in listed]
        asked = list(itertools.compress(listed, near))
        found = iter(may_hold(condition.expression, file_bounds(asked, condition.columns, definition)).tolist())
        return [inside and next(found) for inside in near]

    wanted = Wanted(condition.expression, condition.columns, buckets, definition)
    candidates, kept = itertools.chain.from_iterable(state.files.candidates(wanted)), list[DataFile]()
    while some := list(itertools.islice(candidates, _PLANNED_FILES)):  # each look takes a while, however few they are
        kept += itertools.compress(some, hit(some))
    # only by its slot: whether a merged row is wanted does not depend on the run's own values alone
    anything = [replace(slot.runs[0].as_file(), min_key=None, max_key=None) for slot in pending]
    slots = tuple(itertools.compress(pending, hit(anything)))
    return ScanPlan(state.version, schema, tuple(kept), condition, slots, wanted_keys(condition.expression, definition))


def scan(table: TableFiles, plan: ScanPlan) -> Iterator[pa.Table]:
    """Returns the rows of a plan as Arrow tables with exactly its schema: one for each batch with rows."""
    return _read_ahead(table, plan, lambda frame: arrow_table(frame, plan.schema))


def scan_table(table: TableFiles, plan: ScanPlan) -> pa.Table:
    """Returns all rows of a plan."""
    return pa.concat_tables([plan.schema.empty_table(), *scan(table, plan)])


def scan_frames(table: TableFiles, plan: ScanPlan) -> Iterator[pl.DataFrame]:
    """Returns the rows of a plan as polars frames: one for each batch with rows."""
    return _read_ahead(table, plan, lambda frame: frame)


def _read_ahead(table: TableFiles, plan: ScanPlan, finish: Callable[[pl.DataFrame], Rows]) -> Iterator[Rows]:
    """Decodes batches in order, by a thread for each core, while the caller uses the first ones."""
    pool = ThreadPoolExecutor(os.cpu_count() or 1, "scan")
    try:
        calls = (partial(_finished, part, finish) for part in _parts(table, plan, pool))
        yield from (rows for rows in _ahead(pool, calls) if rows is not None)
    finally:  # also when the reader stops in the middle
        pool.shutdown(cancel_futures=True)


def _ahead(pool: ThreadPoolExecutor, calls: Iterable[Callable[[], Result]]) -> Iterator[Result]:
    """Yields the results of calls in their order, while one for each core is running."""
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
    """Yields the parts of a scan, each of which any thread may read: batches of files, rows of keys, and merged rows.

    Slots with pending runs follow one after the other, so that superseded rows of only a few are in memory.
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
            found = SupersededRows(MarkedRows(table, pending.base))
            for chunk in merged_chunks_of(table, pending, found, keys):
                yield partial(_wanted, plan, merged_rows(table, chunk))
            yield from _live_rows(table, plan, pending_files[pending.slot], found.dead.rows(), keys)
        return
    calls = (partial(dead_rows, table, pending, pending_files[pending.slot]) for pending in plan.pending)
    for pending, dead in zip(plan.pending, _ahead(pool, calls), strict=True):
        files = [*pending_files[pending.slot], *(run.as_file() for run in pending.runs)]
        yield from _live_rows(table, plan, files, dead)


def _rows_of_keys(table: TableFiles, plan: ScanPlan, files: Sequence[DataFile], keys: pa.Table) -> Iterator[Part]:
    """Looks up the rows of the keys that a condition names, like a point read; in the order of the files."""
    for name in table.definition.partition_by:
        if pa.types.is_string(table.definition.schema.column(name).type):
            keys = keys.filter(pc.not_equal(keys.column(name), ""))  # no partition has this value
    near: dict[Slot, list[DataFile]] = {}
    for file in files:
        near.setdefault(file.slot, []).append(file)
    found: dict[str, list[Positions]] = {}
    for slot, probes in by_slot(sort_rows(keys, table.definition), table.definition):
        for file, _, _, match in locate(table, near.get(slot, ()), probes):
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
    """Yields the batches of files that may contain a wanted row."""
    gone = dead or {}
    opened = ([RowGroups(table, file, gone.get(file.path)) for file in some] for some in _growing(table, files))
    hits = itertools.chain.from_iterable(_hits(table, plan, some) for some in opened)
    for batch in decode_batches(hits, table.definition.options["row-group.rows"]):
        yield partial(_frame, plan, batch, keys)


def _growing(table: TableFiles, files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Groups of files that are opened and pruned together: small ones first, so that reading begins soon."""
    elsewhere = table.storage.local_path(table.location) is None
    rest, size = iter(files), 1
    while some := list(itertools.islice(rest, size)):
        if elsewhere:
            vectors = {vector_file(file.vector) for file in some if file.vector is not None}
            table.storage.read_ahead([table.path(path) for path in (*(file.path for file in some), *vectors)])
        yield some
        size = min(2 * size, _JUDGED_FILES)


def _wanted(plan: ScanPlan, rows: pl.DataFrame) -> pl.DataFrame | None:
    if plan.condition is not None:
        rows = rows.filter(plan.condition.wanted(rows.select(plan.condition.columns)))
    return rows.select(plan.schema.names) if rows.height else None


def _hits(table: TableFiles, plan: ScanPlan, files: Sequence[RowGroups]) -> Iterator[tuple[RowGroups, int]]:
    """The row groups that may contain a wanted row."""
    groups = [(file, group) for file in files for group in range(len(file))]
    if plan.condition is None:
        return iter(groups)
    opened = [(file.footer, file.file) for file in files]
    bounds = row_group_bounds(opened, plan.condition.columns, table.definition)
    return itertools.compress(groups, may_hold(plan.condition.expression, bounds))


def _frame(plan: ScanPlan, batch: DecodeBatch, keys: KeyCondition | None) -> pl.DataFrame | None:
    """Reads the wanted live rows of a batch; None if there are none. With `keys` only rows of these keys are read."""
    names, condition, alive = plan.schema.names, plan.condition, batch.alive()
    if keys is not None and alive.any():
        alive[alive] = keys.of_frame(batch.read(keys.condition.columns, alive))
    if not alive.any():
        return None
    if condition is None:
        return batch.read(names, alive)
    # The condition is evaluated only for live rows: it may fail for values that it should not see.
    judged = batch.read(condition.columns, alive)
    wanted = condition.wanted(judged)
    if not wanted.any():
        return None
    alive[alive] = wanted.to_numpy()
    rest = [name for name in names if name not in condition.columns]
    more = batch.read(rest, alive).get_columns() if rest else []
    return judged.filter(wanted).hstack(more).select(names)
