"""Carries over deletes of rows whose file is being rewritten: they are found by key in the new files, and marked dead.

A compaction and a rewrite read a version's files and write new ones. Writers commit meanwhile, and their deletion
vectors name positions in the old files. So the keys of the rows that died are read, and looked up in the new files
(FORMAT.md section 6).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.delta.vectors import VectorFileBuilder, grown, positions
from filestore.errors import Conflict, Corrupt, NotFound
from filestore.files.leftovers import write_file
from filestore.files.row_groups import RowGroups
from filestore.files.rows_at import RowsAt
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.lookup.file_lookup import FileLookup
from filestore.model.files import DataFile
from filestore.rows.frames import arrow_table

__all__ = ["died_meanwhile", "input_changed", "keys_at", "without"]

Rows = npt.NDArray[np.int64]


def died_meanwhile(table: TableFiles, before: DataFile, now: DataFile | None) -> Rows:
    """Returns the rows of a file that were alive before and are dead now: all that were alive if it was removed."""
    if now is not None and now.vector == before.vector:
        return np.empty(0, dtype=np.int64)
    then = positions(table.storage, table.location, before.vector).astype(np.int64)
    if now is None:
        return np.setdiff1d(np.arange(before.rows), then, assume_unique=True)
    dead = positions(table.storage, table.location, now.vector).astype(np.int64)
    if len(np.setdiff1d(then, dead, assume_unique=True)):
        raise input_changed(f"deleted rows of {before.path} were restored")
    return np.setdiff1d(dead, then, assume_unique=True)


def keys_at(table: TableFiles, file: DataFile, rows: Rows) -> list[pl.DataFrame]:
    """Reads the sort keys of those rows of a file."""
    try:
        return list(RowsAt(RowGroups(table, file), rows, table.definition.sort_key).frames())
    except NotFound as error:
        raise input_changed(f"file {file.path} was cleaned away") from error


def without(table: TableFiles, adds: tuple[DataFile, ...], dead: list[pl.DataFrame]) -> tuple[DataFile, ...]:
    """Marks those keys dead in the new files, too; files that have no live row left are left out.

    The keys must be live in the new files. Rows that are dead in them already stay so.
    """
    definition = table.definition
    probes = arrow_table(pl.concat(dead).sort(definition.sort_key), _key_schema(table))
    builder = VectorFileBuilder(table.ambient.new_id())
    kept, found = [], 0
    for file in adds:
        rows = np.concatenate(
            [np.empty(0, dtype=np.int64), *(m.positions for m in FileLookup(table, file).find(probes))]
        )
        found += len(rows)
        if not len(rows):
            kept.append(file)
        elif len(rows) < file.live_rows:
            kept.append(file.with_vector(builder.add(grown(table.storage, table.location, file.vector, rows))))
    if found != probes.num_rows:
        raise Corrupt(
            f"{probes.num_rows - found} of {probes.num_rows} keys that died during a compaction are not in its new "
            "files: nothing was committed; run the doctor",
            code="lost-row",
        )
    if not builder.empty:
        write_file(table, builder.path, builder.content)
    return tuple(kept)


def _key_schema(table: TableFiles) -> pa.Schema:
    return pa.schema([table.file_schema.field(name) for name in table.definition.sort_key])


def input_changed(what: str) -> Conflict:
    """Returns the conflict of a compaction with a commit whose changes of its input files cannot be carried over."""
    return Conflict(f"{what} while it was compacted: nothing was changed, compact again", code="compaction-conflict")
