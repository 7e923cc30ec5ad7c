"""Changes put together again, and whether each came exactly once. Pure functions over frames."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

__all__ = ["fingerprint", "out_of_turn", "replayed"]

_KIND = "_kind"
_APPEARS, _VANISHES = "+I", "-D"


def replayed(changes: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """The rows that are there after all changes, which come in order: of each key the last, unless it was deleted."""
    last = changes.group_by(key, maintain_order=True).last()
    return last.filter(pl.col(_KIND) != _VANISHES).select(pl.exclude(_KIND))


def out_of_turn(changes: pl.DataFrame, key: Sequence[str]) -> int:
    """How many changes do not follow from those before them.

    While one writer writes, a row can only appear (``+I``) where none is, and only change or vanish where one is. So a
    lost or doubled ``+I`` or ``-D`` shows up here; a lost or doubled ``+U`` shows in the number of changes.
    """
    is_there = (pl.col(_KIND) != _VANISHES).shift(1, fill_value=False).over(key)
    return int(changes.select(((pl.col(_KIND) == _APPEARS) == is_there).sum()).item())


def fingerprint(rows: pl.DataFrame) -> str:
    """A checksum of all values, the same for the same rows in any order and of any reader."""
    columns = [pl.col(name).cast(_common(kind)) for name, kind in sorted(rows.schema.items())]
    total = int(rows.select(columns).hash_rows(seed=2013).to_numpy().sum())
    return f"{total:016x}"


def _common(kind: pl.DataType) -> pl.DataType:
    """One type for what readers bring as several: widths of integers, units of time."""
    if kind.is_integer():
        return pl.Int64()
    if isinstance(kind, pl.Datetime):
        return pl.Datetime("us", "UTC")
    return kind
