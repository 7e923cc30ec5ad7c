"""``debezium-json``: changes in Debezium's envelope, as Debezium and Flink write them (FORMATS.md).

| op | before | after | rows |
|---|---|---|---|
| c, r | | the row | ``+I`` |
| u | the row, or null | the row | ``-U`` if before is there, ``+U`` |
| d | the row, or its key alone | | ``-D`` |
| t, m | | | none |

It writes what Flink writes: ``+I`` and ``+U`` as ``c``, ``-U`` and ``-D`` as ``d``, one message a row. A ``-U`` and the
``+U`` behind it could be one ``u``, but only if they have the same message key, which a value's format does not know.
The record of a managed table's log is another one: `log_record`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from filestore.model.rowkind import RowKind
from log.connector.formats.debezium.envelopes import EnvelopeReader
from log.connector.formats.format import (
    MILLISECONDS,
    Decoded,
    Index,
    collected,
    metadata_fields,
    nullable,
    split_kinds,
    split_tombstones,
)
from log.connector.formats.json.texts import JsonStyle, to_texts

__all__ = ["METADATA", "DebeziumJsonFormat"]

METADATA: Mapping[str, pa.DataType] = {
    "schema": pa.string(),
    "ingestion-timestamp": MILLISECONDS,
    "source.timestamp": MILLISECONDS,
    "source.database": pa.string(),
    "source.schema": pa.string(),
    "source.table": pa.string(),
    "source.properties": pa.map_(pa.string(), pa.string()),
}
"""Keys and types, as Flink documents them."""

_CREATED = ("c", "r")
_NO_CHANGE = ("t", "m")  # truncate, message
_SOURCE = pa.struct([("ts_ms", pa.int64()), *((name, pa.string()) for name in ("db", "schema", "table", "collection"))])


@dataclass(frozen=True, slots=True)
class DebeziumJsonFormat:
    """Encodes and decodes changes in Debezium's envelope.

    Args:
        schema: The columns.
        style: How values are written.
        schema_include: Messages are ``{"schema": …, "payload": …}``, as Kafka Connect's JsonConverter makes them with
            ``schemas.enable``. What a member stands for is read from there.
        whole: A message that says its table was truncated is malformed: nobody who skips it has the table's rows.
    """

    schema: pa.Schema
    style: JsonStyle
    schema_include: bool = False
    whole: bool = False

    changelog: ClassVar[bool] = True
    metadata: ClassVar[Mapping[str, pa.DataType]] = METADATA

    def encode(self, rows: pa.Table) -> list[bytes | None]:
        """Encodes a row as ``{"before":null,"after":{…},"op":"c"}`` or ``{"before":{…},"after":null,"op":"d"}``."""
        columns, kinds = split_kinds(rows, self.schema, changelog=True)
        head, tail = "", ""
        if self.schema_include:
            head = f'{{"schema":{json.dumps(_connect_schema(self.schema), separators=(",", ":"))},"payload":'
            tail = "}"
        adds = pl.col("kind").is_in([str(k) for k in RowKind if k.adds])
        before = pl.when(adds).then(pl.lit(head + '{"before":null,"after":')).otherwise(pl.lit(head + '{"before":'))
        after = pl.when(adds).then(pl.lit(',"op":"c"}' + tail)).otherwise(pl.lit(',"after":null,"op":"d"}' + tail))
        texts = to_texts(columns, self.style)
        frame = pl.DataFrame({"kind": pl.Series(pl.from_arrow(kinds)), "row": texts})
        return [*frame.select(pl.concat_str(before, "row", after)).to_series().cast(pl.Binary).to_list()]

    def decode(self, values: Sequence[bytes | None], metadata: Sequence[str] = ()) -> Decoded:
        """Decodes the changes of messages, in their order."""
        wanted = metadata_fields(METADATA, metadata)
        messages, places, tombstones = split_tombstones(values)
        reader = EnvelopeReader(
            nullable(self.schema), self._members(metadata), self.schema_include, "schema" in metadata
        )
        found = reader.read(messages)
        bad, member = dict(found.malformed), found.members
        removed, added = _changes(member, found.index, bad)
        if self.whole:
            truncated = found.index[_are(member["op"], ["t"])].tolist()
            bad |= dict.fromkeys(truncated, "it says that its table was truncated, which no row can say")
        rows = _taken(member["before"], removed, member["after"], added)
        order = np.argsort(np.concatenate([removed * 2, added * 2 + 1]), kind="stable")
        which = np.concatenate([removed, added])[order]
        extra = [_metadata(f, member, found.schemas).take(pa.array(which)) for f in wanted]
        columns = [c.take(pa.array(order)) for c in rows]
        table = pa.Table.from_arrays([*columns, *extra], schema=pa.schema([*nullable(self.schema), *wanted]))
        kinds = _kinds(member["op"].to_numpy(zero_copy_only=False), removed, added)[order]
        reasons = {int(places[i]): reason for i, reason in bad.items()}
        index = places[found.index[which]]
        if found.tombstones:
            tombstones = np.sort(np.concatenate([tombstones, places[list(found.tombstones)]]))
        return collected(table, pa.array(kinds, pa.string()), self.schema, index, tombstones, reasons)

    def _members(self, metadata: Sequence[str]) -> tuple[pa.Field, ...]:
        """Returns the members of an envelope that are read besides its rows."""
        members = [pa.field("op", pa.string())]
        if "ingestion-timestamp" in metadata:
            members.append(pa.field("ts_ms", pa.int64()))
        if "source.properties" in metadata:
            members.append(pa.field("source", METADATA["source.properties"]))
        elif any(key.startswith("source.") for key in metadata):
            members.append(pa.field("source", _SOURCE))
        return tuple(members)


def _changes(member: Mapping[str, pa.Array], index: Index, bad: dict[int, str]) -> tuple[Index, Index]:
    """Returns which documents delete a row, and which insert one; contradictory ones are malformed."""
    ops = member["op"]
    has_before, has_after = (member[n].is_valid().to_numpy(zero_copy_only=False) for n in ("before", "after"))
    created, updated, deleted, silent = (_are(ops, names) for names in (_CREATED, ["u"], ["d"], _NO_CHANGE))
    known = created | updated | deleted | silent
    wrong = (~known, "has the unknown op"), ((created | updated) & ~has_after, "lacks 'after' with op")
    for where, what in (*wrong, (deleted & ~has_before, "lacks 'before' with op")):
        for i in np.flatnonzero(where).tolist():
            bad.setdefault(int(index[i]), f"a Debezium message {what} {ops[i].as_py()!r}")
    return np.flatnonzero((updated | deleted) & has_before), np.flatnonzero((created | updated) & has_after)


def _are(ops: pa.Array, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(pc.is_in(ops, pa.array(names)), False).to_numpy(zero_copy_only=False)
    return found


def _taken(before: pa.StructArray, removed: Index, after: pa.StructArray, added: Index) -> list[pa.Array]:
    both = pa.concat_arrays([before.take(pa.array(removed)), after.take(pa.array(added))])
    columns: list[pa.Array] = both.flatten()
    return columns


def _kinds(ops: Any, removed: Index, added: Index) -> Any:
    minus = np.where(ops[removed] == "u", str(RowKind.UPDATE_BEFORE), str(RowKind.DELETE))
    plus = np.where(ops[added] == "u", str(RowKind.UPDATE_AFTER), str(RowKind.INSERT))
    return np.concatenate([minus, plus])


def _metadata(field: pa.Field, member: Mapping[str, pa.Array], schemas: pa.Array) -> pa.Array:
    """One column of metadata, a value for each document."""
    if field.name == "schema":
        return schemas
    if field.name == "ingestion-timestamp":
        return member["ts_ms"].cast(field.type)
    source = member["source"]
    if field.name == "source.properties":
        return source
    names = {"source.timestamp": ["ts_ms"], "source.database": ["db"], "source.schema": ["schema"]}
    parts = [_part(source, name) for name in names.get(field.name, ["table", "collection"])]
    return _moments(pc.coalesce(*parts)).cast(field.type) if field.name == "source.timestamp" else pc.coalesce(*parts)


def _part(source: pa.Array, name: str) -> pa.Array:
    if pa.types.is_struct(source.type):
        return pc.struct_field(source, name)
    return pc.map_lookup(source, pa.scalar(name), "last")


def _moments(values: pa.Array) -> pa.Array:
    if not pa.types.is_string(values.type):
        return values
    whole = pc.fill_null(pc.match_substring_regex(values, r"^-?[0-9]{1,18}$"), False)
    return pc.if_else(whole, values, pa.scalar(None, pa.string())).cast(pa.int64())


# ------------------------------------------------------------------------------------------------ Connect's schema

_CONNECT = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "int8"),
    (pa.types.is_int16, "int16"),
    (pa.types.is_int32, "int32"),
    (pa.types.is_int64, "int64"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_binary, "bytes"),
)


def _connect_schema(schema: pa.Schema) -> dict[str, Any]:
    """The schema of the envelope, as Kafka Connect's JsonConverter describes it."""
    row = {"type": "struct", "fields": [_connect_field(f.name, f.type) for f in schema], "optional": True}
    images = [{**row, "field": name} for name in ("before", "after")]
    op = {"type": "string", "optional": False, "field": "op"}
    return {"type": "struct", "fields": [*images, op], "optional": False}


def _connect_field(name: str, kind: pa.DataType) -> dict[str, Any]:
    return {**_connect_type(kind), "optional": True, "field": name}


def _connect_type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        return {"type": "array", "items": {**_connect_type(kind.value_type), "optional": True}}
    if pa.types.is_map(kind):
        keys = {"type": "string", "optional": False}
        return {"type": "map", "keys": keys, "values": {**_connect_type(kind.item_type), "optional": True}}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_connect_field(f.name, f.type) for f in kind]}
    # Dates, timestamps and decimals are strings in such messages.
    return {"type": next((name for matches, name in _CONNECT if matches(kind)), "string")}
