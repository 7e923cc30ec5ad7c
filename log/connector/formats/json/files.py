"""Reads the rows of a file of JSON, one object on each line or one array of objects, by the reader of topics.

The file is cut into its documents by arrays over its bytes; Python loops over pieces of many documents alone.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from log.connector.formats.json.documents import parse_documents
from log.connector.formats.json.tokens import (
    NEWLINE,
    Bytes,
    Index,
    among,
    check_spaces,
    is_space,
    outside,
    quotes_in,
    scanned,
)
from log.connector.formats.json.values import Rules

__all__ = ["read_file"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PIECE = 50_000
"""The number of documents that are parsed together; behind the piece of the first bad one no more are."""


def read_file(content: bytes, schema: pa.Schema, rules: Rules) -> pa.Table:
    """Returns the rows of a file. Members that are absent are null.

    Args:
        content: The file's bytes.
        schema: The members that an object may have. Nullability is not looked at.
        rules: What stands for a value.

    Raises:
        ValueError: it is no such file, or a value does not fit; the text says where.
    """
    content = content.removeprefix(_BYTE_ORDER_MARK).rstrip()
    if not content:
        raise ValueError("it is empty: write one JSON object on each line, or one array of them")
    if not content.lstrip().startswith(b"["):
        return _parsed(*_lines(content), "line", schema, rules)
    try:
        elements, numbers = _elements(content.lstrip())
    except pa.ArrowInvalid:  # read by itself, to say what is wrong
        found = parse_documents([content], schema, arrays=True, rules=rules)
        if found.malformed:
            raise ValueError(f"the array: {found.malformed[0]}") from None
        return found.members
    return _parsed(elements, numbers, "element", schema, rules)


def _parsed(documents: pl.Series, numbers: Index, what: str, schema: pa.Schema, rules: Rules) -> pa.Table:
    parts = [pa.schema([pa.field(f.name, f.type) for f in schema]).empty_table()]
    for begin in range(0, len(documents), _PIECE):
        found = parse_documents(documents[begin : begin + _PIECE].to_list(), schema, rules=rules)
        if found.malformed:
            first = min(found.malformed)
            raise ValueError(f"{what} {numbers[begin + first]}: {found.malformed[first]}")
        parts.append(found.members)
    return pa.concat_tables(parts)


def _lines(content: bytes) -> tuple[pl.Series, Index]:
    """Returns the lines that are not empty, and their numbers."""
    data = np.frombuffer(content, np.uint8)
    ends = np.append(np.flatnonzero(data == NEWLINE), len(data))
    begins = np.concatenate([[0], ends[:-1] + 1])
    filled = np.flatnonzero(np.maximum.reduceat(~is_space(data) & (data != NEWLINE), begins))
    return _cut(data, begins[filled], ends[filled]), filled + 1


def _elements(content: bytes) -> tuple[pl.Series, Index]:
    """Returns the elements of an array of objects, and their numbers.

    Raises:
        ArrowInvalid: it is no such array.
    """
    data = np.frombuffer(content, np.uint8).copy()
    ends = np.flatnonzero(data == NEWLINE)
    if len(outside(quotes_in(data), ends)) < len(ends):
        raise pa.ArrowInvalid("a string goes over the end of its line")
    data[ends] = ord(" ")
    text = scanned(data)
    last = np.append(text.opens[1:], len(text.at)) - 1
    levels = text.level[text.opens]
    inner = np.flatnonzero(levels == 2)
    begins, closes = text.at[text.opens[inner]], text.at[last[inner]]
    own = text.at[: last[0] + 1]  # the array's bracket, its commas, its other bracket
    objects = among(text.token[text.opens[inner]], b"{").all()
    if np.count_nonzero(levels == 1) > 1 or not objects or not among(text.token[1 : last[0]], b",").all():
        raise pa.ArrowInvalid("it is no array of objects")
    if len(own) != max(len(begins), 1) + 1:
        raise pa.ArrowInvalid("the elements are not separated by commas")
    before = [(own[:-1] + 1, begins), (closes + 1, own[1:])] if len(begins) else [(own[:1] + 1, own[1:])]
    check_spaces(data, before)
    return _cut(data, begins, closes + 1), np.arange(1, len(begins) + 1)


def _cut(data: Bytes, begins: Index, ends: Index) -> pl.Series:
    """Returns parts of the bytes."""
    borders = np.empty(2 * len(begins), np.int64)
    borders[::2], borders[1::2] = begins, ends
    borders = np.append(borders, borders[-1:])
    if not len(borders):
        return pl.Series([], dtype=pl.Binary)
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(borders) - 1, buffers)
    return pl.Series(pl.from_arrow(pieces)).gather_every(2)
