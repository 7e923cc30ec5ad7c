"""Reads the rows of a file of JSON, one object on each line or one array of objects, by the reader of topics.

The file is cut into its documents by arrays over its bytes; Python loops over pieces of many documents alone. Lines and
the elements of an array are read a block at a time.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from log.connector.formats.json.documents import parse_documents
from log.connector.formats.json.tokens import (
    COMMA,
    NEWLINE,
    Index,
    among,
    check_spaces,
    is_space,
    outside,
    pieces_of,
    quotes_in,
    scanned,
)
from log.connector.formats.json.values import Rules

__all__ = ["Piece", "named_members", "pieces", "read_file", "rows_of"]

_BLOCK = 8 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PIECE = 50_000
"""The number of documents that are parsed together; behind the piece of the first bad one no more are."""
_SPELLED = len(r"\ud83d\ude00")
"""The most bytes with which a character is spelled."""
_SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_EMPTY = "it is empty: write one JSON object on each line, or one array of them"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some documents of a file.

    Attributes:
        documents: Their bytes.
        names: What each is called in errors: a line, an element, or an array that only Python's parser takes.
    """

    documents: pl.Series
    names: Callable[[int], str]
    array: bool = False

    def rows(self, schema: pa.Schema, rules: Rules) -> pa.Table:
        """Returns the rows; `ValueError` for the first document that has none."""
        found = parse_documents(self.documents.to_list(), schema, arrays=self.array, rules=rules)
        if found.malformed:
            first = min(found.malformed)
            raise ValueError(f"{self.names(first)}: {found.malformed[first]}")
        return found.members


def rows_of(opener: Callable[[], BinaryIO], schema: pa.Schema, rules: Rules) -> Iterator[pa.Table]:
    """Yields the rows of a file. Members that are absent are null.

    Args:
        opener: Opens the file.
        schema: The members that an object may have. Nullability is not looked at.
        rules: What stands for a value.

    Raises:
        ValueError: it is no such file, or a value does not fit; the text says where.
    """
    for piece in pieces(opener):
        yield piece.rows(schema, rules)


def read_file(content: bytes, schema: pa.Schema, rules: Rules) -> pa.Table:
    """Returns the rows of a file's bytes; raises as `rows_of`."""
    plain = pa.schema([pa.field(f.name, f.type) for f in schema])
    return pa.concat_tables([plain.empty_table(), *rows_of(lambda: io.BytesIO(content), schema, rules)])


def pieces(opener: Callable[[], BinaryIO]) -> Iterator[Piece]:
    """Yields the documents of a file.

    Raises:
        ValueError: it is no such file; the text says where. That a document is none is not looked at.
    """
    with opener() as file:
        blocks = _blocks(file)
        first = next(blocks, b"")
        if not first.strip():
            raise ValueError(_EMPTY)
        if first.lstrip().startswith(b"["):
            yield from _array(first, blocks)
            return
        lines = 0
        for block in _whole_lines(first, blocks):
            documents, numbers = _lines(block)
            yield from _cut_up(documents, numbers + lines, "line")
            lines += block.count(b"\n")


def named_members(opener: Callable[[], BinaryIO], names: Collection[str]) -> set[str]:
    """Returns those of some names that objects in a file have as members; objects within objects count, too."""
    left, found, text = {name: _member(name) for name in names}, set[str](), b""
    longest = len(',""') + max((_SPELLED * len(name) for name in names), default=0)
    with opener() as file:
        for block in _blocks(file):
            text += block
            searched = pa.array([text], pa.large_binary())
            likely = left if b"\\" in text else {name: left[name] for name in left if f'"{name}"'.encode() in text}
            found |= {name for name in likely if pc.match_substring_regex(searched, likely[name])[0].as_py()}
            left = {name: pattern for name, pattern in left.items() if name not in found}
            if not left:
                break
            text = text[max(0, len(text.rstrip()) - longest) :]  # where a name begins whose colon is in the next block
    return found


def _member(name: str) -> str:
    """Returns the regular expression of a member's name and its colon, however the name's characters are spelled.

    What is before the name says that the string begins there: a text that is a value has no colon behind it.
    """
    return rf'[{{,\s]"{"".join(map(_spelled, name))}"\s*:'


