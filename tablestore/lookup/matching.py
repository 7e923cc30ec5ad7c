"""Finds the rows of two sides that have equal keys, and makes the result of them. Pure.

As in SQL a null equals nothing. NaN equals NaN and -0.0 equals 0.0, as in Spark's joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.lazily import pl
from filestore.rows.frames import arrow_table, gatherable
from tablestore.lookup.request import LookupPlan

__all__ = ["KeyIndex", "Matches", "result"]

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs of a row that was looked up and a row of the table.

    Attributes:
        rows: Rows of the table, all matches among them.
        probes: The position of the row that was looked up, for each pair. The pairs of one such row have the order in
            which they are in the result; otherwise there is no order.
        places: The position in `rows`, for each pair.
    """

    rows: pl.DataFrame
    probes: Positions
    places: Positions

    @classmethod
    def joined(cls, parts: Sequence[Matches], empty: pl.DataFrame) -> Matches:
        """Joins matches together, in their order.

        Args:
            parts: The matches.
            empty: A frame with the columns of the rows, for the case that there is no part.
        """
        none = np.empty(0, dtype=np.int64)
        starts = np.cumsum([0, *(part.rows.height for part in parts)])
        return cls(
            pl.concat([empty, *(part.rows for part in parts)]),
            np.concatenate([none, *(part.probes for part in parts)]),
            np.concatenate([none, *(part.places + start for part, start in zip(parts, starts[:-1], strict=True))]),
        )

    def where(self, wanted: Mask) -> Matches:
        """Returns the pairs that a mask chooses."""
        return self if wanted.all() else Matches(self.rows, self.probes[wanted], self.places[wanted])

    def with_equal(self, key: str, asked: pl.Series) -> Matches:
        """Returns the pairs whose rows have equal values in that column; nulls are not equal."""
        equal = self.rows[key].gather(self.places) == asked.gather(self.probes)
        return self.where(equal.fill_null(value=False).to_numpy())

    def without(self, keys: pl.DataFrame) -> Matches:
        """Returns the pairs whose rows have none of these keys; `keys` has some columns of the rows."""
        numbered = self.rows.select(keys.columns).with_row_index("_row")
        changed = np.zeros(self.rows.height, dtype=np.bool_)
        changed[numbered.join(keys, on=keys.columns, how="semi")["_row"].to_numpy()] = True
        return self.where(~changed[self.places])

    def only_matched(self) -> Matches:
        """Returns the same pairs without the rows that are in none of them."""
        return Matches(gatherable(self.rows)[self.places], self.probes, np.arange(len(self.places)))


class KeyIndex:
    """Rows of a table with an index by some of their columns, for any number of look-ups.

    It keeps the hash of each row's key in ascending order: 64 bits find candidates, whose keys are then compared.

    Args:
        rows: The rows.
        keys: The columns of the key.
    """

    def __init__(self, rows: pl.DataFrame, keys: Sequence[str]) -> None:
        self.rows = gatherable(rows)
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
        """Finds the pairs of equal keys; those of one key have the order of the index's rows.

        Args:
            asked: The columns of the keys in the order of the index's, with its types; nulls have no match.
        """
        probes, places = self._candidates(_hashes(asked).to_numpy())
        found = Matches(self.rows, probes, self._order[places].astype(np.int64))
        for name, values in zip(self._keys, asked, strict=True):
            found = found.with_equal(name, values)
        if self._unique:
            return found
        order = np.lexsort((found.places, found.probes))
        return Matches(found.rows, found.probes[order], found.places[order])

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
    left, places = _pairs(given.num_rows, matches, inner=plan.inner)
    rows = given if left is None else given.take(pa.array(left))
    missing = places < 0
    right = pl.Series(places) if not missing.any() else pl.Series(places).set(pl.Series(missing), None)
    found = matches.rows.select(pl.col(name).alias(str(at)) for at, (name, _) in enumerate(plan.columns))
    found = gatherable(found).select(pl.all().gather(right))
    fields = [field.with_name(str(at)) for at, field in enumerate(plan.fields())]
    columns = arrow_table(found, pa.schema(fields)).columns if fields else []
    schema = pa.schema([*given.schema, *plan.fields()])
    return pa.table([*rows.columns, *columns], schema=schema) if schema.names else rows


def _pairs(count: int, matches: Matches, *, inner: bool) -> tuple[Positions | None, Positions]:
    """The pairs of the result, in order: positions of the rows that were looked up and of the table's rows.

    Args:
        count: The number of rows that were looked up.
        matches: The matches.
        inner: Whether rows without a match are left out.

    Returns:
        The positions of the rows that were looked up, None if each is there once; and for each of them the place of its
        row of the table, or -1 if it has none.
    """
    found = np.bincount(matches.probes, minlength=count)
    if (found <= 1).all():
        places = np.full(count, -1)
        places[matches.probes] = matches.places
        if not inner or found.all():
            return None, places
        left = np.flatnonzero(found)
        return left, places[left]
    left = np.repeat(np.arange(count), found if inner else np.maximum(found, 1))
    places = np.full(len(left), -1)
    places[found[left] > 0] = matches.places[np.argsort(matches.probes, kind="stable")]
    return left, places
