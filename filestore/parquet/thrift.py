"""Thrift's compact protocol, as far as Parquet's footers and page headers use it. Pure.

Arrow reads and writes these structures itself, but gives no access to some of their members, such as the places of the
page index. The functions take positions in bytes, and return the position behind what they have read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = [
    "BINARY",
    "I32",
    "I64",
    "STRUCT",
    "Data",
    "StructWriter",
    "field_at",
    "fields",
    "integer",
    "list_header",
    "skipped",
    "text",
]

Data = bytes | memoryview

I32, I64, BINARY, STRUCT = 5, 6, 8, 12
_TRUE, _FALSE, _BYTE, _I16, _DOUBLE, _LIST, _SET = 1, 2, 3, 4, 7, 9, 10
_SIZES = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}  # a field that is a boolean has it in its type
_STOP = 0
_LONG = 15  # a list of so many elements or more has their number behind the header


def fields(data: Data, at: int) -> Iterator[tuple[int, int, int]]:
    """Yields the id, the type and the position of the value of each field of a structure, and at its end (0, 0, end).

    It skips a value to find the next field, so it takes the time of the whole structure only if it is read to its end.
    """
    number = 0
    while True:
        header = data[at]
        at += 1
        if header == _STOP:
            yield 0, 0, at
            return
        if header >> 4:
            number += header >> 4
        else:
            number, at = integer(data, at)
        kind = header & 15
        yield number, kind, at
        at = skipped(data, at, kind)


def field_at(data: Data, at: int, field: int) -> int:
    """Returns where the value of a field of a structure is.

    Raises:
        ValueError: the structure has no such field.
    """
    for number, _, value in fields(data, at):
        if number == field:
            return value
    raise ValueError(f"no field {field}")


def integer(data: Data, at: int) -> tuple[int, int]:
    """Reads an integer."""
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def text(data: bytes, at: int) -> str:
    """Reads a text."""
    length, at = _varint(data, at)
    return data[at : at + length].decode()


def list_header(data: Data, at: int) -> tuple[int, int, int]:
    """Reads the begin of a list: the type of its elements, their number, and the position of the first one."""
    header = data[at]
    count, at = (header >> 4, at + 1) if header >> 4 != _LONG else _varint(data, at + 1)
    return header & 15, count, at


def skipped(data: Data, at: int, kind: int) -> int:
    """Returns the position behind a value of that type.

    Raises:
        ValueError: Parquet has no such type: these are other bytes.
    """
    if kind == STRUCT:
        return _behind_struct(data, at)
    if kind in (_LIST, _SET):
        of, count, at = list_header(data, at)
        if of in (_TRUE, _FALSE):
            return at + count
        for _ in range(count):
            at = skipped(data, at, of)
        return at
    if kind == BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind in (I32, I64, _I16):
        while data[at] >= 0x80:
            at += 1
        return at + 1
    if kind in _SIZES:
        return at + _SIZES[kind]
    raise ValueError(f"Thrift type {kind} at byte {at}")


def _behind_struct(data: Data, at: int) -> int:
    """Returns the position behind a structure; most fields are integers, which it passes over by itself."""
    while (header := data[at]) != _STOP:
        at += 1
        if not header >> 4:
            at = skipped(data, at, I32)
        if (kind := header & 15) == I64 or kind == I32:
            while data[at] >= 0x80:
                at += 1
            at += 1
        else:
            at = skipped(data, at, kind)
    return at + 1


def _varint(data: Data, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


class StructWriter:
    """Writes a structure: its fields in ascending order of their ids."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._last = 0

    def integer(self, field: int, kind: int, value: int) -> StructWriter:
        """Writes an integer of type `I32` or `I64`."""
        return self.raw(field, kind, _varint_bytes(value << 1 if value >= 0 else (-value << 1) - 1))

    def structs(self, field: int, values: Sequence[bytes]) -> StructWriter:
        """Writes a list of structures."""
        short = len(values) < _LONG
        header = bytes([(len(values) if short else _LONG) << 4 | STRUCT])
        return self.raw(field, _LIST, b"".join([header, b"" if short else _varint_bytes(len(values)), *values]))

    def raw(self, field: int, kind: int, value: bytes) -> StructWriter:
        """Writes a value that is encoded already."""
        self._out.append((field - self._last) << 4 | kind)
        self._out += value
        self._last = field
        return self

    def end(self) -> bytes:
        """Returns the structure."""
        return bytes(self._out) + bytes([_STOP])


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
