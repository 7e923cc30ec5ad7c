"""Data files and deletion vectors, as a version of the table refers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

__all__ = ["ChangeFile", "DataFile", "DeletionVector", "Partition", "PendingRun", "Slot", "Tombstones"]

Partition = tuple[tuple[str, str | None], ...]
"""Partition columns and their values as Delta writes them, in the table's order; empty if unpartitioned."""


class Slot(NamedTuple):
    """One bucket of one partition: the unit of writing, conflict and compaction. One LSM."""

    partition: Partition
    bucket: int


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Which rows of a file are dead (Delta protocol, "Deletion Vector Descriptor Schema").

    Attributes:
        storage_type: ``u`` (file beside the table, the only one we write), ``i`` (inline) or ``p`` (absolute path).
        location: ``pathOrInlineDv``: for ``u`` the Z85 form of the file's UUID.
        offset: Where in the file the vector begins, in bytes.
        size: Bytes of the serialised bitmap.
        cardinality: Dead rows.
    """

    storage_type: str
    location: str
    offset: int | None
    size: int
    cardinality: int

    def to_action(self) -> dict[str, Any]:
        """As the ``deletionVector`` of an add or remove action."""
        return {
            "storageType": self.storage_type,
            "pathOrInlineDv": self.location,
            "offset": self.offset,
            "sizeInBytes": self.size,
            "cardinality": self.cardinality,
        }

    @classmethod
    def from_action(cls, value: Mapping[str, Any] | None) -> DeletionVector | None:
        """Back from `to_action`."""
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
        path: Relative to the table, decoded.
        slot: The partition and bucket whose rows it holds.
        size: Bytes.
        rows: Rows in the file, dead ones included.
        modified_ms: When it was written, for Delta's ``modificationTime``.
        stats: Delta's statistics as JSON text, without ``tightBounds``.
        level: LSM level; 0 for what a writer adds.
        min_key: The first sort key as JSON text (see `filestore.rows.keys`); None without a sort key.
        max_key: The last one.
        vector: Its dead rows, if any.
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

    @property
    def live_rows(self) -> int:
        """Rows that readers see."""
        return self.rows - (self.vector.cardinality if self.vector else 0)

    def with_vector(self, vector: DeletionVector | None) -> DataFile:
        """The same file with other dead rows."""
        return replace(self, vector=vector)


@dataclass(frozen=True, slots=True)
class Tombstones(DataFile):
    """A run of keys that were deleted, with their sequences, looked up as a file is (FORMAT.md section 11.4).

    It holds no row of the table. Late rows meet it where their key's row was.
    """

    @property
    def id(self) -> str:
        """The file's UUID."""
        return self.path.rpartition("/")[2].removesuffix(".parquet")


@dataclass(frozen=True, slots=True)
class PendingRun:
    """Sorted changes of one slot that a commit brought and no fold has merged yet (FORMAT.md section 11).

    Attributes:
        path: Relative to the table, decoded; its name is also the run's id.
        slot: The partition and bucket of its rows.
        size: Bytes.
        rows: Changes in it.
        modified_ms: When it was written.
        min_key: The first sort key as JSON text (see `filestore.rows.keys`).
        max_key: The last one.
        version: The commit that brought it, by which the runs of a slot are ordered; -1 before that.
    """

    path: str
    slot: Slot
    size: int
    rows: int
    modified_ms: int
    min_key: str
    max_key: str
    version: int = -1

    @property
    def id(self) -> str:
        """The file's UUID."""
        return self.path.rpartition("/")[2].removesuffix(".parquet")

    def as_file(self) -> DataFile:
        """The run as a reader sees it that knows which of its rows are dead. Nothing is known of its values."""
        stats = '{"numRecords":%d,"minValues":{},"maxValues":{},"nullCount":{}}' % self.rows  # noqa: UP031
        return DataFile(
            self.path, self.slot, self.size, self.rows, self.modified_ms, stats, 0, self.min_key, self.max_key
        )


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """Change data of one slot in one version: rows with what became of them (FORMAT.md section 13).

    Attributes:
        path: Relative to the table, decoded.
        slot: The partition and bucket whose rows it holds.
        size: Bytes.
    """

    path: str
    slot: Slot
    size: int
