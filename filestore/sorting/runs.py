"""Sorted runs as files: they are written one by one, and read back as one sorted stream.

Memory does not depend on the number of runs: it is one row group of each open run, and at most `_OPEN_RUNS` are open.
More runs are merged in passes, into runs that are removed at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from typing import Self

import pyarrow as pa

from filestore import layout
from filestore.errors import TableStoreError
from filestore.files.parquet import ParquetReader
from filestore.files.sink import ParquetSink
from filestore.sorting.merge import merge
from filestore.sorting.order import slices_in_order
from filestore.storage.interface import Storage
from filestore.storage.local import LocalStorage
from filestore.storage.temporary import temporary_folder

__all__ = ["RunFiles", "drained", "gathered", "local_runs", "row_groups"]

logger = logging.getLogger(__name__)

_JOINED_BYTES = 128 << 20
_GROUP_ROWS = 16_384
_GROUP_BYTES = 2 << 20
_OPEN_RUNS = 64
_MAPPED_GROUPS = 4
"""The number of a local run's row groups that are in memory as they are in its file."""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The place of runs.

    Attributes:
        storage: The storage.
        location: The folder that contains them.
        new_path: Returns a path, relative to the folder, that no run has yet.
    """

    storage: Storage
    location: str
    new_path: Callable[[], str]

    def path(self, run: str) -> str:
        """Returns a run's whole path."""
        return layout.join(self.location, run)

    def put(self, parts: Iterable[pa.Table]) -> str:
        """Writes sorted rows, at least one, as a run. After an error no file is left."""
        run = self.new_path()
        groups = row_groups(parts)
        first = next(groups)
        with ParquetSink(self.storage, self.path(run), first.schema, compression="lz4") as sink:
            for group in chain([first], groups):
                sink.write(group)
            sink.close()
        return run

    def share(self, runs: Iterable[str]) -> None:
        """Makes runs complete for other processes. Nothing refers to a run after a crash, so no disk is flushed.

        Raises:
            Unavailable: the storage has refused one of them.
        """
        for run in runs:
            if self.storage.local_path(self.path(run)) is None:
                self.storage.sync(self.path(run))  # this process uploads it while it goes on

    def read(self, run: str) -> Iterator[pa.Table]:
        """Reads a run row group by row group.

        A local file is opened anew now and then: it is mapped into memory, and what was read would stay there.
        """
        local = self.storage.local_path(self.path(run)) is not None
        start, end = 0, 1
        while start < end:
            with ParquetReader(self.storage, self.path(run)) as file:
                end = len(file.group_rows)
                until = min(end, start + _MAPPED_GROUPS) if local else end
                for group in range(start, until):
                    yield file.read(group)
                start = until

    def remove(self, runs: Iterable[str]) -> None:
        """Removes runs. A failure is logged and not raised: nothing refers to the run any more."""
        for run in runs:
            try:
                self.storage.delete(self.path(run))
            except TableStoreError as error:
                logger.warning("a sorted run stays behind, as an orphan if it is in a table's folder: %s", error)

    def merged(
        self, runs: Iterable[str], by: Sequence[str], held: Sequence[Iterator[pa.Table]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Merges the rows of all runs in the order of those columns. The runs are not removed.

        Args:
            runs: The runs.
            by: The columns.
            held: The row groups of further runs, which are in memory.
        """
        with _Passes(self, by) as passes:
            remaining = passes.down_to(_OPEN_RUNS, list(runs))
            for rows in merge([*held, *map(self.read, remaining)], by):
                yield from rows.to_batches()


@contextmanager
def local_runs(parent: str | None = None) -> Iterator[RunFiles]:
    """Opens a place for runs on the local disk, by default in the system's folder for temporary files."""
    names = count()
    with temporary_folder("tablestore-runs-", parent) as folder:
        yield RunFiles(LocalStorage(), folder, lambda: f"{next(names)}.parquet")


def gathered(parts: Iterable[pa.Table], size: int | None = None, rows: int | None = None) -> Iterator[list[pa.Table]]:
    """Groups the parts so that each group except the last has so many bytes or rows. The caller owns the groups.

    Args:
        parts: The parts; those without rows are left out.
        size: The bytes that are enough for a group; None: any number is too few.
        rows: Likewise the rows.
    """
    held: list[pa.Table] = []
    held_rows = held_bytes = 0
    for part in parts:
        if not part.num_rows:
            continue
        held.append(part)
        held_rows, held_bytes = held_rows + part.num_rows, held_bytes + part.nbytes
        del part
        if (size is not None and held_bytes >= size) or (rows is not None and held_rows >= rows):
            group, held = held, []
            held_rows = held_bytes = 0
            yield group
    if held:
        yield held


def drained(parts: list[pa.Table]) -> Iterator[pa.Table]:
    """Yields the parts, and takes each out of the list, so that nothing else keeps those that were yielded."""
    parts.reverse()
    while parts:
        yield parts.pop()


def row_groups(parts: Iterable[pa.Table], times: int = 1) -> Iterator[pa.Table]:
    """Cuts sorted rows into row groups of a run, of which `_OPEN_RUNS` fit into memory.

    A row group has at most about 2 MB, whatever the widths of its rows, or one row; or so many times more.
    """
    size, rows = times * _GROUP_BYTES, times * _GROUP_ROWS
    for group in gathered(parts, size, rows):
        yield from _halved(pa.concat_tables(group), size, rows)


def _halved(group: pa.Table, size: int, rows: int) -> Iterator[pa.Table]:
    """Splits rows to the size of a row group. Wide rows may be next to each other, so an average would not do."""
    if group.num_rows <= 1 or (group.num_rows <= rows and group.nbytes <= size):
        yield group
        return
    middle = group.num_rows // 2
    yield from _halved(group.slice(0, middle), size, rows)
    yield from _halved(group.slice(middle), size, rows)


class _Passes:
    """Merges runs into fewer runs, which are removed at the end, also after an error."""

    def __init__(self, files: RunFiles, by: Sequence[str]) -> None:
        self._files = files
        self._by = by
        self._made: list[str] = []

    def down_to(self, count: int, runs: list[str]) -> list[str]:
        """Merges runs until there are no more than that number."""
        if len(runs) > count:
            runs = self._joined(runs)
        while len(runs) > count:
            # merge only as many as are needed, so that the first runs are not rewritten again
            some = min(count, len(runs) - count + 1)
            runs = [*runs[some:], self._put(merge(map(self._files.read, runs[:some]), self._by))]
        return runs

    def _put(self, parts: Iterable[pa.Table]) -> str:
        self._made.append(self._files.put(parts))
        return self._made[-1]

    def _joined(self, runs: Sequence[str]) -> list[str]:
        """Sorts small runs of one row group, as small tasks write them, together in memory; keeps the others.

        Only one is open at a time, so this takes one pass for any number of runs.
        """
        large: list[str] = []
        small = gathered(self._small(runs, large), _JOINED_BYTES)
        made = [self._put(slices_in_order(rows, self._by)) for rows in small]
        return [*made, *large]

    def _small(self, runs: Sequence[str], large: list[str]) -> Iterator[pa.Table]:
        for run in runs:
            with ParquetReader(self._files.storage, self._files.path(run)) as file:
                if len(file.group_rows) > 1:
                    large.append(run)
                    continue
                yield file.read(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._files.remove(self._made)
