"""What a table needs from time to time, in the order that helps most: tags first, so that their versions stay."""

from __future__ import annotations

from dataclasses import dataclass

from compaction.log_trim import trim_log
from filestore.life.expiry import Expiry, expire
from filestore.life.overlays import remove_old_overlays
from filestore.life.retention import Tag
from filestore.life.tags import create_due_tag
from filestore.table import FileStore

__all__ = ["Maintenance", "maintain"]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What was done.

    Attributes:
        tag: The tag that was due.
        expiry: What expired.
        overlays: How many overlays of versions with pending runs, and of fresh reads, were removed, since they are old.
        log_records: How many offsets of an embedded log were trimmed, since their records are old.
    """

    tag: Tag | None
    expiry: Expiry
    overlays: int = 0
    log_records: int = 0


def maintain(store: FileStore) -> Maintenance:
    """Creates the tag that is due, lets versions expire once that frees something, removes old overlays and records.

    Cheap if there is nothing to do; safe to repeat.
    """
    tag = create_due_tag(store)
    return Maintenance(tag, expire(store, lazily=True), remove_old_overlays(store), trim_log(store))
