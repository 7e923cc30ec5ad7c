"""Rebases a compaction after a lost race: rows that died meanwhile die in its new files, too (FORMAT.md section 6).

So a compaction neither blocks writers nor starves because of them. Its work is lost only if another commit replaced its
inputs as a whole, such as an overwrite or another compaction; no row is lost then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from filestore.delta.actions import file_key
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.lazily import pl
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation
from filestore.operations.carry_over import died_meanwhile, input_changed, keys_at, without
from filestore.table import FileStore

__all__ = ["Rebased", "rebased"]


@dataclass(frozen=True, slots=True)
class Rebased:
    """The part of a compaction's commit in one slot, adapted to a version.

    Attributes:
        version: The version.
        adds: The new files, with the rows marked that died since the compaction began.
        inputs: The input files that are still in that version, as they are in it: the commit removes them.
    """

    version: int
    adds: tuple[DataFile, ...]
    inputs: tuple[DataFile, ...]


def rebased(store: FileStore, part: Rebased, state: TableState) -> Rebased:
    """Adapts a part to a newer version. It carries over only what died since the version of the part.

    So the work of an attempt is that of the commits since the attempt before it, whatever happened earlier.

    Args:
        store: The table.
        part: The result of the compaction, or of the rebase before this one.
        state: The newest version.

    Raises:
        Conflict: an input was replaced meanwhile, or changed in a way that cannot be carried over.
    """
    table = store.table_files(state)
    dead: list[pl.DataFrame] = []
    for file in part.inputs:
        now = state.files.current(file)
        if now is None:
            _check_died_out(store, file.path, part.version, state.version)
        died = died_meanwhile(table, file, now)
        if len(died) and not table.definition.primary_key:
            raise input_changed(f"rows of {file.path} died, and without a key they cannot be found again")
        if len(died):
            dead += keys_at(table, file, died)
    inputs = tuple(now for file in part.inputs if (now := state.files.current(file)) is not None)
    return Rebased(state.version, without(table, part.adds, dead) if dead else part.adds, inputs)


def _check_died_out(store: FileStore, path: str, base_version: int, version: int) -> None:
    """Checks that a write removed the file. It does so only when the last row dies, so no row moved to another file."""
    for number in range(base_version + 1, version + 1):
        commit = store.delta_log.read_entry(number)
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
