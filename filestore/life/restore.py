"""Plans a rollback: how the newest version's files become those of an older version (FORMAT.md section 14). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from filestore.delta.by_slot import BySlot
from filestore.delta.state import TableState
from filestore.errors import Unsupported
from filestore.model.definition import COLUMN_MAPPING, TableDefinition
from filestore.model.evolution import MERGING_OPTIONS
from filestore.model.files import DataFile, Slot, Tombstones
from filestore.model.schema import Column
from filestore.model.table_options import TableOptions
from filestore.model.types import to_sql
from filestore.reading.difference import SlotDifference, file_differences

__all__ = ["Restored", "as_defined_now", "restored"]


@dataclass(frozen=True, slots=True)
class Restored:
    """The changes of files and tombstones that a rollback needs.

    Attributes:
        adds: Files that are restored, with the dead rows that they had.
        vectors: Files that stay, with the dead rows that they had: more, fewer or none.
        removes: Files that are removed.
        remembered: Deleted keys that are remembered again.
        forgotten: Deleted keys whose deletes are rolled back, or which are in `remembered` again.
        slots: The slots in which files change.
    """

    adds: tuple[DataFile, ...]
    vectors: tuple[DataFile, ...]
    removes: tuple[DataFile, ...]
    remembered: tuple[Tombstones, ...]
    forgotten: tuple[Tombstones, ...]
    slots: frozenset[Slot]

    @property
    def nothing(self) -> bool:
        """Returns whether there is nothing to change."""
        return not (self.slots or self.remembered or self.forgotten)

    def differences(self, base: TableState) -> list[SlotDifference]:
        """Returns the differences between the files of a version and those after the rollback."""
        former = (base.files.current(file) for file in (*self.removes, *self.vectors))
        return file_differences(BySlot(filter(None, former)), BySlot((*self.adds, *self.vectors)))


def restored(base: TableState, target: TableState, now_ms: int) -> Restored:
    """Returns the changes from a version's files to those of an older one.

    Args:
        base: The newest version.
        target: The older version, with the definition of `base` (`as_defined_now`) and without a pending run.
        now_ms: The time: tombstones that are older than the table remembers are not restored.
    """
    changed = file_differences(base.files, target.files)
    come = [file for difference in changed for file in difference.after]
    adds = tuple(file for file in come if base.files.current(file) is None)
    vectors = tuple(file for file in come if base.files.current(file) is not None)
    gone = (file for difference in changed for file in difference.before)
    leaving = tuple(file for file in gone if target.files.current(file) is None)
    slots = frozenset(file.slot for file in (*adds, *vectors, *leaving))
    now, then = _tombstones(base), _tombstones(target)
    young_ms = now_ms - base.definition.tombstone_retention_ms
    remembered = tuple(run for name, run in then.items() if name not in now and run.modified_ms >= young_ms)
    forgotten = tuple(run for name, run in now.items() if name not in then)
    return Restored(adds, vectors, leaving, remembered, forgotten, slots)


def _tombstones(state: TableState) -> dict[str, Tombstones]:
    return {run.id: run for run in state.tombstones}


def as_defined_now(target: TableState, base: TableState) -> TableState:
    """Returns an older version's files and runs with the definition of a newer one.

    Options that decide how rows are merged stay those of the older version, because its pending runs were written for
    them.

    Raises:
        Unsupported: ``rollback-over-schema``: the files cannot be read correctly with the newer definition.
    """
    now, then = base.definition, target.definition
    if (target.files or target.pending) and (obstacle := next(_obstacles(now, then), None)) is not None:
        raise Unsupported(
            f"the files of version {target.version} do not read right with the columns of version {base.version}: "
            f"{obstacle}. Roll back to a version after that change, or write the old version's rows as an overwrite",
            code="rollback-over-schema",
        )
    given = {name: value for name, value in now.options.given if name not in MERGING_OPTIONS}
    given |= {name: value for name, value in then.options.given if name in MERGING_OPTIONS}
    return replace(target, definition=replace(now, options=TableOptions.parse(given)))


def _obstacles(now: TableDefinition, then: TableDefinition) -> Iterator[str]:
    """Yields the reasons why files of an earlier definition cannot be read correctly with a later one."""
    for what, here, there in (
        ("primary key", now.primary_key, then.primary_key),
        ("partition columns", now.partition_by, then.partition_by),
        ("number of buckets", now.buckets, then.buckets),
        ("bucket columns", _placing(now), _placing(then)),
    ):
        if here != there:
            yield f"they are made for another {what}, {there} instead of {here}"
    former = {column.id: column for column in then.schema.numbered()}
    names = {column.in_files for column in then.schema}
    for column in now.schema.numbered():
        before = former.pop(column.id, None)
        yield from _new_to(names, column) if before is None else _unlike(before, column)
    if COLUMN_MAPPING not in now.features:  # with it, a later column never has an earlier one's name in files
        for gone in former.values():
            yield f"they hold column {gone.name!r}, which was dropped, and would show it in a new one of that name"


def _placing(definition: TableDefinition) -> tuple[str, ...]:
    return definition.bucket_key if definition.buckets > 1 else ()


def _new_to(names: set[str], column: Column) -> Iterator[str]:
    if column.in_files in names:
        yield f"their column {column.in_files!r} is another one than column {column.name!r} is now"
    elif not column.nullable:
        yield f"they lack column {column.name!r}, which is NOT NULL"


def _unlike(before: Column, column: Column) -> Iterator[str]:
    if before.in_files != column.in_files:
        yield f"they call column {column.name!r} {before.in_files!r}"
    elif not {before.type, *before.former_types} <= {column.type, *column.former_types}:
        yield f"they have column {column.name!r} as {to_sql(before.type)}, and it is {to_sql(column.type)} now"
    elif before.nullable and not column.nullable:
        yield f"they may hold nulls in column {column.name!r}, which is NOT NULL now"
