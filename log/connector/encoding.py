"""Encodes rows of a table as messages of its topic. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.bucketing import bucket_of
from log.connector.declaration import KafkaDeclaration
from log.connector.formats.fields import Projection
from log.connector.formats.format import MILLISECONDS, Format
from log.connector.metadata.plans import WritePlan, metadata_field, plan_write

__all__ = ["Outgoing", "RowEncoder"]

_ADDS = tuple(str(kind) for kind in RowKind if kind.adds)
_TIMESTAMP, _HEADERS = metadata_field("timestamp"), metadata_field("headers")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Messages for a producer, as columns.

    Attributes:
        keys: None if no message has one.
        values: None is a tombstone.
        timestamps: In milliseconds; None for the time of writing. All of them, if the table does not write it.
        headers: Likewise.
        partitions: Where to; None: the client decides, by the key.
    """

    keys: list[bytes | None] | None
    values: list[bytes | None]
    timestamps: list[int | None] | None
    headers: list[list[tuple[str, str | bytes | None]] | None] | None
    partitions: list[int] | None = None


@dataclass(frozen=True, slots=True)
class RowEncoder:
    """Encodes rows of one table. Make it with `RowEncoder.of`. Picklable.

    Attributes:
        plan: From declared rows to rows of messages.
        projection: Which columns keys and values hold.
        key: None if messages have no key.
        value: The values' format.
        upserts: Whether a deleted row is a tombstone.
        placed_by: The columns that say in which partition a message is that has no key: those of the primary key, whose
            changes have to stay in order. Empty: the client decides.
    """

    plan: WritePlan
    projection: Projection
    key: Format | None
    value: Format
    upserts: bool
    placed_by: tuple[str, ...]

    @classmethod
    def of(cls, table: KafkaDeclaration) -> RowEncoder:
        """Makes a table's encoder; `InvalidRequest` (``read-only-metadata``): the table can be read only."""
        return cls(
            plan_write(table.columns, table.keys),
            table.projection,
            table.key_format,
            table.value_format,
            table.upserts,
            () if table.key_format else table.primary_key,
        )

    def encode(self, rows: pa.Table, partitions: int = 1) -> Outgoing:
        """Encodes declared rows, which may have ``_kind``; without it all are inserts.

        With upserts ``-U`` is dropped, since the ``+U`` that follows says all, and ``-D`` is a tombstone.

        Args:
            rows: As `WritePlan.write` takes them.
            partitions: How many the topic has; only `placed_by` needs it.

        Raises:
            InvalidRequest: as `WritePlan.write` and `Format.encode`; ``null-value``: a NOT NULL column, or a key, holds
                nulls, or with upserts a row that is put would have no value; ``format-kind``: a kind that there is not,
                or that the format has no word for.
        """
        found = self.plan.write(rows)
        if self.upserts:
            found = self._without_former(found)
        adds = self._adding(found)
        self._check_nulls(found, adds)
        key_rows, value_rows = self.projection.split(_physical(found, self.projection))
        keys = None if self.key is None else self.key.encode(key_rows)
        if not self.upserts:
            kinds = [found[KIND_COLUMN]] if KIND_COLUMN in found.column_names else []
            values = self.value.encode(value_rows.append_column(KIND_COLUMN, kinds[0]) if kinds else value_rows)
        else:
            put = self.value.encode(value_rows.filter(adds))
            _check_values(put, value_rows.column_names)
            values = _scattered(put, adds)
        places = bucket_of(found, self.placed_by, partitions).tolist() if self.placed_by and partitions > 1 else None
        return Outgoing(keys, values, _timestamps(found), _headers(found), places)

    def _without_former(self, rows: pa.Table) -> pa.Table:
        if KIND_COLUMN not in rows.column_names:
            return rows
        return rows.filter(pc.not_equal(pc.fill_null(rows[KIND_COLUMN], ""), str(RowKind.UPDATE_BEFORE)))

    def _adding(self, rows: pa.Table) -> pa.ChunkedArray:
        if KIND_COLUMN not in rows.column_names:
            return pa.chunked_array([pa.repeat(True, rows.num_rows)], pa.bool_())
        kinds = rows[KIND_COLUMN]
        if strange := [kind for kind in pc.unique(kinds).to_pylist() if kind not in set(RowKind)]:
            raise InvalidRequest(
                f"a value of {KIND_COLUMN} is {strange[0]!r}, which is none of {', '.join(RowKind)}", code="format-kind"
            )
        return pc.is_in(kinds, pa.array(_ADDS))

    def _check_nulls(self, rows: pa.Table, adds: pa.ChunkedArray) -> None:
        key = {self.projection.schema.names[i] for i in self.projection.key} if self.upserts else set[str]()
        for field in self.projection.schema:
            nulls = rows[field.name].null_count
            if field.nullable or not nulls:
                continue
            if field.name not in key:
                nulls = rows[field.name].filter(adds).null_count
            if nulls:
                raise InvalidRequest(
                    f"column {field.name!r} is NOT NULL and holds {nulls} nulls: filter or fill them", code="null-value"
                )


def _check_values(put: list[bytes | None], columns: list[str]) -> None:
    """Refuses a row that would be read as a delete: `raw` writes null as a message without a value."""
    if nulls := put.count(None):
        raise InvalidRequest(
            f"column {columns[0]!r} holds {nulls} nulls, which the values' format writes as messages without a value: "
            "upserts would be read as deletes. Fill or filter them, say -D if that is meant, or take another format",
            code="null-value",
        )


def _physical(rows: pa.Table, projection: Projection) -> pa.Table:
    """Selects the physical columns. Nulls were checked before: a deleted row may have only its key."""
    names = projection.schema.names
    return pa.Table.from_arrays([rows[name].combine_chunks() for name in names], names)


def _scattered(values: list[bytes | None], at: pa.ChunkedArray) -> list[bytes | None]:
    """Puts the values where the mask is true, and None elsewhere."""
    if len(values) == len(at):
        return values
    given: npt.NDArray[np.object_] = np.empty(len(values), object)
    given[:] = values
    found: npt.NDArray[np.object_] = np.full(len(at), None, object)
    found[at.to_numpy()] = given
    return found.tolist()  # type: ignore[no-any-return]


def _timestamps(rows: pa.Table) -> list[int | None] | None:
    if _TIMESTAMP not in rows.column_names:
        return None
    times = rows[_TIMESTAMP].cast(MILLISECONDS, safe=False).cast(pa.int64())
    if pc.any(pc.equal(times, 0)).as_py():
        raise InvalidRequest(
            "the metadata 'timestamp' holds 1970-01-01 00:00:00, which Kafka's client takes for the time of writing: "
            "write another, or NULL",
            code="bad-value",
        )
    found: list[int | None] = times.to_pylist()
    return found


def _headers(rows: pa.Table) -> list[list[tuple[str, str | bytes | None]] | None] | None:
    if _HEADERS not in rows.column_names:
        return None
    found: list[list[tuple[str, str | bytes | None]] | None] = rows[_HEADERS].to_pylist()
    return found
