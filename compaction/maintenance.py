"""What a table needs from time to time, in the order that helps most: tags first, so that their versions stay."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.life.expiry import Expiry, expire
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
    """

    tag: Tag | None
    expiry: Expiry


def maintain(store: FileStore) -> Maintenance:
    """Creates the tag that is due, and lets versions expire. Cheap if there is nothing to do; safe to repeat."""
    tag = create_due_tag(store)
    return Maintenance(tag, expire(store))
