"""Compares rows bit by bit (FORMAT.md section 13). Pure.

Writing a row that equals the stored one changes nothing: the stored one stays. So two values are equal only if no
reader can distinguish them: 0.0 and -0.0 differ, and so do NaNs of different bits. Otherwise the stored value would
depend on whether a comparison took place, which only some options require.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from filestore.lazily import pl
from filestore.rows.frames import with_entries

__all__ = ["by_bits", "same_rows"]


def same_rows(one: pl.DataFrame, other: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Marks the rows of a frame to which the other frame's row at the same position is equal; null equals null.

    Args:
        one: The rows of one frame.
        other: As many rows, with the same columns and types.
    """
    before, after = by_bits(one), by_bits(other.select(one.columns))
    same = before.select(pl.all_horizontal(pl.col(name).eq_missing(pl.lit(after[name])) for name in before.columns))
    return same.to_series().to_numpy()


def by_bits(rows: pl.DataFrame) -> pl.DataFrame:
    """Converts rows so that polars compares and hashes them bit by bit: maps to their entries, floats to integers."""
    rows = with_entries(rows)
    return rows.select(_bits(pl.col(name), kind).alias(name) for name, kind in rows.schema.items())


def _bits(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Converts a value's floats, at any depth, to integers of the same bits."""
    if not _holds_floats(kind):
        return value
    if isinstance(kind, pl.List):
        return value.list.eval(_bits(pl.element(), kind.inner))  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        fields = [_bits(value.struct.field(f.name), f.dtype).alias(f.name) for f in kind.fields]  # type: ignore[arg-type]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    return value.reinterpret(dtype=pl.Int32 if kind == pl.Float32 else pl.Int64)


def _holds_floats(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.List):
        return _holds_floats(kind.inner)  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return any(_holds_floats(field.dtype) for field in kind.fields)  # type: ignore[arg-type]
    return kind.is_float()
