"""Decodes messages of a topic to rows of a table: decodes key and value, joins them, adds metadata. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from filestore.model.rowkind import KIND_COLUMN, RowKind
from log.connector.declaration import KafkaDeclaration
from log.connector.formats.fields import Projection, disagreeing
from log.connector.formats.format import Decoded, Format, Index, Malformed
from log.connector.metadata.keys import Origin
from log.connector.metadata.plans import ReadPlan, metadata_field, plan_read

__all__ = ["Incoming", "RowDecoder", "asked_schema"]

_NO_KEY = "it has no key, and an upsert needs one"


@dataclass(frozen=True, slots=True)
class Incoming:
    """Messages of a consumer as columns, those of each partition in its order.

    Attributes:
        keys: Or None.
        values: Or None.
        partitions: Of each.
        offsets: Of each.
        metadata: Values of those of Kafka's metadata that were asked for, by key.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    partitions: Sequence[int]
    offsets: Sequence[int]
    metadata: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Decodes messages of one table. Make it with `RowDecoder.of`. Picklable.

    Attributes:
        plan: From rows of messages to declared ones.
        projection: Which columns keys and values hold.
        key: The keys' format; None if keys have no columns.
        value: The values' format.
        upserts: Whether a message is the new row of its key.
        verifies: Whether a value that contradicts its key makes the message malformed.
    """

    plan: ReadPlan
    projection: Projection
    key: Format | None
    value: Format
    upserts: bool
    verifies: bool

    @classmethod
    def of(cls, table: KafkaDeclaration, columns: Collection[str] | None = None) -> RowDecoder:
        """Makes the decoder of all columns, or some of them, in declared order; `NotFound` (``unknown-column``)."""
        return cls(
            plan_read(table.columns, table.keys, columns),
            table.projection,
            table.key_format,
            table.value_format,
            table.upserts,
            bool(table["fields.verify-integrity"]),
        )

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows: the columns, all nullable since a delete may have its key alone, and ``_kind``."""
        fields = [f.with_nullable(True) for f in self.plan.declared]
        return pa.schema([*fields, pa.field(KIND_COLUMN, pa.string())])

    @property
    def wanted(self) -> tuple[str, ...]:
        """The metadata that the consumer has to add, by key."""
        return self.plan.names(Origin.CONNECTOR)

    def decode(self, messages: Incoming) -> tuple[pa.Table, tuple[Malformed, ...]]:
        """Decodes the messages' rows, in their order; the second value is the messages that cannot be read.

        Key and value are read in full, also for a few columns: whether they are malformed does not depend on who
        reads. Metadata are read for the asked columns alone, and a message whose metadata do not fit those has no rows.
        """
        values = self.value.decode(messages.values, self.plan.names(Origin.VALUE_FORMAT))
        keys = None if self.key is None else self.key.decode(messages.keys, self.plan.names(Origin.KEY_FORMAT))
        bad = _reasons(values.malformed)
        if keys is not None:
            bad |= self._bad_keys(keys) | bad
            if self.verifies:
                bad |= _reasons(disagreeing(self.projection, keys, values)) | bad
        physical, kinds, index = self._joined(keys, values, bad)
        rows = self._with_metadata(physical, kinds, index, keys, values, messages)
        if misfits := self.plan.unreadable(rows):
            bad = {int(index[row]): why for row, why in misfits.items()} | bad
            good = ~np.isin(index, np.fromiter(bad, np.int64, len(bad)))
            rows = rows.filter(pa.array(good))
        return self.plan.read(rows), tuple(Malformed(i, bad[i]) for i in sorted(bad))

    def _bad_keys(self, keys: Decoded) -> dict[int, str]:
        bad = _reasons(keys.malformed)
        found, counts = np.unique(keys.index, return_counts=True)
        bad |= dict.fromkeys(found[counts > 1].tolist(), "its key holds more than one row")
        strict = self.upserts or any(not field.nullable for field in self.projection.key_schema)
        return bad | (dict.fromkeys(keys.tombstones.tolist(), _NO_KEY) if strict else {})

    def _joined(
        self, keys: Decoded | None, values: Decoded, bad: Mapping[int, str]
    ) -> tuple[pa.Table, pa.ChunkedArray, Index]:
        """The physical columns, the kinds and the message of each row."""
        wrong = np.fromiter(bad, np.int64, len(bad))
        good = ~np.isin(values.index, wrong)
        rows, index = values.rows.filter(pa.array(good)), values.index[good]
        kinds: pa.Array = values.kinds.filter(pa.array(good))
        if keys is None:
            return rows.select(self.projection.schema.names), pa.chunked_array([kinds], pa.string()), index
        if not self.upserts:
            return self._halves(keys, rows, index), pa.chunked_array([kinds], pa.string()), index
        gone = values.tombstones[~np.isin(values.tombstones, wrong)]
        none = pa.Table.from_batches([], rows.schema)
        deleted = pa.concat_tables([none, _nulls(rows.schema, len(gone))])
        order = np.argsort(np.concatenate([index, gone]), kind="stable")
        both = pa.concat_tables([self._halves(keys, rows, index), self._halves(keys, deleted, gone, deleted=True)])
        kinds = pa.array(np.repeat([str(RowKind.UPDATE_AFTER), str(RowKind.DELETE)], [len(index), len(gone)]))
        return (
            both.take(pa.array(order)),
            pa.chunked_array([kinds.take(pa.array(order))], pa.string()),
            np.concatenate([index, gone])[order],
        )

    def _halves(self, keys: Decoded, rows: pa.Table, index: Index, *, deleted: bool = False) -> pa.Table:
        """Joins the rows of keys and values. A column in both has the value's, unless there is no value."""
        names = self.projection.key_schema.names
        key = keys.rows.select(names).take(_places(keys.index, index))
        joined = self.projection.join(key, rows)
        for place, name in zip(self.projection.key if deleted else (), names, strict=False):
            joined = joined.set_column(place, joined.schema.field(place), key[name])
        return joined

    def _with_metadata(
        self,
        physical: pa.Table,
        kinds: pa.ChunkedArray,
        index: Index,
        keys: Decoded | None,
        values: Decoded,
        messages: Incoming,
    ) -> pa.Table:
        decoded = set(physical.column_names)
        rows = physical.select([name for name in self.plan.produced.names if name in decoded])
        for key in self.plan.keys:
            if key.origin is Origin.CONNECTOR:
                column = messages.metadata[key.name].take(pa.array(index))
            elif key.origin is Origin.KEY_FORMAT:
                assert keys is not None, "metadata of a key's format without one"
                column = keys.rows[key.own_name].take(_places(keys.index, index))
            else:
                column = _of_values(values, key.own_name, index)
            rows = rows.append_column(metadata_field(key.name), column)
        return rows.append_column(KIND_COLUMN, kinds)


