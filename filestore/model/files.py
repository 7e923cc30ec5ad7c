"""Data files, pending runs, change files and deletion vectors, as a version of the table names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

__all__ = ["EDITION", "ChangeFile", "DataFile", "DeletionVector", "Partition", "PendingRun", "Slot", "Tombstones"]

EDITION = 3
"""The edition of FORMAT.md section 7 by which data files are written now."""

_CHECKSUMS = 3
_WITHOUT_BOUNDS_OF_FLOATS = 2

Partition = tuple[tuple[str, str | None], ...]
"""Partition columns and their values as Delta writes them, in the table's order; empty without partitions."""


class Slot(NamedTuple):
    """One bucket of one partition: the unit of writing, conflict and compaction, and an LSM tree of its own."""

    partition: Partition
    bucket: int


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The deleted rows of a file (Delta protocol, "Deletion Vector Descriptor Schema").

    Attributes:
        storage_type: ``u`` (a file in the table's folder, the only kind that we write), ``i`` (inline) or ``p``
            (absolute path).
        location: ``pathOrInlineDv``: for ``u`` the file's UUID in Z85.
        offset: The byte of the file at which the vector begins.
        size: The bytes of the serialised bitmap.
        cardinality: The number of deleted rows.
    """

    storage_type: str
    location: str
    offset: int | None
    size: int
    cardinality: int

    def to_action(self) -> dict[str, Any]:
        """Encodes the ``deletionVector`` of an add or remove action."""
        return {
            "storageType": self.storage_type,
            "pathOrInlineDv": self.location,
            "offset": self.offset,
            "sizeInBytes": self.size,
            "cardinality": self.cardinality,
        }

    @classmethod
    def from_action(cls, value: Mapping[str, Any] | None) -> DeletionVector | None:
        """Reverses `to_action`."""
        if value is None:
            return None
        return cls(
            value["storageType"],
            value["pathOrInlineDv"],
            value.get("offset"),
            value["sizeInBytes"],
            value["cardinality"],
        )


@dataclass(frozen=True, slots=True)
class DataFile:
    """A sorted Parquet file of one slot.

    Attributes:
        path: The path relative to the table, decoded.
        slot: The partition and bucket of its rows.
        size: The file's bytes.
        rows: The rows in the file, deleted ones included.
        modified_ms: When it was written, for Delta's ``modificationTime``.
        stats: Delta's statistics as JSON text, without ``tightBounds``.
        level: The LSM level; 0 for files of a write.
        min_key: The first sort key as JSON text (see `filestore.rows.keys`); None without a sort key.
        max_key: The last sort key.
        vector: Its deleted rows, if any.
        edition: The edition of FORMAT.md section 7 by which it was written.
    """

    path: str
    slot: Slot
    size: int
    rows: int
    modified_ms: int
    stats: str
    level: int = 0
    min_key: str | None = None
    max_key: str | None = None
    vector: DeletionVector | None = None
    edition: int = EDITION

    @property
    def live_rows(self) -> int:
        """The number of rows that readers see."""
        return self.rows - (self.vector.cardinality if self.vector else 0)

    @property
    def bounds_floats(self) -> bool:
        """Returns whether its footer has bounds of FLOAT and DOUBLE columns, beyond which there may be a NaN."""
        return self.edition < _WITHOUT_BOUNDS_OF_FLOATS

    @property
    def outdated(self) -> bool:
        """Returns whether a later edition writes it in another way: a full compaction replaces it."""
        return self.edition < EDITION

    @property
    def has_checksums(self) -> bool:
        """Returns whether it was written with checksums of all its bytes (FORMAT.md section 7.1)."""
        return self.edition >= _CHECKSUMS

    def with_vector(self, vector: DeletionVector | None) -> DataFile:
        """Returns the same file with other deleted rows."""
        return replace(self, vector=vector)


@dataclass(frozen=True, slots=True)
class Tombstones(DataFile):
    """A sorted file of keys that were deleted, with their sequences; look-ups search it as a data file (section 11.4).

    It contains no row of the table. A late row finds the delete of its key here.
    """

    @property
    def id(self) -> str:
        """The UUID in the file's name."""
        return self.path.rpartition("/")[2].removesuffix(".parquet")


@dataclass(frozen=True, slots=True)
class PendingRun:
    """Sorted changes of one slot that a commit added and no fold has merged yet (FORMAT.md section 11).

    Attributes:
        path: The path relative to the table, decoded; the file's name is also the run's id.
        slot: The partition and bucket of its rows.
        size: The file's bytes.
        rows: The number of changes in it.
        modified_ms: When it was written.
        min_key: The first sort key as JSON text (see `filestore.rows.keys`).
        max_key: The last sort key.
        version: The commit that added it, which orders the runs of a slot; -1 before that commit.
        edition: The edition of FORMAT.md section 7 by which it was written.
    """

    path: str
    slot: Slot
    size: int
    rows: int
    modified_ms: int
    min_key: str
    max_key: str
    version: int = -1
    edition: int = EDITION

    @property
    def id(self) -> str:
        """The UUID in the file's name."""
        return self.path.rpartition("/")[2].removesuffix(".parquet")

    def as_file(self) -> DataFile:
        """The run as a data file without statistics, for a reader that knows which of its rows are live."""
        stats = '{"numRecords":%d,"minValues":{},"maxValues":{},"nullCount":{}}' % self.rows  # noqa: UP031
        bounds = (self.min_key, self.max_key)
        return DataFile(
            self.path, self.slot, self.size, self.rows, self.modified_ms, stats, 0, *bounds, edition=self.edition
        )


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """Change data of one slot in one version: rows with their change type (FORMAT.md section 13).

    Attributes:
        path: The path relative to the table, decoded.
        slot: The partition and bucket of its rows.
        size: The file's bytes.
    """

    path: str
    slot: Slot
    size: int
