"""Aggregate functions over arrays and maps: their elements become rows of their own (FORMAT.md section 9.3)."""

from __future__ import annotations

from collections.abc import Sequence

from filestore.lazily import pl
from filestore.merge.history import ADDS, GROUP, History
from filestore.rows.frames import gatherable

__all__ = ["collect", "merge_map", "nested_update"]

_VALUE, _PLACE, _KNOWN = "_value", "_place", "_known"


def collect(history: History, column: str, *, distinct: bool) -> pl.Series:
    """Concatenates the elements of all arrays. A retracted array removes one equal element for each of its elements.

    With `distinct` each value is kept once, at its first place since it was last retracted.
    """
    rows = _elements(history, column)
    if distinct:
        last_gone = pl.col(_PLACE).filter(~pl.col(ADDS)).max().over(GROUP, _VALUE)
        kept = rows.filter(pl.col(ADDS) & (last_gone.is_null() | (pl.col(_PLACE) > last_gone)))
        kept = kept.filter(pl.col(_PLACE) == pl.col(_PLACE).min().over(GROUP, _VALUE))
    elif rows[ADDS].all():
        kept = rows
    else:
        kept = _left_over(rows)
    return _arrays(history, column, kept)


def _left_over(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the elements that are not retracted: of equal elements the latest, as many as are left.

    Retracting a missing element changes nothing, so the count of a value never goes below zero: it ends at the sum of
    all steps, minus the lowest value below zero of the running sum.
    """
    step = pl.when(pl.col(ADDS)).then(1).otherwise(-1)
    running = step.cum_sum().over(GROUP, _VALUE)
    left = step.sum().over(GROUP, _VALUE) - pl.min_horizontal(pl.lit(0), running.min().over(GROUP, _VALUE))
    added_after = pl.col(ADDS).cast(pl.Int64).cum_sum(reverse=True).over(GROUP, _VALUE)
    return rows.filter(pl.col(ADDS) & (added_after <= left))


def merge_map(history: History, column: str) -> pl.Series:
    """Merges the entries of all maps; the last entry of a key wins."""
    entry = pl.col(_VALUE).struct
    rows = _elements(history, column).with_columns(entry.field("key").alias("_key"))
    return _arrays(history, column, _last_of(rows, ["_key"]))


def nested_update(history: History, column: str, keys: Sequence[str]) -> pl.Series:
    """Merges the structs of all arrays; of structs with equal `keys` the last wins. Without keys all are kept.

    A null element has no key: it equals other null elements, and no struct whose key is null.
    """
    rows = _elements(history, column)
    if keys:
        parts = {_KNOWN: pl.col(_VALUE).is_not_null()}
        parts |= {f"_key_{key}": pl.col(_VALUE).struct.field(key) for key in keys}
        rows = _last_of(rows.with_columns(**parts), list(parts))
    return _arrays(history, column, rows)


def _last_of(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Keeps the last value of the rows with one key, at the place of the first."""
    if rows.is_empty():
        return rows
    return rows.group_by(GROUP, *keys, maintain_order=True).agg(pl.col(_PLACE).first(), pl.col(_VALUE).last())


def _elements(history: History, column: str) -> pl.DataFrame:
    """Returns one row for each element, in order."""
    arrays = history.frame.select(GROUP, ADDS, pl.col(column).alias(_VALUE)).filter(pl.col(_VALUE).list.len() > 0)
    return arrays.explode(_VALUE).with_row_index(_PLACE).cast({_PLACE: pl.Int64})


def _arrays(history: History, column: str, rows: pl.DataFrame) -> pl.Series:
    """Returns one array for each key: null if the key had no array at all, empty if no element is left."""
    kind = history.frame.schema[column]
    whole = rows.sort(GROUP, _PLACE).group_by(GROUP, maintain_order=True).agg(pl.col(_VALUE).alias(column))
    known = history.frame.group_by(GROUP, maintain_order=True).agg((pl.col(column).count() > 0).alias("_known"))
    found = known.join(gatherable(whole), on=GROUP, how="left", maintain_order="left")
    empty = pl.lit(pl.Series([[]], dtype=kind)).first()
    filled = pl.when(pl.col("_known")).then(pl.col(column).fill_null(empty))
    return history.every_key(found.select(GROUP, filled.cast(kind).alias(column)))[column]
