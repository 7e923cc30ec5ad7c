"""Finds sidecars that no checkpoint names any more (FORMAT.md section 14; Delta protocol, "Metadata Cleanup")."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from filestore import layout
from filestore.delta.checkpoint_reading import named_sidecars
from filestore.delta.log import DeltaLog
from filestore.errors import Corrupt, NotFound
from filestore.storage.interface import FileInfo

__all__ = ["SIDECAR_MS", "unnamed_sidecars"]

SIDECAR_MS = 86_400_000
"""The age in milliseconds up to which a sidecar is kept, since the file that names it is written after it: a day."""


def unnamed_sidecars(log: DeltaLog, files: Iterable[FileInfo], before_ms: int) -> Sequence[FileInfo]:
    """Returns the sidecars that no checkpoint names, and that were written before a time.

    IMPORTANT: list the files first. What a checkpoint names that is written later is younger, or is named by another
    one that is there.

    Args:
        log: The table's Delta log.
        files: Files of the table; those that are no sidecars are left out.
        before_ms: The time in milliseconds since 1970 UTC.

    Returns:
        The sidecars; an empty sequence if a checkpoint is damaged, since it may name any of them.
    """
    sidecars = [info for info in files if layout.is_sidecar(info.path.removeprefix(layout.join(log.location, "")))]
    old = [info for info in sidecars if info.modified_ms < before_ms]
    if not old:
        return ()
    named = set[str]()
    for checkpoints in log.listing().complete.values():
        for checkpoint in checkpoints:
            try:
                named |= named_sidecars(log.storage, log.location, checkpoint)
            except NotFound:
                continue  # it was removed meanwhile
            except Corrupt:
                return ()
    return [info for info in old if info.path not in named]
