"""Finds the rows of two sides that have equal keys, and makes the result of them. Pure.

As in SQL a null equals nothing. NaN equals NaN and -0.0 equals 0.0, as in Spark's joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from filestore.rows.frames import arrow_table
from tablestore.lookup.request import LookupPlan

__all__ = ["KeyIndex", "Matches", "in_order_of_probes", "result"]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of a row that was looked up and a row of the table.

    Attributes:
        probes: The position of the row that was looked up; ascending.
        rows: The rows of the table, one for each of `probes`.
    """

    probes: Positions
    rows: pl.DataFrame


def in_order_of_probes(parts: Sequence[Matches], columns: pl.DataFrame) -> Matches:
    """Joins matches of different rows together.

    Args:
        parts: The matches.
        columns: A frame with the columns of the result, for the case that there is no part.
    """
    if len(parts) == 1:
        return parts[0]
    probes = np.concatenate([np.empty(0, np.int64), *(part.probes for part in parts)])
    order = np.argsort(probes, kind="stable")
    return Matches(probes[order], pl.concat([columns.clear(), *(part.rows for part in parts)])[order])


class KeyIndex:
    """Rows of a table with an index by some of their columns, for any number of look-ups.

    It keeps the hash of each row's key in ascending order: 64 bits find candidates, whose keys are then compared.

    Args:
        rows: The rows.
        keys: The columns of the key.
    """

    def __init__(self, rows: pl.DataFrame, keys: Sequence[str]) -> None:
        self.rows = rows
        self._keys = tuple(keys)
        # many nulls have one hash, and equal nothing
        known = rows.select(pl.all_horizontal(pl.col(name).is_not_null() for name in self._keys)).to_series().arg_true()
        hashes = _hashes([rows[name].gather(known) for name in self._keys])
        order = hashes.arg_sort()
        self._order = known.gather(order).to_numpy()
        self._hashes = hashes.gather(order).to_numpy()
        self._unique = len(self._hashes) < 2 or bool((self._hashes[1:] != self._hashes[:-1]).all())

    @property
    def nbytes(self) -> int:
        """About how much memory the rows and the index take."""
        return int(self.rows.estimated_size()) + self._order.nbytes + self._hashes.nbytes

    def matches(self, asked: Sequence[pl.Series]) -> Matches:
        """Finds the rows of all keys; of one key they have the order of the table's rows.

        Args:
            asked: The columns of the keys in the order of the index's, with its types; nulls have no match.
        """
        probes, places = self._candidates(_hashes(asked).to_numpy())
        positions = self._order[places].astype(np.int64)
        same = np.ones(len(probes), dtype=np.bool_)
        for name, values in zip(self._keys, asked, strict=True):
            equal = self.rows[name].gather(positions) == values.gather(probes)
            same &= equal.fill_null(value=False).to_numpy()
        if not same.all():
            probes, positions = probes[same], positions[same]
        order = np.lexsort((positions, probes)) if not self._unique else np.argsort(probes, kind="stable")
        return Matches(probes[order], self.rows[positions[order]])

    def _candidates(self, asked: npt.NDArray[np.uint64]) -> tuple[Positions, Positions]:
        """Pairs of a position in `asked` and a place in the index that have the same hash."""
        if not len(self._hashes):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        order = np.argsort(asked)  # ascending probes find their places several times faster
        asked = asked[order]
        first = np.searchsorted(self._hashes, asked)
        hit = np.flatnonzero(self._hashes[np.minimum(first, len(self._hashes) - 1)] == asked)
        first, order = first[hit], order[hit]
        if self._unique:
            return order, first
        count = np.searchsorted(self._hashes, asked[hit], side="right") - first
        before = np.cumsum(count) - count
        return np.repeat(order, count), np.repeat(first - before, count) + np.arange(count.sum())


def _hashes(columns: Sequence[pl.Series]) -> pl.Series:
    """Hashes each key: equal keys of equal types have the same hash, but only in this process."""
    return pl.DataFrame([column.alias(str(number)) for number, column in enumerate(columns)]).hash_rows()


def result(given: pa.Table, matches: Matches, plan: LookupPlan) -> pa.Table:
    """Returns the rows in their order, each once for each of its matches, with the table's columns behind their own.

    Args:
        given: The rows that were looked up.
        matches: The matches, with the columns of the plan.
        plan: The join.
    """
    left, right = _pairs(given.num_rows, matches.probes, inner=plan.inner)
    rows = given if left is None else given.take(pa.array(left))
    found = matches.rows.select(pl.col(name).alias(str(at)) for at, (name, _) in enumerate(plan.columns))
    if right is not None:
        found = found.select(pl.all().gather(right))
    fields = [field.with_name(str(at)) for at, field in enumerate(plan.fields())]
    columns = arrow_table(found, pa.schema(fields)).columns if fields else []
    schema = pa.schema([*given.schema, *plan.fields()])
    return pa.table([*rows.columns, *columns], schema=schema) if schema.names else rows


def _pairs(count: int, probes: Positions, *, inner: bool) -> tuple[Positions | None, pl.Series | None]:
    """The positions of the result in the rows and in the matches, where null stands for no match; None: all in order.

    Args:
        count: The number of rows.
        probes: The row of each match; ascending.
        inner: Whether rows without a match are left out.
    """
    every = np.arange(count)
    if inner:
        return (None if np.array_equal(probes, every) else probes), None
    found = np.bincount(probes, minlength=count)
    if (found == 1).all():
        return None, None
    times = np.maximum(found, 1)
    matched = pl.Series("matched", np.repeat(found > 0, times))
    places = pl.select(pl.when(matched).then(matched.cum_sum().cast(pl.Int64) - 1)).to_series()
    return (None if (times == 1).all() else np.repeat(every, times)), places
