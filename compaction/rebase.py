"""Rebases a compaction after a lost race: rows that died meanwhile die in its new files, too (FORMAT.md section 6).

So a compaction neither blocks writers nor starves because of them. Its work is lost only if another commit replaced its
inputs as a whole, such as an overwrite or another compaction; no row is lost then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from compaction.merge import CompactionResult
from filestore.delta.actions import file_key
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation
from filestore.operations.carry_over import died_meanwhile, input_changed, keys_at, without
from filestore.table import FileStore

__all__ = ["Rebased", "rebased"]


@dataclass(frozen=True, slots=True)
class Rebased:
    """The part of a compaction's commit in one slot, for a newer version: files to add and paths to remove."""

    adds: tuple[DataFile, ...]
    removes: tuple[str, ...]


def rebased(store: FileStore, base_version: int, result: CompactionResult, state: TableState) -> Rebased:
    """Adapts a result to a newer version. It may be called again for a still newer one.

    Args:
        store: The table.
        base_version: The version that was compacted.
        result: The result of its compaction.
        state: The newest version.

    Raises:
        Conflict: an input was replaced meanwhile, or changed in a way that cannot be carried over.
    """
    table = store.table_files(state)
    dead: list[pl.DataFrame] = []
    for file in result.inputs:
        now = state.files.get(file.path)
        if now is None:
            _check_died_out(store, file.path, base_version, state.version)
        died = died_meanwhile(table, file, now)
        if len(died) and not table.definition.primary_key:
            raise input_changed(f"rows of {file.path} died, and without a key they cannot be found again")
        if len(died):
            dead += keys_at(table, file, died)
    removes = tuple(file.path for file in result.inputs if file.path in state.files)
    return Rebased(without(table, result.adds, dead) if dead else result.adds, removes)


def _check_died_out(store: FileStore, path: str, base_version: int, version: int) -> None:
    """Checks that a write removed the file. It does so only when the last row dies, so no row moved to another file."""
    for number in range(base_version + 1, version + 1):
        commit = store.delta_log.commit(number)
        if commit is None:
            break
        if path in set(_removed(commit)):
            if commit.snapshot().operation == Operation.WRITE:
                return
            break
    raise input_changed(f"file {path} left the table")


def _removed(commit: Commit) -> Iterator[str]:
    """Yields the files that a commit removes, but not those that it also adds, since only their vectors changed."""
    stays = {file_key(action["add"]) for action in commit.actions if "add" in action}
    for action in commit.actions:
        if "remove" in action and (path := file_key(action["remove"])) not in stays:
            yield path
