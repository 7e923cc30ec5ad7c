"""Change data of overwrites, dropped partitions and rollbacks, which replace files (FORMAT.md section 13).

No fold meets the rows that leave, so what changes is told from the files before and after, slot by slot. Pending runs
have no part in it: readers of the feed learn of their rows when they are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from filestore.changelog.files import ChangeWriter
from filestore.changelog.images import as_they_came
from filestore.delta.conflict import Proposal
from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import ChangeFile, Slot
from filestore.reading.difference import Compared, SlotDifference, changed_rows, file_differences, on_local_disk

__all__ = ["ChangeRunner", "ReplacedRows", "are_inferred", "tells_replaced", "write_changes"]

ChangeRunner = Callable[[TableFiles, Sequence[SlotDifference]], Sequence[tuple[ChangeFile, ...]]]
"""Does `write_changes` for each, in any order and any place; results come in the order of the differences."""


def tells_replaced(definition: TableDefinition) -> bool:
    """Whether commits that replace files have to say what that changes. Without a key rows only come and go."""
    return bool(definition.primary_key) and definition.changelog_producer is not ChangelogProducer.NONE


def are_inferred(differences: Iterable[SlotDifference]) -> bool:
    """Whether all readers infer the changes rightly from the files: whole ones come, or whole ones leave, not both."""
    listed = list(differences)
    come = [file for difference in listed for file in difference.after]
    gone = [file for difference in listed for file in difference.before]
    return not (come and gone) and all(file.vector is None for file in (*come, *gone))


def write_changes(table: TableFiles, difference: SlotDifference) -> tuple[ChangeFile, ...]:
    """Writes down what makes the rows of a slot's earlier files those of the later ones; no file without a change.

    Memory: as `changed_rows` says.
    """
    compared = Compared(table, table, table.definition.schema)
    with ChangeWriter(table, difference.slot) as writer:
        for rows in changed_rows(compared, difference, on_local_disk):
            writer.write(as_they_came(rows, table.definition))
        return writer.finish()


class ReplacedRows:
    """The change data of one commit while it is fought through: slots that others change are worked out again.

    Args:
        runner: Where that is done; one slot after the other in this thread if None.

    Attributes:
        written: All files that were written so far.
        unused: Those that the last answer does not name: leftovers, once it is committed.
    """

    def __init__(self, runner: ChangeRunner | None = None) -> None:
        self._runner = runner or _one_by_one
        self._by_slot: dict[Slot, tuple[ChangeFile, ...]] = {}
        self._blank: tuple[ChangeFile, ...] = ()
        self.written: set[str] = set()
        self.unused: set[str] = set()

    def of_overwrite(
        self, table: TableFiles, state: TableState, proposal: Proposal, changed: frozenset[Slot] = frozenset()
    ) -> Proposal:
        """An overwrite or a drop with its change data.

        Args:
            table: The table.
            state: The version upon which it is committed.
            proposal: The overwrite or drop.
            changed: Slots whose rows others changed since the last call.
        """
        if not tells_replaced(table.definition):
            return proposal
        before = {path: file for path, file in state.files.items() if file.slot.partition in proposal.replaces}
        differences = file_differences(before, {file.path: file for file in proposal.adds})
        return replace(proposal, changes=self.of_files(table, differences, changed), compared=True)

    def of_files(
        self, table: TableFiles, differences: Sequence[SlotDifference], changed: frozenset[Slot] = frozenset()
    ) -> tuple[ChangeFile, ...]:
        """The change data of a commit that makes those differences; none where readers infer it rightly.

        Args:
            table: The table.
            differences: In which files the version before the commit and the one after it differ.
            changed: Slots whose rows others changed since the last call.
        """
        named: tuple[ChangeFile, ...] = ()
        if tells_replaced(table.definition) and not are_inferred(differences):
            named = self._told(table, differences, changed) or self._nothing(table, differences[0].slot)
        self.unused = self.written - {file.path for file in named}
        return named

    def _told(
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
        """A file without a row: else readers would take all rows of the files that come and go for changes."""
        if not self._blank:
            with ChangeWriter(table, slot) as writer:
                writer.begin()
                self._blank = writer.finish()
            self.written |= {file.path for file in self._blank}
        return self._blank


def _one_by_one(table: TableFiles, differences: Sequence[SlotDifference]) -> list[tuple[ChangeFile, ...]]:
    done: list[tuple[ChangeFile, ...]] = []
    try:
        for difference in differences:
            done.append(write_changes(table, difference))
    except BaseException:
        for file in (file for files in done for file in files):
            table.storage.delete(table.path(file.path))
        raise
    return done
