"""Replays changes, and checks whether each arrived exactly once. Pure functions over frames."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

__all__ = ["fingerprint", "out_of_turn", "replayed"]

_KIND = "_kind"
_APPEARS, _VANISHES = "+I", "-D"


def replayed(changes: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Returns the rows after all changes, which are in order: the last one of each key, unless it is a delete."""
    last = changes.group_by(key, maintain_order=True).last()
    return last.filter(pl.col(_KIND) != _VANISHES).select(pl.exclude(_KIND))


def out_of_turn(changes: pl.DataFrame, key: Sequence[str]) -> int:
    """Counts the changes that do not follow from those before them.

    With one writer a row can be added (``+I``) only if the key has none, and updated or deleted only if it has one. So
    a lost or repeated ``+I`` or ``-D`` is found here; a lost or repeated ``+U`` changes the number of changes.
    """
    is_there = (pl.col(_KIND) != _VANISHES).shift(1, fill_value=False).over(key)
    return int(changes.select(((pl.col(_KIND) == _APPEARS) == is_there).sum()).item())


def fingerprint(rows: pl.DataFrame) -> str:
    """A checksum of all values, which is equal for equal rows in any order and from any reader."""
    columns = [pl.col(name).cast(_common(kind)) for name, kind in sorted(rows.schema.items())]
    total = int(rows.select(columns).hash_rows(seed=2013).to_numpy().sum())
    return f"{total:016x}"


def _common(kind: pl.DataType) -> pl.DataType:
    """Converts types that readers return differently to one: widths of integers, units of time."""
    if kind.is_integer():
        return pl.Int64()
    if isinstance(kind, pl.Datetime):
        return pl.Datetime("us", "UTC")
    return kind
