"""Holds the result of a fold of one slot, and makes deletion vectors of its dead rows (FORMAT.md section 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.delta.vectors import VectorFileBuilder, grown, vector_file
from filestore.files.leftovers import write_file
from filestore.files.writer import TableFiles
from filestore.model.files import ChangeFile, DataFile, PendingRun, Slot, Tombstones

__all__ = ["ChangeSink", "MarkedRows", "SlotResult", "Tally", "named_files", "with_vectors", "written_files"]

ChangeSink = Callable[[Slot, pa.Table], None]
"""Takes the accepted changes of a slot, with `KIND_COLUMN`, in key order, and writes them to the log."""


@dataclass(frozen=True, slots=True)
class SlotResult:
    """The changes of a write in one slot.

    Attributes:
        slot: The slot.
        adds: New files; they contain late rows, too, as dead from birth.
        vectors: Files of the base with their grown vectors, unless every row is dead.
        removes: Files of the base that have no live row left.
        runs: Changes that a fold will merge.
        deleted_keys: A run with the keys of the delete rows, kept until the commit for `rebase_slot`.
        tombstones: The same, if the table remembers deletes for longer.
        changes: Change data; None if none was written, since readers derive the changes from the files.
        rows_written: Rows put.
        rows_deleted: Delete rows accepted, whether or not their key was stored.
        rows_replaced: Rows of the base that died.
        rows_late: Rows, deletes among them, that lost to a stored row with a higher sequence.
        rows_unchanged: Rows put that equal the stored row: where images are written, the stored row stays.
        written: All new files as they were written, if `adds` differ from them. `rebase_slot` starts from them, since a
            row that is late now is not late if the stored row is gone at the next attempt.
        rests_on_rows: Whether some of the changes hold only for the stored rows that the write has found, and cannot be
            looked up again (`filestore.changelog.arrived`).
    """

    slot: Slot
    adds: tuple[DataFile, ...] = ()
    vectors: tuple[DataFile, ...] = ()
    removes: tuple[DataFile, ...] = ()
    runs: tuple[PendingRun, ...] = ()
    deleted_keys: Tombstones | None = None
    tombstones: tuple[Tombstones, ...] = ()
    changes: tuple[ChangeFile, ...] | None = None
    rows_written: int = 0
    rows_deleted: int = 0
    rows_replaced: int = 0
    rows_late: int = 0
    rows_unchanged: int = 0
    written: tuple[DataFile, ...] = ()
    rests_on_rows: bool = False

    @property
    def new_files(self) -> tuple[DataFile, ...]:
        """All data files that the write has written, also those that `adds` leaves out."""
        return self.written or self.adds


def written_files(results: Iterable[SlotResult]) -> set[str]:
    """Returns the paths of all files that were written for those results, relative to the table."""
    listed = list(results)
    data = {file.path for r in listed for file in r.new_files}
    return data | {r.deleted_keys.path for r in listed if r.deleted_keys} | named_files(listed)


def named_files(results: Iterable[SlotResult]) -> set[str]:
    """Returns the paths that a commit of the results names: no runs of deleted keys, no files without a live row."""
    listed = list(results)
    data = {file.path for r in listed for file in r.adds} | {run.path for r in listed for run in r.runs}
    vectors = {vector_file(file.vector) for r in listed for file in (*r.vectors, *r.adds) if file.vector}
    remembered = {run.path for r in listed for run in r.tombstones}
    return data | vectors | remembered | {file.path for r in listed for file in r.changes or ()}


class MarkedRows:
    """The positions of live rows that a write marks as dead, by file."""

    def __init__(self, table: TableFiles, files: Iterable[DataFile]) -> None:
        self._table = table
        self._files = {file.path: file for file in files}
        self._dead: dict[str, list[npt.NDArray[np.uint32]]] = {}  # a file has fewer than 4 billion rows
        self.count = 0

    def add(self, path: str, rows: npt.NDArray[np.int64]) -> None:
        """Adds live rows of a file, by position."""
        if len(rows):
            self._dead.setdefault(path, []).append(rows.astype(np.uint32))

    def rows(self) -> dict[str, npt.NDArray[np.int64]]:
        """Returns the added positions by path, ascending."""
        return {path: np.sort(np.concatenate(parts)).astype(np.int64) for path, parts in self._dead.items()}

    def add_vectors(self, builder: VectorFileBuilder) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """Adds the grown vectors to the builder; returns files with vectors, and files without a live row."""
        vectors, gone = [], []
        for path, parts in self._dead.items():
            file = self._files[path]
            before = 0 if file.vector is None else file.vector.cardinality
            rows = np.concatenate(parts).astype(np.uint64)
            after = grown(self._table.storage, self._table.location, file.vector, rows)
            self.count += len(after) - before
            if len(after) == file.rows:
                gone.append(file)
            elif len(after) > before:
                vectors.append(file.with_vector(builder.add(after)))
        return tuple(vectors), tuple(gone)


@dataclass(slots=True)
class Tally:
    """Counts puts and deletes, and how many of them are late or change nothing."""

    written: int = 0
    deleted: int = 0
    late: int = 0
    unchanged: int = 0

    def add(self, puts: npt.NDArray[np.bool_], lost: npt.NDArray[np.bool_], same: npt.NDArray[np.bool_]) -> None:
        """Counts rows: whether each is a put, whether it is late, and whether it equals the stored row."""
        self.written += int((puts & ~lost).sum())
        self.deleted += int((~puts & ~lost).sum())
        self.late += int(lost.sum())
        self.unchanged += int(same.sum())


def with_vectors(
    table: TableFiles, raw: SlotResult, own: MarkedRows, superseded: MarkedRows, tally: Tally
) -> SlotResult:
    """Returns `raw` with deletion vectors: the dead rows of new and of stored files are written to one vector file."""
    builder = VectorFileBuilder(table.ambient.new_id())
    born_dead, all_dead = own.add_vectors(builder)
    vectors, removes = superseded.add_vectors(builder)
    if not builder.empty:
        write_file(table, builder.path, builder.content)
    changed, gone = {file.path: file for file in born_dead}, {file.path for file in all_dead}
    return SlotResult(
        slot=raw.slot,
        adds=tuple(changed.get(f.path, f) for f in raw.adds if f.path not in gone),
        vectors=vectors,
        removes=removes,
        deleted_keys=raw.deleted_keys,
        tombstones=raw.tombstones,
        changes=raw.changes,
        rows_written=tally.written,
        rows_deleted=tally.deleted,
        rows_replaced=superseded.count,
        rows_late=tally.late,
        rows_unchanged=tally.unchanged,
        written=raw.adds if tally.late or tally.unchanged else (),
        rests_on_rows=raw.rests_on_rows,
    )
