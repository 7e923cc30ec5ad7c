"""Rewrites JSON objects that are maps as arrays of entries: Arrow's JSON parser has no type for maps.

``{"a":1,"b":2}`` becomes ``[{"key":"a","value":1},{"key":"b","value":2}]`` wherever the schema has a MAP. The bytes of
all documents are looked at together, by arrays over their brackets, commas and colons; Python loops over the schema's
types alone. What is refused here and what the parser refuses of the result is read one by one (`json_documents`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.model.types import contains_type
from log.connector.formats.json.tokens import (
    CLOSE,
    CLOSE_ARRAY,
    COLON,
    COMMA,
    OPEN,
    QUOTE,
    Bytes,
    Flags,
    Index,
    Text,
    among,
    check_spaces,
    scanned,
)

__all__ = ["has_map", "maps_as_entries"]


def has_map(kind: pa.DataType) -> bool:
    """Returns whether a type is, or holds, a MAP."""
    return contains_type(kind, pa.types.is_map)


def maps_as_entries(data: Bytes, schema: pa.Schema) -> pa.Buffer:
    """Rewrites each MAP in documents as an array of entries.

    Args:
        data: JSON objects, each on a line of its own.
        schema: Their members; keys of maps are strings.

    Raises:
        ArrowInvalid: brackets, strings or an object that is a MAP are not those of JSON, or such an object is an array.
    """
    text = scanned(data)
    maps = _maps(text, pa.struct(list(schema)))
    return _rewritten(text, maps[text.container])


# ------------------------------------------------------------------------------------------------ which are maps


def _maps(text: Text, root: pa.DataType) -> Flags:
    """Finds the containers that are MAPs, level by level from the documents down."""
    places, levels = text.at[text.opens], text.level[text.opens]
    is_map = np.zeros(len(places), bool)
    above = np.flatnonzero(levels == 1)
    held: list[tuple[pa.DataType, Index]] = [(root, above)]
    level = 1
    while held:
        level += 1
        below = np.flatnonzero(levels == level)
        parent = above[np.searchsorted(places[above], places[below]) - 1] if len(below) else below
        found: list[tuple[pa.DataType, Index]] = []
        for kind, containers in held:
            inner = below[np.isin(parent, containers)]
            for part, chosen in _parts(text, kind, inner):
                if has_map(part) and len(chosen):
                    found.append((part, chosen))
                    if pa.types.is_map(part):
                        is_map[chosen] = True
        above, held = below, found
    if (text.token[text.opens][is_map] != OPEN).any():
        raise pa.ArrowInvalid("an array stands for a MAP")
    return is_map


def _parts(text: Text, kind: pa.DataType, inner: Index) -> list[tuple[pa.DataType, Index]]:
    """The containers within containers of a type, by their own types."""
    if pa.types.is_map(kind):
        return [(kind.item_type, inner)]
    if pa.types.is_list(kind):
        return [(kind.value_type, inner)]
    fields = [f for f in kind if has_map(f.type)]
    begins, ends = _names(text, text.at[text.opens[inner]])
    return [(f.type, inner[_spelled(text.data, begins, ends, f.name.encode())]) for f in fields]


def _names(text: Text, values: Index) -> tuple[Index, Index]:
    """Finds begin and end of the last strings before some places: members' names, if the places are their values'."""
    quotes = np.concatenate([[0, -1], text.quotes])  # before all strings: one that fits no name
    closing = np.searchsorted(text.quotes, values) + 1
    return quotes[closing - 1] + 1, quotes[closing]


def _spelled(data: Bytes, begins: Index, ends: Index, name: bytes) -> Flags:
    wanted = np.frombuffer(name, np.uint8)
    same: Flags = ends - begins == len(wanted)
    places = np.flatnonzero(same)
    same[places] = (data[begins[places, None] + np.arange(len(wanted))] == wanted).all(axis=1)
    return same


# ------------------------------------------------------------------------------------------------ rewriting

# A map's tokens become these; a key's first quote has the entry's beginning put before it.
_ENTRY, _VALUE, _NEXT, _END = b'{"key":', b',"value":', b"},", b"}]"


def _rewritten(text: Text, of_map: Flags) -> pa.Buffer:
    at, token = text.at[of_map], text.token[of_map]
    previous = np.concatenate([[0], token[:-1]]).astype(np.uint8)
    _check_members(token, previous)
    colon, empty = token == COLON, (token == CLOSE) & (previous == OPEN)
    key_begins, key_ends = _names(text, at[colon])
    behind_previous = np.concatenate([[0], at[:-1] + 1])
    gaps = [(behind_previous[colon], key_begins - 1), (key_ends + 1, at[colon]), (behind_previous[empty], at[empty])]
    check_spaces(text.data, gaps)
    places = np.concatenate([at, key_begins - 1])
    put = np.concatenate([np.where(empty, CLOSE_ARRAY, token), np.full(len(key_begins), QUOTE)]).astype(np.uint8)
    texts = {OPEN: b"[", CLOSE_ARRAY: b"]", CLOSE: _END, COMMA: _NEXT, COLON: _VALUE, QUOTE: _ENTRY + b'"'}
    return _replaced(text.data, places, put, texts)


def _check_members(token: Bytes, previous: Bytes) -> None:
    """Members are a colon each, with commas between them."""
    fits = np.select(
        [token == COLON, token == COMMA, token == CLOSE],
        [among(previous, b"{,"), previous == COLON, among(previous, b"{:")],
        default=True,
    )
    if not fits.all():
        raise pa.ArrowInvalid("an object's members are not separated by commas")


def _replaced(data: Bytes, places: Index, put: Bytes, texts: dict[int, bytes]) -> pa.Buffer:
    """The bytes with some of them replaced, each by a text."""
    order = np.argsort(places)
    borders = np.zeros(2 * len(places) + 2, np.int64)
    borders[1:-1:2], borders[2:-1:2], borders[-1] = places[order], places[order] + 1, len(data)
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(borders) - 1, buffers)
    number = np.zeros(256, np.int64)
    number[list(texts)] = np.arange(len(texts))
    chosen = np.zeros(len(pieces), np.int64)
    chosen[1::2] = number[put[order]]
    replaced = np.arange(len(pieces)) % 2 == 1
    return pc.if_else(replaced, pa.array(texts.values(), pa.large_binary()).take(chosen), pieces).buffers()[2]