def asked_schema(table: KafkaDeclaration, columns: Sequence[str] | None) -> pa.Schema:
    """Returns the schema of a reader of some columns, in its order, or of all if None, and ``_kind``.

    Raises:
        NotFound: ``unknown-column``.
    """
    schema = RowDecoder.of(table, columns).schema
    return schema if columns is None else pa.schema([schema.field(name) for name in [*columns, KIND_COLUMN]])


def _of_values(values: Decoded, name: str, index: Index) -> pa.ChunkedArray:
    """Returns a value's metadata for the rows of its message; each row that the value holds has its own."""
    return values.rows[name].take(_places(values.index, index, nth=True))


def _places(found: Index, asked: Index, *, nth: bool = False) -> pa.Array:
    """Returns the place of each message in an ascending list; null where it is not in it.

    Args:
        found: Messages, ascending; with `nth` with repetitions.
        asked: Messages, ascending.
        nth: The second time that a message is asked for, its second place is meant.
    """
    at = np.searchsorted(found, asked)
    if nth:
        at = at + np.arange(len(asked)) - np.searchsorted(asked, asked)
    inside = at < len(found)
    there = np.zeros(len(asked), bool)
    there[inside] = found[at[inside]] == asked[inside]
    return pa.array(at, pa.int64(), mask=~there)


def _nulls(schema: pa.Schema, count: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(count, field.type) for field in schema], schema=schema)


def _reasons(malformed: Sequence[Malformed]) -> dict[int, str]:
    return {one.index: one.reason for one in malformed}