def _spelled(char: str) -> str:
    itself = "".join(rf"\x{byte:02x}" for byte in char.encode())
    units = char.encode("utf-16-be").hex()
    escaped = "".join(rf"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    short = rf"|\\{re.escape(_SHORT[char])}" if char in _SHORT else ""
    return f"(?:{itself}|(?i:{escaped}){short})"


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yields the bytes of a file; the first block has more than space, if the file has."""
    block = file.read(_BLOCK).removeprefix(_BYTE_ORDER_MARK)
    while not block.strip() and (more := file.read(_BLOCK)):
        block += more
    while block:
        yield block
        block = file.read(_BLOCK)


def _whole_lines(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the bytes again, cut at ends of lines."""
    held = [first]
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*held, block[:end]])
            held = []
        held.append(block[end:])
    yield b"".join(held)


def _cut_up(documents: pl.Series, numbers: Index, what: str) -> Iterator[Piece]:
    for begin in range(0, len(documents), _PIECE):
        yield Piece(documents[begin : begin + _PIECE], partial(_name, what, numbers[begin : begin + _PIECE]))


def _name(what: str, numbers: Index, at: int) -> str:
    return f"{what} {numbers[at]}"


def _same(name: str, _at: int) -> str:
    return name


def _lines(content: bytes) -> tuple[pl.Series, Index]:
    """Returns the lines that are not empty, and their numbers."""
    data = np.frombuffer(content, np.uint8)
    if not len(data):
        return pieces_of(data, np.array([], np.int64), np.array([], np.int64)), np.array([], np.int64)
    ends = np.append(np.flatnonzero(data == NEWLINE), len(data))
    begins = np.concatenate([[0], ends[:-1] + 1])
    if begins[-1] == len(data):
        begins, ends = begins[:-1], ends[:-1]
    filled = np.flatnonzero(np.maximum.reduceat(~is_space(data) & (data != NEWLINE), begins))
    return pieces_of(data, begins[filled], ends[filled]), filled + 1


def _array(first: bytes, blocks: Iterator[bytes]) -> Iterator[Piece]:
    count = 0
    for content, whole in _whole_elements(first, blocks):
        name = f"the array from element {count + 1} on" if count else "the array"
        try:
            elements, numbers = _elements(content)
        except pa.ArrowInvalid:  # read by itself, to say what is wrong
            yield Piece(pl.Series([content], dtype=pl.Binary), partial(_same, name), array=True)
            continue
        if not (len(elements) or whole):
            raise ValueError(f"{name}: not JSON: there is no element beside a comma")
        yield from _cut_up(elements, numbers + count, "element")
        count += len(elements)


def _whole_elements(first: bytes, blocks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yields an array as shorter ones, which are cut at its commas, and whether that is the array as it is.

    Beside a comma that has no element there, one of the shorter arrays is empty.
    """
    held, whole = first.lstrip(), True
    while more := list(_up_to(len(held), blocks)):  # twice as much each time: elements may be long
        held = b"".join([held, *more])
        cut = _last_comma(held)
        if cut is not None:
            yield held[:cut] + b"]", False
            held, whole = b"[" + held[cut + 1 :], False
    yield held.rstrip(), whole


def _last_comma(array: bytes) -> int | None:
    """Returns where the last comma between the elements of an array is, whose end may be missing."""
    data = np.frombuffer(array, np.uint8)
    at = outside(quotes_in(data), np.flatnonzero(among(data, b"{}[],")))
    token = data[at]
    level = np.cumsum(among(token, b"{[").astype(np.int8) - among(token, b"}]"), dtype=np.int32)
    commas = at[(level == 1) & (token == COMMA)]
    return int(commas[-1]) if len(commas) else None


def _up_to(size: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields blocks until they have a size; at least one if there is one."""
    found = 0
    for block in blocks:
        yield block
        found += len(block)
        if found >= size:
            return


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
    return pieces_of(data, begins, closes + 1), np.arange(1, len(begins) + 1)
