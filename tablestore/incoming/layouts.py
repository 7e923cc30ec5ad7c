"""Converts Arrow's layouts of the same values to plain arrays: encodings, extension types, views, kinds of lists.

Arrow's own kernels support few nested layouts, and flatten or cast some of them wrongly. So a column is unwrapped from
the outside: `Picked` rows of an array become rows of the arrays that it consists of, until these are plain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Picked", "holds_union"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


def holds_union(kind: pa.DataType) -> bool:
    """Returns whether a type is or contains a union, which no column type holds, and whose cast may end the process."""
    if isinstance(kind, pa.BaseExtensionType):
        return holds_union(kind.storage_type)
    if pa.types.is_union(kind):
        return True
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return holds_union(kind.value_type)
    return any(holds_union(kind.field(number).type) for number in range(kind.num_fields))


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """Rows of an array.

    Attributes:
        values: The array, in any layout.
        rows: The positions of its rows, in order; a null stands for a null row. All rows if None.
    """

    values: pa.Array
    rows: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.values if self.rows is None else self.rows)

    def unwrapped(self) -> Picked:
        """Returns the same rows without extension types, dictionaries and run-end encoding around them.

        Raises:
            ArrowInvalid: an index that the dictionary does not have.
        """
        kind = self.values.type
        if kind == pa.bool8():
            return Picked(pc.not_equal(self.values.storage, 0), self.rows)
        if isinstance(kind, pa.BaseExtensionType):
            return Picked(self.values.storage, self.rows).unwrapped()
        if pa.types.is_dictionary(kind):
            rows = self.values.indices.cast(pa.int64())
            places = np.asarray(rows.drop_null())
            _check_within("index", places, places + 1, len(self.values.dictionary))
            return Picked(self.values.dictionary, rows if self.rows is None else rows.take(self.rows)).unwrapped()
        if pa.types.is_run_end_encoded(kind):
            rows = pa.array(np.arange(len(self.values))) if self.rows is None else self.rows
            places = np.asarray(pc.fill_null(rows, 0)) + self.values.offset
            runs = np.searchsorted(np.asarray(self.values.run_ends), places, side="right")
            return Picked(self.values.values, pa.array(runs, mask=np.asarray(rows.is_null()))).unwrapped()
        return self

    def plain(self) -> pa.Array:
        """Returns the rows of an array that is not nested. Views become arrays with offsets, half floats floats."""
        values = self.values
        if pa.types.is_float16(values.type):  # Arrow reads its bits as a number where it casts it to an integer
            values = values.cast(pa.float32())
        elif values.type == pa.string_view():
            values = values.cast(pa.large_string())
        elif values.type == pa.binary_view():
            values = values.cast(pa.large_binary())
        return values if self.rows is None else values.take(self.rows)

    def valid(self) -> npt.NDArray[np.bool_]:
        """Returns for each row whether it is not null."""
        found = np.asarray(self.values.is_valid())
        return found if self.rows is None else _at(found, self.rows) & np.asarray(self.rows.is_valid())

    def fields(self) -> dict[str, Picked]:
        """Returns the rows of each field of structs; the fields of a null are null."""
        rows = self.rows
        if self.values.null_count:
            numbers = np.arange(len(self)) if rows is None else np.asarray(pc.fill_null(rows, 0))
            rows = pa.array(numbers, pa.int64(), mask=~self.valid())
        kind = self.values.type
        return {kind.field(at).name: Picked(self.values.field(at), rows) for at in range(kind.num_fields)}

    def lists(self) -> tuple[npt.NDArray[np.int64], tuple[Picked, ...]] | None:
        """Returns the offsets and the elements of lists of any kind and of maps; None for other types.

        A map has two arrays of elements: its keys and its values. The elements of a null are left out.

        Raises:
            ArrowInvalid: elements beyond the ends of their array: Arrow would read whatever memory is there.
        """
        found = _spans(self.values)
        if found is None:
            return None
        starts, sizes, children = found
        if self.rows is not None:
            starts, sizes = _at(starts, self.rows), _at(sizes, self.rows)
        sizes = np.where(self.valid(), sizes, 0)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        begins, ends = starts[sizes != 0], (starts + sizes)[sizes != 0]
        _check_within("list", begins, ends, min(map(len, children)))
        if (begins[1:] == ends[:-1]).all():
            first = int(begins[0]) if len(begins) else 0
            return offsets, tuple(Picked(child.slice(first, int(offsets[-1]))) for child in children)
        rows = pa.array(np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1]))
        return offsets, tuple(Picked(child, rows) for child in children)


def _check_within(what: str, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], length: int) -> None:
    wrong = (begins < 0) | (ends <= begins) | (ends > length)
    if wrong.any():
        at = int(wrong.argmax())
        raise pa.ArrowInvalid(f"a {what} refers to the values from {begins[at]} to {ends[at]} of {length}")


def _at(found: npt.NDArray[_Scalar], rows: pa.Array) -> npt.NDArray[_Scalar]:
    """Returns the values of those rows; the value for a null is arbitrary."""
    return found[np.asarray(pc.fill_null(rows, 0))] if len(found) else np.zeros(len(rows), found.dtype)


def _spans(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], tuple[pa.Array, ...]] | None:
    """Returns the start and the number of each row's elements, and the arrays that contain them."""
    kind = values.type
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return np.asarray(values.offsets, np.int64), np.asarray(values.sizes, np.int64), (values.values,)
    if pa.types.is_fixed_size_list(kind):
        starts = (np.arange(len(values)) + values.offset) * kind.list_size
        return starts, np.full(len(values), kind.list_size), (values.values,)
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = np.asarray(values.offsets, np.int64)
        inner = values.values
        # `keys` and `items` of a map disregard where its array of entries begins
        children = (inner.field(0), inner.field(1)) if pa.types.is_map(kind) else (inner,)
        return offsets[:-1], np.diff(offsets), children
    return None
