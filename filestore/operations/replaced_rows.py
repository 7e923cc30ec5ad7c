"""Computes the change data of overwrites, dropped partitions and rollbacks, which replace files (FORMAT.md section 13).

No fold reads the rows that are removed, so the changes are derived from the files before and after, slot by slot.
Pending runs are not included: their rows get into the change data feed when they are folded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from filestore.changelog.files import ChangeWriter
from filestore.changelog.images import changes_as_written
from filestore.commit.proposal import Proposal
from filestore.delta.by_slot import BySlot
from filestore.delta.state import TableState
from filestore.errors import TableStoreError
from filestore.files.leftovers import remove
from filestore.files.writer import TableFiles
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import ChangeFile, Slot
from filestore.reading.difference import SlotDifference, VersionPair, changed_rows, file_differences
from filestore.sorting.runs import local_runs
from filestore.threads import in_threads
from filestore.unreadable import is_unreadable

__all__ = [
    "ChangeRunner",
    "ReplacedRows",
    "changes_in_threads",
    "discard_changes",
    "needs_change_data",
    "readers_can_derive",
    "write_changes",
]

logger = logging.getLogger(__name__)

ChangeRunner = Callable[[TableFiles, Sequence[SlotDifference]], Sequence[tuple[ChangeFile, ...]]]
"""Runs `write_changes` for each difference, anywhere and in any order; the results are in the given order."""


def needs_change_data(definition: TableDefinition) -> bool:
    """Returns whether commits that replace files need change data: without a key readers derive it from the files."""
    return bool(definition.primary_key) and definition.changelog_producer is not ChangelogProducer.NONE


def readers_can_derive(differences: Iterable[SlotDifference]) -> bool:
    """Returns whether readers derive the changes correctly: whole files are only added or only removed."""
    listed = list(differences)
    come = [file for difference in listed for file in difference.after]
    gone = [file for difference in listed for file in difference.before]
    return not (come and gone) and all(file.vector is None for file in (*come, *gone))


def write_changes(table: TableFiles, difference: SlotDifference) -> tuple[ChangeFile, ...]:
    """Writes the changes between a slot's earlier and later files; writes no file without a change.

    It takes the memory of `changed_rows`.
    """
    compared = VersionPair(table, table, table.definition.schema)
    with ChangeWriter(table, difference.slot) as writer:
        for rows in changed_rows(compared, difference, local_runs):
            writer.write(changes_as_written(rows, table.definition))
        return writer.finish()


class ReplacedRows:
    """Keeps the change data of one commit over its attempts: only slots that others changed are computed again.

    Args:
        runner: Computes and writes the changes.

    Attributes:
        written: All files that were written so far.
        unused: Those that the last result does not name: leftovers, once it is committed.
    """

    def __init__(self, runner: ChangeRunner) -> None:
        self._runner = runner
        self._by_slot: dict[Slot, tuple[ChangeFile, ...]] = {}
        self._blank: tuple[ChangeFile, ...] = ()
        self.written: set[str] = set()
        self.unused: set[str] = set()

    def of_overwrite(
        self, table: TableFiles, state: TableState, proposal: Proposal, changed: frozenset[Slot] = frozenset()
    ) -> Proposal:
        """Adds change data to the proposal of an overwrite or a drop of partitions.

        None, where rows that leave the table cannot be read: otherwise nobody could replace a damaged file. Readers of
        the feed then take the commit's files, and fail at the damaged one.

        Args:
            table: The table.
            state: The version on which it is committed.
            proposal: The overwrite or drop.
            changed: Slots whose rows others changed since the last call.
        """
        if not needs_change_data(table.definition):
            return proposal
        before = BySlot(state.files.within(proposal.files.replaces))
        differences = file_differences(before, BySlot(proposal.files.adds))
        try:
            files = replace(proposal.files, cdc=self.of_files(table, differences, changed))
        except TableStoreError as error:
            if not is_unreadable(error):
                raise
            self.unused = self.written
            note = f"it has no change data, since rows that left the table could not be read: {error.message}"
            logger.warning("an overwrite goes on; %s", note)
            proposal = replace(proposal, notes=(*proposal.notes, note))
            files = replace(proposal.files, cdc=(), unread=True)
        return replace(proposal, files=files, premises=replace(proposal.premises, replaced_slots=True))

    def of_files(
        self, table: TableFiles, differences: Sequence[SlotDifference], changed: frozenset[Slot] = frozenset()
    ) -> tuple[ChangeFile, ...]:
        """Returns the change data of a commit with those differences; nothing where readers can derive it.

        Args:
            table: The table.
            differences: The differences between the files of the version before the commit and after it.
            changed: Slots whose rows others changed since the last call.
        """
        named: tuple[ChangeFile, ...] = ()
        if needs_change_data(table.definition) and not readers_can_derive(differences):
            named = self._written_changes(table, differences, changed) or self._nothing(table, differences[0].slot)
        self.unused = self.written - {file.path for file in named}
        return named

    def _written_changes(
        self, table: TableFiles, differences: Sequence[SlotDifference], changed: frozenset[Slot]
    ) -> tuple[ChangeFile, ...]:
        known = {slot: files for slot, files in self._by_slot.items() if slot not in changed}
        new = [difference for difference in differences if difference.slot not in known]
        found = self._runner(table, new) if new else ()
        known |= {difference.slot: files for difference, files in zip(new, found, strict=True)}
        self._by_slot = {difference.slot: known[difference.slot] for difference in differences}
        named = tuple(file for files in self._by_slot.values() for file in files)
        self.written |= {file.path for file in named}
        return named

    def _nothing(self, table: TableFiles, slot: Slot) -> tuple[ChangeFile, ...]:
        """Returns a file without rows: otherwise readers would take all rows of added and removed files for changes."""
        if not self._blank:
            with ChangeWriter(table, slot) as writer:
                writer.begin()
                self._blank = writer.finish()
            self.written |= {file.path for file in self._blank}
        return self._blank


def changes_in_threads(table: TableFiles, differences: Sequence[SlotDifference]) -> list[tuple[ChangeFile, ...]]:
    """Writes the changes of each slot in a thread for each core. If one fails, the files of the others are removed."""
    return in_threads("changes", partial(write_changes, table), differences, partial(discard_changes, table))


def discard_changes(table: TableFiles, written: Iterable[tuple[ChangeFile, ...]]) -> None:
    """Removes change files that no commit will name."""
    remove(table, (file.path for files in written for file in files))
