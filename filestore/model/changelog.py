"""Changelog producers: what a table writes down of its changes for Delta's change data feed (FORMAT.md section 13)."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CHANGE_TYPE_COLUMN", "ChangeType", "ChangelogProducer"]

CHANGE_TYPE_COLUMN = "_change_type"


class ChangeType(StrEnum):
    """What became of a row (Delta protocol, "Change Data Files")."""

    INSERT = "insert"
    UPDATE_BEFORE = "update_preimage"
    UPDATE_AFTER = "update_postimage"
    DELETE = "delete"


class ChangelogProducer(StrEnum):
    """Where a table's change data comes from; the names are Paimon's."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"

    @property
    def images(self) -> bool:
        """Whether change data are exact images of the stored rows, before and after."""
        return self in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION)
