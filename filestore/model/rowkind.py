"""Row kinds: how a change affects its key (FORMAT.md section 9; the names are Flink's (FLIP-95) and Paimon's)."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["KIND_COLUMN", "RowKind"]

KIND_COLUMN = "_kind"


class RowKind(StrEnum):
    """The four kinds of changes. ``+I`` and ``+U`` add a row, ``-U`` and ``-D`` remove one."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    @property
    def adds(self) -> bool:
        """Returns whether the table has a row of this kind after the change."""
        return self in (RowKind.INSERT, RowKind.UPDATE_AFTER)
