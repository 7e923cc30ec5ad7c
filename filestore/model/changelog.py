"""Changelog producers: how a table produces the change data of Delta's change data feed (FORMAT.md section 13)."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CHANGE_TYPE_COLUMN", "ChangeType", "ChangelogProducer"]

CHANGE_TYPE_COLUMN = "_change_type"


class ChangeType(StrEnum):
    """The kinds of changes in change data (Delta protocol, "Change Data Files")."""

    INSERT = "insert"
    UPDATE_BEFORE = "update_preimage"
    UPDATE_AFTER = "update_postimage"
    DELETE = "delete"


class ChangelogProducer(StrEnum):
    """The ways to produce a table's change data; the names are Paimon's."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"

    @property
    def images(self) -> bool:
        """Returns whether the change data is made of the stored rows, before and after each change."""
        return self in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION)
