"""The stored rows of some keys and the changes to them, in the order in which they apply.

All merge engines except deduplicate turn a history into the merged row of each key (FORMAT.md section 9.3). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.lazily import pl
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.own_columns import is_own
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.frames import gatherable, with_entries
from filestore.rows.keys import changes
from filestore.rows.ordering import ascending_positions

__all__ = ["ADDS", "GROUP", "KIND", "RUN_COLUMN", "STORED", "History", "Stored", "group_starts", "history"]

GROUP, STORED, ADDS, KIND = "_group", "_stored", "_adds", KIND_COLUMN
RUN_COLUMN = "_run"
"""The number of the run of a change, if runs have to be merged one after the other."""
_ARRIVAL = "_arrival"
_PUTS = [str(kind) for kind in RowKind if kind.adds]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stored:
    """Live rows of the table.

    Attributes:
        groups: The number of each row's key.
        rows: The rows with all columns.
    """

    groups: Rows
    rows: pl.DataFrame


@dataclass(frozen=True, slots=True)
class History:
    """The stored rows and changes of some keys.

    Attributes:
        frame: Rows sorted by `GROUP` and, within it, in the order in which they apply. `STORED`: the row is the
            table's. `ADDS`: it adds a row, and does not remove one. `KIND`: its row kind; null if it was not given.
            `RUN_COLUMN`: the run of a change, if the changes have it.
        keys: The number of keys: groups are numbered from 0.
    """

    frame: pl.DataFrame
    keys: int

    def where(self, condition: pl.Expr) -> History:
        """Returns only the rows that meet a condition, of the same keys."""
        return History(self.frame.filter(condition), self.keys)

    def every_key(self, found: pl.DataFrame) -> pl.DataFrame:
        """Returns one row for each key, in order; nulls for keys that `found`, which has a `GROUP`, lacks."""
        if found.height == self.keys:
            return found.drop(GROUP)
        groups = pl.DataFrame({GROUP: np.arange(self.keys)})
        return groups.join(gatherable(found), on=GROUP, how="left", maintain_order="left").drop(GROUP)


def group_starts(rows: pa.Table, keys: Sequence[str]) -> Rows:
    """Returns the positions at which each key begins in rows that are sorted by key."""
    return np.concatenate([[0], np.flatnonzero(changes(rows, keys)) + 1]).astype(np.int64)


def history(rows: pa.Table, starts: Rows, stored: Sequence[Stored], sequence: str | None) -> History:
    """Makes a history from stored rows and changes.

    Args:
        rows: Changes in key order; equal keys are in any order if they have an `ORDINAL_COLUMN`, else as they arrived.
        starts: The result of `group_starts`.
        stored: At most one row for each key, with the table's columns.
        sequence: Orders the rows of a key (null first; of equal ones the later is last), stored rows among them.
    """
    sizes = np.diff(np.append(starts, rows.num_rows))
    names = [name for name in rows.column_names if not is_own(name)]
    changes = _changes(rows, names, np.repeat(np.arange(len(starts)), sizes))
    run = [pl.lit(None, pl.Int32).alias(RUN_COLUMN)] if RUN_COLUMN in changes.columns else []
    parts = [*(_numbered(with_entries(part.rows.select(names)), part.groups, run) for part in stored), changes]
    frame = gatherable(pl.concat(parts))
    order = frame.select(GROUP, *([sequence] if sequence else []), _ARRIVAL)
    return History(frame[ascending_positions(order)].drop(_ARRIVAL), len(starts))


def _numbered(rows: pl.DataFrame, groups: Rows, more: Sequence[pl.Expr]) -> pl.DataFrame:
    """Marks rows of the table: they come before all changes, unless a sequence orders them differently."""
    return rows.with_columns(
        pl.Series(GROUP, groups, pl.Int64),
        pl.lit(True).alias(STORED),
        pl.lit(None, pl.String).alias(KIND),
        pl.lit(-1, pl.Int64).alias(_ARRIVAL),
        pl.lit(True).alias(ADDS),
        *more,
    )


def _changes(rows: pa.Table, names: Sequence[str], groups: Rows) -> pl.DataFrame:
    frame = pl.from_arrow(rows.select(list(names)))
    assert isinstance(frame, pl.DataFrame)
    has = rows.column_names
    kind = pl.Series(KIND, rows.column(KIND_COLUMN)) if KIND_COLUMN in has else pl.lit(None, pl.String).alias(KIND)
    arrival = pl.Series(_ARRIVAL, rows.column(ORDINAL_COLUMN)) if ORDINAL_COLUMN in has else pl.lit(0).alias(_ARRIVAL)
    run = [pl.Series(RUN_COLUMN, rows.column(RUN_COLUMN))] if RUN_COLUMN in has else []
    return (
        with_entries(frame)
        .with_columns(
            pl.Series(GROUP, groups, pl.Int64),
            pl.lit(False).alias(STORED),
            kind,
            arrival.cast(pl.Int64),
        )
        .with_columns((pl.col(KIND).is_null() | pl.col(KIND).is_in(_PUTS)).alias(ADDS), *run)
    )
