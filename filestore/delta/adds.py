"""The ``add`` actions of many files as Arrow columns: checked, and what all of them say (FORMAT.md section 2)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.actions import BUCKET_TAG, EDITION_TAG, LEVEL_TAG, MAX_KEY_TAG, MIN_KEY_TAG
from filestore.delta.totals import FileTotals
from filestore.lazily import pl
from filestore.model.files import Partition
from filestore.rows.slices import slices

__all__ = [
    "ADD",
    "Mask",
    "Positions",
    "Texts",
    "checked_slots",
    "leading_numbers",
    "partition_texts",
    "partitions_in",
    "slot_columns",
    "tag_texts",
    "totals_of",
]

_TEXT = pa.large_string()  # texts of a large checkpoint are more than 2 GiB together
_TEXTS = pa.map_(_TEXT, _TEXT)
_VECTOR = {"storageType": _TEXT, "pathOrInlineDv": _TEXT, "offset": pa.int32(), "sizeInBytes": pa.int32()}
ADD = pa.struct(
    {
        "path": _TEXT,
        "partitionValues": _TEXTS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "stats": _TEXT,
        "tags": _TEXTS,
        "deletionVector": pa.struct({**_VECTOR, "cardinality": pa.int64()}),
    }
)
"""The members of an ``add`` action that make a file. Writers of checkpoints choose other types for the same values."""

_BEGIN = b'{"numRecords":'
_DIGITS = 18

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def checked_slots(
    adds: pa.StructArray, partition_by: Sequence[str], *, sorted_by_key: bool
) -> tuple[list[pa.Array], npt.NDArray[np.int64]]:
    """Checks that each action has all that makes it a file, so that an error is found when a checkpoint is read.

    Args:
        adds: The actions, of type `ADD`.
        partition_by: The table's partition columns.
        sorted_by_key: Whether each file has its least and its largest key.

    Returns:
        The slots; see `slot_columns`.

    Raises:
        ValueError: an action is not as FORMAT.md says.
    """
    for name in ("path", "partitionValues", "size", "modificationTime", "stats", "tags"):
        if pc.struct_field(adds, name).null_count:
            raise ValueError(f"a file of the checkpoint has no {name}")
    partitions, tags = partition_texts(adds), tag_texts(adds)
    for name in partition_by:
        if not partitions.everywhere(name):  # a null is there
            raise ValueError(f"a file of the checkpoint has no value of {name}")
    for name in (BUCKET_TAG, LEVEL_TAG, *((MIN_KEY_TAG, MAX_KEY_TAG) if sorted_by_key else ())):
        if tags.of(name).null_count:
            raise ValueError(f"a file of the checkpoint has no tag {name}")
    vectors = pc.struct_field(adds, "deletionVector")
    for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality"):
        if pc.struct_field(vectors, name).null_count > vectors.null_count:
            raise ValueError(f"a deletion vector of the checkpoint has no {name}")
    for name in (LEVEL_TAG, EDITION_TAG):
        tags.of(name).cast(pa.int64())
    return [partitions.of(name) for name in partition_by], _buckets(tags)


def slot_columns(adds: pa.StructArray, partition_by: Sequence[str]) -> tuple[list[pa.Array], npt.NDArray[np.int64]]:
    """Returns the slots of files: the texts of each partition column, and the buckets."""
    partitions = partition_texts(adds)
    return [partitions.of(name) for name in partition_by], _buckets(tag_texts(adds))


def _buckets(tags: Texts) -> npt.NDArray[np.int64]:
    buckets: npt.NDArray[np.int64] = tags.of(BUCKET_TAG).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return buckets


def partitions_in(adds: pa.StructArray, partition_by: Sequence[str]) -> set[Partition]:
    """Returns the partitions of files."""
    if not partition_by:
        return {()} if len(adds) else set()
    values, _ = slot_columns(adds, partition_by)
    frame = pl.DataFrame({str(number): pl.Series(value, dtype=pl.String) for number, value in enumerate(values)})
    return {tuple(zip(partition_by, row, strict=True)) for row in frame.unique().iter_rows()}


def totals_of(adds: pa.StructArray) -> FileTotals:
    """Returns the sums over files."""
    vectors = pc.struct_field(adds, "deletionVector")
    size = pc.sum(pc.struct_field(adds, "size")).as_py() or 0
    return FileTotals(size, _live_rows(adds), len(vectors) - vectors.null_count)


def _live_rows(adds: pa.StructArray) -> int:
    """Adds up the rows of files, without those that are deleted; our statistics begin with their number."""
    stats = pc.struct_field(adds, "stats")
    rows, known = leading_numbers(stats)
    others = stats.filter(pa.array(~known)).to_pylist()
    total = int(rows[known].sum()) + sum(int(json.loads(text)["numRecords"]) for text in others)
    return total - (pc.sum(pc.struct_field(pc.struct_field(adds, "deletionVector"), "cardinality")).as_py() or 0)


def leading_numbers(stats: pa.Array) -> tuple[npt.NDArray[np.int64], Mask]:
    """Returns the number of records of statistics that begin with it, and which do.

    A regular expression takes twenty times as long, which was a third of the time in which a table is opened.
    """
    read, starts, lengths = slices(stats)
    known = lengths > len(_BEGIN) + _DIGITS
    for place, letter in enumerate(_BEGIN):
        known[known] = read[starts[known] + place] == letter
    rows, at = np.zeros(len(stats), np.int64), starts[known] + len(_BEGIN)
    numbers, inside, whole = np.zeros(len(at), np.int64), np.ones(len(at), np.bool_), np.zeros(len(at), np.bool_)
    for place in range(_DIGITS + 1):
        digits = read[at + place].astype(np.int64) - ord("0")
        if place:
            whole |= inside & (digits == ord(",") - ord("0"))
        inside &= (digits >= 0) & (digits <= 9)
        if not inside.any():
            break
        numbers[inside] = numbers[inside] * 10 + digits[inside]
    rows[known] = numbers
    known[known] = whole
    return rows, known


def partition_texts(adds: pa.StructArray) -> Texts:
    """Returns the partition values of files by column."""
    return Texts(pc.struct_field(adds, "partitionValues"))


def tag_texts(adds: pa.StructArray) -> Texts:
    """Returns the tags of files by name."""
    return Texts(pc.struct_field(adds, "tags"))


class Texts:
    """Maps of texts, one for each file; nearly always all have the same names in the same order."""

    def __init__(self, maps: pa.MapArray) -> None:
        self._maps = maps
        self._columns = _same_names(maps)

    def of(self, name: str) -> pa.Array:
        """Returns the texts of a name, null where it is missing."""
        if self._columns is None:
            return pc.map_lookup(self._maps, pa.scalar(name, _TEXT), "first")
        found = self._columns.get(name)
        return pa.nulls(len(self._maps), _TEXT) if found is None else found

    def everywhere(self, name: str) -> bool:
        """Returns whether each map has the name."""
        if self._columns is not None:
            return name in self._columns or not len(self._maps)
        return not pc.map_lookup(self._maps, pa.scalar(name, _TEXT), "all").null_count


def _same_names(maps: pa.MapArray) -> dict[str, pa.Array] | None:
    """Returns the texts by name if all maps have the same names in the same order, which takes a tenth of looking."""
    starts = maps.offsets.to_numpy()
    if len(maps) == 0 or np.any((lengths := np.diff(starts)) != lengths[0]):
        return None
    columns: dict[str, pa.Array] = {}
    for place in range(int(lengths[0])):
        at = pa.array(starts[:-1] + place)
        names = maps.keys.take(at)
        if not pc.all(pc.equal(names, names[0])).as_py():
            return None
        columns.setdefault(names[0].as_py(), maps.items.take(at))
    return columns
