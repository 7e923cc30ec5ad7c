"""Merges rows commit by commit, as if each commit had been merged when it arrived (FORMAT.md section 9.3). Pure.

So the result does not depend on when runs are folded. The first commit of each key is merged in one step, then the
second ones, and so on: there are as many steps as the commits of the key that has the most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from filestore.lazily import pl
from filestore.merge.fieldwise import Merged, fitting, merge_fields
from filestore.merge.history import ADDS, GROUP, KIND, RUN_COLUMN, STORED, History
from filestore.merge.out_of_range import within
from filestore.model.merging import MergeSpec

__all__ = ["merge_history"]

_TURN, _ALIVE = "_turn", "_alive"
_WIDEST_DECIMAL = 38


def merge_history(past: History, spec: MergeSpec, keys: Sequence[str]) -> Merged:
    """Merges column by column; arguments and errors are those of `filestore.merge.fieldwise.merge_fields`.

    Rows with a `RUN_COLUMN` are merged run by run.
    """
    if RUN_COLUMN not in past.frame.columns:
        return merge_fields(past, spec, keys)
    frame = past.frame.drop(RUN_COLUMN)
    turns = _turns(past.frame.filter(~pl.col(STORED)))
    if not turns.any():
        return merge_fields(History(frame, past.keys), spec, keys)
    wide = _widened(frame, spec)
    state, done = wide.filter(pl.col(STORED)).with_columns(pl.lit(True).alias(_ALIVE)), list[pl.DataFrame]()
    changes = wide.filter(~pl.col(STORED)).with_columns(pl.Series(_TURN, turns)).sort(_TURN, maintain_order=True)
    for turn in changes.partition_by(_TURN, maintain_order=True, include_key=False):
        groups = turn[GROUP].unique().sort()
        mine = pl.col(GROUP).is_in(groups.implode())
        done.append(state.filter(~mine))
        stored = state.filter(mine & pl.col(_ALIVE)).drop(_ALIVE)
        state = _step(pl.concat([stored, turn]), groups.to_numpy(), spec, keys).select(state.columns)
    merged = pl.concat([*done, state]).sort(GROUP)
    names = [name for name in frame.columns if name in (*keys, *spec.fields)]
    return Merged(_narrowed(merged.select(names), frame.schema, spec, keys), merged[_ALIVE])


def _turns(changes: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Counts for each change the earlier runs that have its key."""
    runs = changes[RUN_COLUMN].to_numpy().astype(np.int64)
    most = int(runs.max(initial=0)) + 1
    pairs, place = np.unique(changes[GROUP].to_numpy() * most + runs, return_inverse=True)
    groups = pairs // most
    turns: npt.NDArray[np.int64] = np.arange(len(pairs)) - np.searchsorted(groups, groups)
    return turns[place]


def _step(rows: pl.DataFrame, groups: npt.NDArray[np.int64], spec: MergeSpec, keys: Sequence[str]) -> pl.DataFrame:
    """Merges one more commit of some keys: returns them as stored rows, and in `_ALIVE` whether there is a row."""
    order = [GROUP, *([spec.sequence] if spec.sequence else [])]
    ordered = rows.sort(order, nulls_last=False, maintain_order=True)
    numbered = ordered.with_columns(pl.Series(GROUP, np.searchsorted(groups, ordered[GROUP].to_numpy())))
    merged = merge_fields(History(numbered, len(groups)), spec, keys)
    return merged.rows.with_columns(
        pl.Series(GROUP, groups),
        pl.lit(True).alias(STORED),
        pl.lit(None, pl.String).alias(KIND),
        pl.lit(True).alias(ADDS),
        merged.alive.alias(_ALIVE),
    )


def _widened(frame: pl.DataFrame, spec: MergeSpec) -> pl.DataFrame:
    """Gives sums and counts wider types: only the final results have to fit their columns."""
    return frame.with_columns(
        pl.col(name).cast(_wide(frame.schema[name], field.function))
        for name, field in spec.fields.items()
        if _adds_up(field.function)
    )


def _narrowed(rows: pl.DataFrame, schema: pl.Schema, spec: MergeSpec, keys: Sequence[str]) -> pl.DataFrame:
    named = rows.select(keys)
    return rows.with_columns(
        fitting(rows[name], within(rows[name], schema[name]), field.function, named, schema[name])
        for name, field in spec.fields.items()
        if _adds_up(field.function) and not schema[name].is_float()
    )


def _adds_up(function: str) -> bool:
    return function in ("sum", "count")


def _wide(kind: pl.DataType, function: str) -> pl.DataType:
    if function == "count":
        return pl.Int64()
    if isinstance(kind, pl.Decimal):
        return pl.Decimal(_WIDEST_DECIMAL, kind.scale)
    return pl.Int128() if kind.is_integer() else kind
