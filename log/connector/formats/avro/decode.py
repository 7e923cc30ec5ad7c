"""Decodes Avro datums to columns: reads one field of all messages at once, each at its own position.

So a step is a handful of numpy calls however many messages there are, and a message that breaks the schema is marked
and costs the others nothing. Only elements of arrays and maps take a step each, as many as the longest has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.errors import Unsupported
from log.connector.formats.avro.schema import Node
from log.connector.formats.format import Index

__all__ = ["decode_datums"]

_DECIMAL_BYTES = 16
_MAX_GROUPS = 10
_NATIVE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def decode_datums(
    messages: Sequence[bytes], writer: Node, schema: pa.Schema, skip: int = 0
) -> tuple[pa.Table, Mapping[int, str]]:
    """Decodes the columns of datums, resolved by name from the writer's schema.

    Args:
        messages: The datums.
        writer: Their schema: a record.
        schema: The columns wanted; one that the writer lacks is null.
        skip: So many bytes stand before each datum.

    Returns:
        A row for each message, and the messages that break the schema, whose rows mean nothing.

    Raises:
        Unsupported: ``avro-schema``: a column cannot be read from what the writer has under its name.
    """
    reader = _Reader(messages, skip)
    rows = np.arange(len(messages))
    if writer.kind != "record":
        raise Unsupported(f"the writer's Avro schema is {writer.kind}, and rows are records", code="avro-schema")
    wanted = pa.struct(list(schema))
    columns = reader.record(writer, wanted, rows)
    reader.finish()
    return pa.Table.from_arrays(columns, names=schema.names), reader.bad


class _Reader:
    """Positions in messages that are stored end to end."""

    def __init__(self, messages: Sequence[bytes], skip: int) -> None:
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        self._end = np.cumsum(sizes)
        self._at = self._end - sizes + skip
        self._bytes = np.frombuffer(b"".join([*messages, b"\0"]), np.uint8)
        self.bad: dict[int, str] = {}

    def finish(self) -> None:
        """Marks messages with bytes behind their datum."""
        rest = self._end - self._at
        self._mark(np.flatnonzero(rest > 0), "bytes are left behind the datum")

    def _mark(self, rows: Index, reason: str) -> None:
        for row in rows.tolist():
            self.bad.setdefault(row, reason)
        # Nothing more is read from them.
        self._at[rows] = self._end[rows]

    # -------------------------------------------------------------------------------------------- types

    def value(self, node: Node, kind: pa.DataType | None, rows: Index, name: str) -> pa.Array | None:
        """Reads the next value of those messages as a column of that type; with None as type it skips the value."""
        if node.kind == "union":
            return self._union(node, kind, rows, name)
        if node.kind == "record":
            if kind is not None and not pa.types.is_struct(kind):
                raise _mismatch(node, kind, name)
            columns = self.record(node, kind, rows)
            return None if kind is None else pa.StructArray.from_arrays(columns, fields=list(kind))
        if node.kind in ("array", "map"):
            return self._elements(node, kind, rows, name)
        if node.kind == "null":
            return None if kind is None else pa.nulls(len(rows), kind)
        return self._scalar(node, kind, rows, name)

    def record(self, node: Node, kind: pa.DataType | None, rows: Index) -> list[pa.Array]:
        """The fields that the type has."""
        wanted = {} if kind is None else {f.name: f.type for f in kind}
        found = {
            name: self.value(child, wanted.get(name), rows, name)
            for name, child in zip(node.names, node.children, strict=True)
        }
        return [found[n] if n in found else pa.nulls(len(rows), t) for n, t in wanted.items()]

    def _union(self, node: Node, kind: pa.DataType | None, rows: Index, name: str) -> pa.Array | None:
        branches = self._whole(rows)
        unknown = (branches < 0) | (branches >= len(node.children))
        self._mark(rows[unknown], f"{name}: a union has no such branch")
        branches[unknown] = 0
        first = branches[0] if len(branches) else 0
        if (branches == first).all() and not unknown.any():
            return self.value(node.children[first], kind, rows, name)
        groups = [np.flatnonzero(branches == b) for b in range(len(node.children))]
        parts = [self.value(c, kind, rows[g], name) for c, g in zip(node.children, groups, strict=True)]
        if kind is None:
            return None
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(groups), kind="stable")))

    def _elements(self, node: Node, kind: pa.DataType | None, rows: Index, name: str) -> pa.Array | None:
        is_map = node.kind == "map"
        if kind is not None and not (pa.types.is_map(kind) if is_map else pa.types.is_list(kind)):
            raise _mismatch(node, kind, name)
        inner = None if kind is None else (kind.item_type if is_map else kind.value_type)
        keys, values, owners = [], [], []
        left = self._block(rows, name)
        lengths = np.zeros(len(rows), np.int64)
        while (active := np.flatnonzero(left > 0)).size:
            now = rows[active]
            if is_map:
                keys.append(self._scalar(Node("string"), None if kind is None else kind.key_type, now, name))
            values.append(self.value(node.children[0], inner, now, name))
            owners.append(active)
            lengths[active] += 1
            left[active] -= 1
            if (ended := active[left[active] == 0]).size:
                left[ended] = self._block(rows[ended], name)
        if kind is None:
            return None
        order = pa.array(np.argsort(np.concatenate([*owners, np.empty(0, np.int64)]), kind="stable"))
        items = pa.concat_arrays([*values, pa.nulls(0, inner)]).take(order)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        if not is_map:
            return pa.ListArray.from_arrays(offsets, items, type=kind)
        names = pa.concat_arrays([*keys, pa.nulls(0, kind.key_type)]).take(order)
        return pa.MapArray.from_arrays(offsets, names, items, type=kind)

    def _block(self, rows: Index, name: str) -> Index:
        """Reads how many elements come next; 0 at the end."""
        counts = self._whole(rows)
        if (sized := np.flatnonzero(counts < 0)).size:
            self._whole(rows[sized])  # the block's bytes
            counts[sized] = -counts[sized]
        # An element takes a byte at least: those of no bytes (null) are in no column.
        wrong = (counts < 0) | (counts > self._end[rows] - self._at[rows])
        self._mark(rows[wrong], f"{name}: more elements than bytes")
        counts[wrong] = 0
        return counts

    def _scalar(self, node: Node, kind: pa.DataType | None, rows: Index, name: str) -> pa.Array | None:
        native = _native(node)
        if kind is not None and not _converts(native, kind):
            raise _mismatch(node, kind, name)
        if node.kind in ("bytes", "string", "fixed"):
            starts, sizes = self._span(node, rows, name)
            if kind is None:
                return None
            if pa.types.is_decimal(native):
                return self._cast(self._decimals(starts, sizes, native, rows, name), kind, rows, name)
            return self._cast(self._data(starts, sizes), kind, rows, name)
        if node.kind in ("float", "double", "boolean"):
            numbers = self._fixed(rows, {"float": "<f4", "double": "<f8", "boolean": "u1"}[node.kind], name)
            array = pa.array(numbers != 0 if node.kind == "boolean" else numbers)
        else:
            whole = self._whole(rows)
            limit = len(node.names) if node.kind == "enum" else 1 << 31
            if node.kind != "long" and (wrong := (whole >= limit) | (whole < (0 if node.names else -limit))).any():
                self._mark(rows[wrong], f"{name}: out of the range of {node.kind}")
                whole[wrong] = 0
            array = pa.array(whole)
            if node.kind == "enum":
                array = pa.array(node.names, pa.string()).take(array)
            elif node.kind == "int":
                array = array.cast(pa.int32())
        return None if kind is None else self._cast(array.cast(native), kind, rows, name)

    # -------------------------------------------------------------------------------------------- bytes

    def _whole(self, rows: Index) -> Index:
        """Reads variable-length zigzag numbers; 0 where a message is marked, before or now."""
        result = np.zeros(len(rows), np.uint64)
        at = self._at[rows]
        active = np.arange(len(rows))
        for group in range(_MAX_GROUPS):
            over = at[active] >= self._end[rows[active]]
            if over.any():
                self._mark(rows[active[over]], "the message ends in the middle of its datum")
                at[active[over]] = self._end[rows[active[over]]]
                result[active[over]] = 0
                active = active[~over]
            byte = self._bytes[at[active]]
            result[active] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * group)
            at[active] += 1
            active = active[byte >= 0x80]
            if not active.size:
                break
        self._at[rows] = at
        if active.size:
            self._mark(rows[active], "a number has more than 10 bytes")
            result[active] = 0
        return (result >> np.uint64(1)).view(np.int64) ^ -(result & np.uint64(1)).view(np.int64)

    def _span(self, node: Node, rows: Index, name: str) -> tuple[Index, Index]:
        sizes = np.full(len(rows), node.size, np.int64) if node.kind == "fixed" else self._whole(rows)
        wrong = (sizes < 0) | (sizes > self._end[rows] - self._at[rows])
        self._mark(rows[wrong], f"{name}: longer than the message")
        sizes[wrong] = 0
        starts = self._at[rows]
        self._at[rows] += sizes
        return starts, sizes

    def _data(self, starts: Index, sizes: Index) -> pa.Array:
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        data = self._bytes[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(data.tobytes())]
        return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)

    def _fixed(self, rows: Index, dtype: str, name: str) -> npt.NDArray[np.generic]:
        stored = np.dtype(dtype)
        starts, sizes = self._span(Node("fixed", size=stored.itemsize), rows, name)
        starts = np.where(sizes, starts, 0)
        # A message that is too short is marked: what is read in its place is of no account.
        where = np.minimum(starts[:, None] + np.arange(stored.itemsize), len(self._bytes) - 1)
        return np.ascontiguousarray(self._bytes[where]).view(stored).ravel()

    def _decimals(self, starts: Index, sizes: Index, kind: pa.DataType, rows: Index, name: str) -> pa.Array:
        wrong = (sizes < 1) | (sizes > _DECIMAL_BYTES)
        self._mark(rows[wrong], f"{name}: a decimal of {_DECIMAL_BYTES} bytes at most was expected")
        sizes = np.where(wrong, 1, sizes)
        place = np.arange(_DECIMAL_BYTES)
        lead = (_DECIMAL_BYTES - sizes)[:, None]
        where = np.clip(starts[:, None] + place - lead, 0, len(self._bytes) - 1)
        sign = np.where(self._bytes[np.minimum(starts, len(self._bytes) - 1)] & 0x80, 0xFF, 0).astype(np.uint8)
        big = np.where(place >= lead, self._bytes[where], sign[:, None])
        little = np.ascontiguousarray(big[:, ::-1])
        return pa.Array.from_buffers(kind, len(sizes), [None, pa.py_buffer(little.tobytes())])

    def _cast(self, array: pa.Array, kind: pa.DataType, rows: Index, name: str) -> pa.Array:
        try:
            if pa.types.is_decimal(array.type):
                array.validate(full=True)  # digits that the precision has no room for
            return array.cast(kind)
        except pa.ArrowInvalid:
            if len(array) == 1:
                self._mark(rows, f"{name}: a value is no {kind}")
                # The row means nothing, but a map's key and what else may not be null has to be a value.
                return _zero(kind)
            middle = len(array) // 2
            halves = (slice(None, middle), slice(middle, None))
            return pa.concat_arrays([self._cast(array[half], kind, rows[half], name) for half in halves])


def _zero(kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([Decimal()], kind)
    return pa.array([b""] if _is_text(kind) else [0]).cast(kind)


def _native(node: Node) -> pa.DataType:
    if node.logical == "decimal":
        return pa.decimal128(node.precision, node.scale)
    return _LOGICAL.get((node.kind, node.logical)) or _NATIVE[node.kind]


def _converts(native: pa.DataType, kind: pa.DataType) -> bool:
    """Returns whether a column may be read from it: by Avro's promotions, or as a narrower or wider type of SQL."""
    return native == kind or any(reads(native) and into(kind) for reads, into in _CONVERSIONS)


_IS = Callable[[pa.DataType], bool]


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.binary())


_CONVERSIONS: tuple[tuple[_IS, _IS], ...] = (
    (pa.types.is_decimal, pa.types.is_decimal),
    # Flink's older mapping writes TIMESTAMP without time zone as timestamp-millis.
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_timestamp, pa.types.is_int64),
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_float32, pa.types.is_float64),
    (_is_text, _is_text),
)


def _mismatch(node: Node, kind: pa.DataType, name: str) -> Unsupported:
    described = f"{node.kind} ({node.logical})" if node.logical else node.kind
    return Unsupported(f"column {name!r} is {kind}, and the writer's Avro schema has {described}", code="avro-schema")
