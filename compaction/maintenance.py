"""Periodic maintenance of a table, in the best order: first tags, so that the versions that they name are kept."""

from __future__ import annotations

from dataclasses import dataclass

from compaction.log_trim import trim_log
from filestore.life.expiry import Expiry, expire
from filestore.life.overlays import remove_old_overlays
from filestore.life.tags import create_due_tag
from filestore.retention.rules import Tag
from managed_table.opened import OpenedTable

__all__ = ["Maintenance", "maintain"]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The result of maintenance.

    Attributes:
        tag: The tag that was due.
        expiry: The versions and files that expired.
        overlays: The number of overlays that were removed because of their age.
        log_records: The number of offsets of an embedded log that were trimmed because of their records' age.
    """

    tag: Tag | None
    expiry: Expiry
    overlays: int = 0
    log_records: int = 0


def maintain(table: OpenedTable) -> Maintenance:
    """Creates the tag that is due, expires versions if that frees something, and removes old overlays and records.

    It is cheap if there is nothing to do, and can be repeated.
    """
    store = table.filestore
    tag = create_due_tag(store)
    return Maintenance(tag, expire(store, lazily=True), remove_old_overlays(store), trim_log(table))
