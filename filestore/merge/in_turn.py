"""Rows of several commits merged commit by commit, as if each was merged when it came (FORMAT.md section 9.3). Pure.

So it makes no difference when runs are folded. One step for each commit of the key that has rows of the most: the first
commit of each key in one step, then the second ones, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from filestore.merge.fieldwise import Merged, fitting, merge_fields
from filestore.merge.history import ADDS, GROUP, KIND, RUN_COLUMN, STORED, History
from filestore.merge.out_of_range import within
from filestore.model.merging import MergeSpec

__all__ = ["merge_history"]

_TURN, _ALIVE = "_turn", "_alive"
_WIDEST_DECIMAL = 38


def merge_history(past: History, spec: MergeSpec, keys: Sequence[str]) -> Merged:
    """Merges column by column; for arguments and errors see `filestore.merge.fieldwise.merge_fields`.

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
    for came in changes.partition_by(_TURN, maintain_order=True, include_key=False):
        groups = came[GROUP].unique().sort()
        mine = pl.col(GROUP).is_in(groups.implode())
        done.append(state.filter(~mine))
        stored = state.filter(mine & pl.col(_ALIVE)).drop(_ALIVE)
        state = _step(pl.concat([stored, came]), groups.to_numpy(), spec, keys).select(state.columns)
    merged = pl.concat([*done, state]).sort(GROUP)
    names = [name for name in frame.columns if name in (*keys, *spec.fields)]
    return Merged(_narrowed(merged.select(names), frame.schema, spec, keys), merged[_ALIVE])


def _turns(changes: pl.DataFrame) -> npt.NDArray[np.int64]:
    """For each change how many earlier runs have its key."""
    runs = changes[RUN_COLUMN].to_numpy().astype(np.int64)
    most = int(runs.max(initial=0)) + 1
    pairs, place = np.unique(changes[GROUP].to_numpy() * most + runs, return_inverse=True)
    groups = pairs // most
    turns: npt.NDArray[np.int64] = np.arange(len(pairs)) - np.searchsorted(groups, groups)
    return turns[place]


def _step(rows: pl.DataFrame, groups: npt.NDArray[np.int64], spec: MergeSpec, keys: Sequence[str]) -> pl.DataFrame:
    """What one more commit makes of some keys, as stored rows, and whether there is one: `_ALIVE`."""
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
    """With room for sums and counts: only those that all rows come to have to fit."""
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
