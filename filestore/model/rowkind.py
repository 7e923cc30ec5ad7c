"""Row kinds: what a change does to its key (FORMAT.md section 9; FLIP-95, the names are Flink's and Paimon's)."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["KIND_COLUMN", "RowKind"]

KIND_COLUMN = "_kind"


class RowKind(StrEnum):
    """The four kinds. ``+I`` and ``+U`` put a row, ``-U`` and ``-D`` take one away."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    @property
    def adds(self) -> bool:
        """Whether a row of this kind is in the table afterwards."""
        return self in (RowKind.INSERT, RowKind.UPDATE_AFTER)
