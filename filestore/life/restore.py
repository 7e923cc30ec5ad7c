"""Rolling back, as files: how the newest version's become those of an older one again (FORMAT.md section 14). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.delta.state import TableState
from filestore.errors import Unsupported
from filestore.model.files import DataFile, Slot, Tombstones

__all__ = ["Restored", "restored"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What has to change.

    Attributes:
        adds: Files that come back, with the dead rows that they had.
        vectors: Files that stay, with the dead rows that they had: more, fewer or none.
        removes: Paths of files that leave.
        remembered: Deleted keys that are remembered again.
        forgotten: Deleted keys whose deletes are taken back, or which are in `remembered` again.
        slots: Where files change.
    """

    adds: tuple[DataFile, ...]
    vectors: tuple[DataFile, ...]
    removes: tuple[str, ...]
    remembered: tuple[Tombstones, ...]
    forgotten: tuple[Tombstones, ...]
    slots: frozenset[Slot]

    @property
    def nothing(self) -> bool:
        """Whether all is as it was then."""
        return not (self.slots or self.remembered or self.forgotten)


def restored(base: TableState, target: TableState, now_ms: int) -> Restored:
    """From a version's files to those of an older one without a pending run.

    Args:
        base: The version now.
        target: The older one.
        now_ms: The time: deletes that are no longer remembered do not come back.

    Raises:
        Unsupported: ``rollback-over-schema``: columns, keys or buckets were others then.
    """
    _check_same_shape(base, target)
    adds = tuple(file for path, file in target.files.items() if path not in base.files)
    vectors = tuple(f for p, f in target.files.items() if p in base.files and base.files[p].vector != f.vector)
    leaving = [file for path, file in base.files.items() if path not in target.files]
    slots = frozenset(file.slot for file in (*adds, *vectors, *leaving))
    now, then = _tombstones(base), _tombstones(target)
    young_ms = now_ms - base.definition.tombstone_retention_ms
    remembered = tuple(run for name, run in then.items() if name not in now and run.modified_ms >= young_ms)
    forgotten = tuple(run for name, run in now.items() if name not in then)
    return Restored(adds, vectors, tuple(file.path for file in leaving), remembered, forgotten, slots)


def _tombstones(state: TableState) -> dict[str, Tombstones]:
    return {run.id: run for runs in state.tombstones().values() for run in runs}


def _check_same_shape(base: TableState, target: TableState) -> None:
    now, then = base.definition, target.definition
    for what, here, there in (
        ("columns", now.schema.numbered(), then.schema.numbered()),
        ("primary key", now.primary_key, then.primary_key),
        ("partition columns", now.partition_by, then.partition_by),
        ("bucket columns", now.bucket_key, then.bucket_key),
        ("number of buckets", now.buckets, then.buckets),
    ):
        if here != there:
            raise Unsupported(
                f"version {target.version} has other {what} than version {base.version}, and its files are made for "
                "those: roll back to a version after that change, or write the old version's rows as an overwrite",
                code="rollback-over-schema",
            )
