"""The change data of an overwrite, a dropped partition or a rollback, slot by slot in the threads of one process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from compaction.leftovers import remove
from compaction.threads import in_threads
from filestore.files.writer import TableFiles
from filestore.model.files import ChangeFile
from filestore.reading.difference import SlotDifference
from filestore.reading.replaced_rows import write_changes

__all__ = ["changes_in_threads", "forget_changes"]


def changes_in_threads(table: TableFiles, differences: Sequence[SlotDifference]) -> list[tuple[ChangeFile, ...]]:
    """Writes the changes of each slot, with a thread for each core. If one fails, the others' files are removed."""
    return in_threads("changes", partial(write_changes, table), differences, partial(forget_changes, table))


def forget_changes(table: TableFiles, written: Iterable[tuple[ChangeFile, ...]]) -> None:
    """Removes what was written that no commit will name."""
    remove(table, (file.path for files in written for file in files))
