"""``raw``: a message is the value of the only column, without any frame (FORMATS.md). Insert-only.

| type | bytes |
|---|---|
| STRING | in ``raw.charset`` |
| BINARY | as they are |
| BOOLEAN | one: 1 or 0 |
| TINYINT, SMALLINT, INT, BIGINT | 1, 2, 4, 8, two's complement in ``raw.endianness`` |
| FLOAT, DOUBLE | 4, 8, IEEE 754 in ``raw.endianness`` |

A null is a null message, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from filestore.errors import InvalidRequest
from log.connector.formats.format import Decoded, Index, inserts, metadata_fields, split_kinds, split_tombstones

__all__ = ["RawFormat", "check_raw_type"]


@dataclass(frozen=True, slots=True)
class RawFormat:
    """The only column's value.

    Args:
        schema: One column.
        charset: The spelling of strings, by its name in Python's codecs.
        big_endian: Numbers begin with their highest byte.
    """

    schema: pa.Schema
    charset: str = "utf-8"
    big_endian: bool = True

    changelog: ClassVar[bool] = False
    metadata: ClassVar[Mapping[str, pa.DataType]] = {}

    def encode(self, rows: pa.Table) -> list[bytes | None]:
        """Encodes the values' bytes."""
        columns, _ = split_kinds(rows, self.schema, changelog=False)
        array = columns.column(0).combine_chunks()
        if pa.types.is_binary(array.type):
            return [*array.to_pylist()]
        if pa.types.is_string(array.type):
            return self._encode_texts(array)
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        numbers = np.asarray(array.fill_null(False if pa.types.is_boolean(array.type) else 0))
        stored = numbers.astype(self._stored_type())
        cells = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(stored.itemsize), len(stored), [None, pa.py_buffer(stored.tobytes())]
        )
        return [value if present else None for value, present in zip(cells.to_pylist(), valid.tolist(), strict=True)]

    def decode(self, values: Sequence[bytes | None], metadata: Sequence[str] = ()) -> Decoded:
        """Decodes each message as a row; null messages are tombstones."""
        metadata_fields(self.metadata, metadata)
        messages, places, tombstones = split_tombstones(values)
        kind = self.schema.field(0).type
        bad: dict[int, str] = {}
        if pa.types.is_binary(kind):
            array = pa.array(messages, pa.binary())
        elif pa.types.is_string(kind):
            array, places = self._decode_texts(messages, places, bad)
        else:
            array, places = self._decode_numbers(messages, places, bad)
        rows = pa.Table.from_arrays([array], schema=pa.schema([pa.field(self.schema.names[0], kind)]))
        return inserts(rows, self.schema, places, tombstones, bad)

    def _stored_type(self) -> np.dtype[np.generic]:
        kind = self.schema.field(0).type
        if pa.types.is_boolean(kind):
            return np.dtype(np.uint8)
        letter = "f" if pa.types.is_floating(kind) else "i"
        return np.dtype(f"{'>' if self.big_endian else '<'}{letter}{kind.bit_width // 8}")

    def _encode_texts(self, array: pa.Array) -> list[bytes | None]:
        if self.charset == "utf-8":
            return [*array.cast(pa.binary()).to_pylist()]
        try:
            # Only UTF-8 has a vectorised codec; Python's others are C, a call a value.
            return [None if v is None else v.encode(self.charset) for v in array.to_pylist()]
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"column {self.schema.names[0]!r} has a text that {self.charset} cannot spell: {error.reason}; use "
                "another raw.charset, such as UTF-8",
                code="format-value",
            ) from error

    def _decode_texts(self, messages: Sequence[bytes], places: Index, bad: dict[int, str]) -> tuple[pa.Array, Index]:
        if self.charset == "utf-8":
            try:
                return pa.array(messages, pa.binary()).cast(pa.string()), places
            except pa.ArrowInvalid:
                pass  # one by one, to find which
        texts, good = [], np.ones(len(messages), bool)
        for i, message in enumerate(messages):
            try:
                texts.append(message.decode(self.charset))
            except UnicodeDecodeError as error:
                good[i] = False
                bad[int(places[i])] = f"not {self.charset}: {error.reason} at byte {error.start}"
        return pa.array(texts, pa.string()), places[good]

    def _decode_numbers(self, messages: Sequence[bytes], places: Index, bad: dict[int, str]) -> tuple[pa.Array, Index]:
        stored, kind = self._stored_type(), self.schema.field(0).type
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        good = sizes == stored.itemsize
        for i in np.flatnonzero(~good).tolist():
            bad[int(places[i])] = f"{sizes[i]} bytes, and a {kind} has {stored.itemsize}"
        joined = b"".join(messages) if good.all() else b"".join(messages[i] for i in np.flatnonzero(good).tolist())
        numbers = np.frombuffer(joined, stored)
        if pa.types.is_boolean(kind):
            numbers = numbers != 0
        return pa.array(numbers.astype(stored.newbyteorder("=") if numbers.dtype != bool else bool), kind), places[good]


def check_raw_type(kind: pa.DataType) -> str | None:
    """Names a type that has no raw bytes; None if it has."""
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return f"a {kind}, which has no raw bytes: take STRING, BINARY, BOOLEAN or a number"
    return None
