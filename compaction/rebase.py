"""A compaction that lost a race: rows of its inputs that died meanwhile die in its new files too (FORMAT.md section 6).

So a compaction neither holds writers up nor starves under them. Only when its inputs were replaced as a whole, by an
overwrite or by another compaction, is its work in vain; nothing is lost then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from compaction.merge import CompactionResult
from filestore.delta.actions import file_key
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.delta.vectors import VectorFileBuilder, positions
from filestore.errors import Conflict, Corrupt, NotFound
from filestore.files.row_groups import RowGroups
from filestore.files.writer import TableFiles
from filestore.lookup.file_lookup import FileLookup
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation
from filestore.rows.frames import arrow_table
from filestore.table import FileStore

__all__ = ["Rebased", "died_meanwhile", "keys_at", "rebased", "without"]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rebased:
    """What a compaction of one slot commits on a newer version: files that come and paths that leave."""

    adds: tuple[DataFile, ...]
    removes: tuple[str, ...]


def rebased(store: FileStore, base_version: int, result: CompactionResult, state: TableState) -> Rebased:
    """Works a result out for a newer version. May be called again for a still newer one.

    Args:
        store: The table.
        base_version: The version that was compacted.
        result: What came of it.
        state: The newest version.

    Raises:
        Conflict: an input was replaced meanwhile, or changed in a way that cannot be carried over.
    """
    table = store.files(state)
    dead: list[pl.DataFrame] = []
    for file in result.inputs:
        now = state.files.get(file.path)
        if now is None:
            _check_died_out(store, file.path, base_version, state.version)
        died = died_meanwhile(table, file, now)
        if len(died) and not table.definition.primary_key:
            raise _conflict(f"rows of {file.path} died, and without a key they cannot be found again")
        if len(died):
            dead += keys_at(table, file, died)
    removes = tuple(file.path for file in result.inputs if file.path in state.files)
    return Rebased(without(table, result.adds, dead) if dead else result.adds, removes)


def died_meanwhile(table: TableFiles, before: DataFile, now: DataFile | None) -> Rows:
    """The rows of a file that were alive at the compaction's start and are dead now: all, if the file is gone."""
    if now is not None and now.vector == before.vector:
        return np.empty(0, dtype=np.int64)
    then = positions(table.storage, table.location, before.vector).astype(np.int64)
    if now is None:
        return np.setdiff1d(np.arange(before.rows), then, assume_unique=True)
    dead = positions(table.storage, table.location, now.vector).astype(np.int64)
    if len(np.setdiff1d(then, dead, assume_unique=True)):
        raise _conflict(f"rows of {before.path} came back to life")
    return np.setdiff1d(dead, then, assume_unique=True)


def _check_died_out(store: FileStore, path: str, base_version: int, version: int) -> None:
    """A file leaves in a plain write only when its last row dies: then its rows are dead, and not elsewhere."""
    for number in range(base_version + 1, version + 1):
        commit = store.log.commit(number)
        if commit is None:
            break
        if path in set(_removed(commit)):
            if commit.snapshot().operation == Operation.WRITE:
                return
            break
    raise _conflict(f"file {path} left the table")


def _removed(commit: Commit) -> Iterator[str]:
    """What is gone after a commit; a file whose vector grew is removed and added."""
    stays = {file_key(action["add"]) for action in commit.actions if "add" in action}
    for action in commit.actions:
        if "remove" in action and (path := file_key(action["remove"])) not in stays:
            yield path


def keys_at(table: TableFiles, file: DataFile, rows: Rows) -> list[pl.DataFrame]:
    """The sort keys of those rows of a file."""
    try:
        return list(RowGroups(table, file).read_at(rows, table.definition.sort_key))
    except NotFound as error:
        raise _conflict(f"file {file.path} was cleaned away") from error


def without(table: TableFiles, adds: tuple[DataFile, ...], dead: list[pl.DataFrame]) -> tuple[DataFile, ...]:
    """The new files with those keys dead from birth; without those that have no row left."""
    definition = table.definition
    probes = arrow_table(pl.concat(dead).sort(definition.sort_key), _key_schema(table))
    builder = VectorFileBuilder(table.ambient.new_id())
    kept, found = [], 0
    for file in adds:
        rows = np.concatenate(
            [np.empty(0, dtype=np.int64), *(m.positions for m in FileLookup(table, file).find(probes))]
        )
        found += len(rows)
        if len(rows) < file.rows:
            kept.append(file.with_vector(builder.add(np.sort(rows).astype(np.uint64))) if len(rows) else file)
    if found != probes.num_rows:
        raise Corrupt(
            f"{probes.num_rows - found} of {probes.num_rows} keys that died during a compaction are not in its new "
            "files: nothing was committed; run the doctor",
            code="lost-row",
        )
    if not builder.empty:
        table.storage.write_new(table.path(builder.path), builder.content)
    return tuple(kept)


def _key_schema(table: TableFiles) -> pa.Schema:
    return pa.schema([table.file_schema.field(name) for name in table.definition.sort_key])


def _conflict(what: str) -> Conflict:
    return Conflict(f"{what} while it was compacted: nothing was changed, compact again", code="compaction-conflict")
