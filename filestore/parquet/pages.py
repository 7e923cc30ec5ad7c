"""The pages of column chunks: where they are, and a small Parquet file of some of them. Pure.

Arrow and polars read a chunk from its first page on. A file that has only the pages that hold certain rows is as good
as the whole chunk for them, and as small as these pages (FORMAT.md section 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from filestore.parquet import thrift
from filestore.parquet.thrift import BINARY, I32, I64, STRUCT, Data, StructWriter
from filestore.storage.interface import ByteRange

__all__ = ["Excerpt", "PageIndex", "Pages", "Positions"]

Positions = npt.NDArray[np.int64]

_MAGIC = b"PAR1"
_ROOT = StructWriter().raw(4, BINARY, b"\x06schema").integer(5, I32, 1).end()
_VERSION = 2
_SCHEMA, _GROUPS = 2, 4  # fields of FileMetaData
_CHUNKS = 1  # of RowGroup
_METADATA, _INDEX_OFFSET, _INDEX_LENGTH = 3, 4, 5  # of ColumnChunk
_PLACES = 1  # of OffsetIndex
_HEADER_V1, _HEADER_V2 = 5, 8  # of PageHeader
_NAME, _CHILDREN = 4, 5  # of SchemaElement


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """The data pages of a column chunk.

    Attributes:
        chunk: Where the chunk is; it may begin with a page that is a dictionary.
        starts: Where each page begins.
        ends: Where each page ends.
        rows: The first row of each page in the row group, and at the end the number of rows.
    """

    chunk: ByteRange
    starts: Positions
    ends: Positions
    rows: Positions

    @classmethod
    def parse(cls, index: bytes, chunk: ByteRange, rows: int) -> Pages | None:
        """Reads a chunk's offset index (Parquet format, "Page Index"); None if a page has no row.

        Arrow may write a page without values, and gives it the first row of the page before it.

        Args:
            index: Its bytes.
            chunk: Where the chunk is.
            rows: The number of rows of the row group.

        Raises:
            ValueError, LookupError: they are no offset index of such a chunk.
        """
        _, count, at = thrift.list_header(index, thrift.field_at(index, 0, _PLACES))
        places = np.empty((count, 3), dtype=np.int64)
        for page in range(count):
            *members, (_, _, at) = thrift.fields(index, at)
            places[page] = [thrift.integer(index, value)[0] for _, _, value in members]
        starts, sizes, first = places.T
        pages = cls(chunk, starts, starts + sizes, np.append(first, rows))
        counts = np.diff(pages.rows)
        if not (count and first[0] == 0 and (counts >= 0).all() and pages._are_inside()):
            raise ValueError("the pages are not those of the chunk")
        return pages if counts.all() else None

    def _are_inside(self) -> bool:
        edges = np.column_stack([self.starts, self.ends]).ravel()
        return bool(self.chunk[0] <= edges[0] and edges[-1] <= self.chunk[1] and (np.diff(edges) >= 0).all())

    def around(self, rows: Positions) -> Excerpt:
        """Returns the pages that hold those ascending rows of the row group."""
        page_of_row = np.searchsorted(self.rows, rows, side="right") - 1
        return Excerpt(self, np.unique(page_of_row))


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """Some pages of a column chunk.

    Attributes:
        pages: The pages of the chunk.
        chosen: The numbers of those pages, ascending.
    """

    pages: Pages
    chosen: Positions

    @property
    def ranges(self) -> list[ByteRange]:
        """The places of the dictionary, if there is one, and of the pages."""
        starts, ends = self.pages.starts[self.chosen].tolist(), self.pages.ends[self.chosen].tolist()
        dictionary = [(self.pages.chunk[0], int(self.pages.starts[0]))]
        return [piece for piece in [*dictionary, *zip(starts, ends, strict=True)] if piece[0] < piece[1]]

    @property
    def rows(self) -> int:
        """The number of rows of the pages."""
        return int((self.pages.rows[self.chosen + 1] - self.pages.rows[self.chosen]).sum())

    def places(self, rows: Positions) -> Positions:
        """Returns where rows of the row group are among the rows of the pages."""
        sizes = self.pages.rows[self.chosen + 1] - self.pages.rows[self.chosen]
        before = np.cumsum(sizes) - sizes
        page = np.searchsorted(self.chosen, np.searchsorted(self.pages.rows, rows, side="right") - 1)
        places: Positions = rows - self.pages.rows[self.chosen][page] + before[page]
        return places


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of which every row has values of one leaf.

    Attributes:
        leaf: The number of that leaf.
        elements: What the footer's schema says of the column.
    """

    leaf: int
    elements: tuple[bytes, ...]


class PageIndex:
    """The places of pages, as far as a footer knows them.

    Args:
        footer: A file's footer.
    """

    def __init__(self, footer: pq.FileMetaData) -> None:
        self._footer = footer

    @cached_property
    def _data(self) -> bytes:
        """The footer in Thrift: Arrow writes all that it has read."""
        target = pa.BufferOutputStream()
        self._footer.write_metadata_file(target)
        whole: bytes = target.getvalue().to_pybytes()
        return whole[-8 - int.from_bytes(whole[-8:-4], "little") : -8]

    @cached_property
    def _columns(self) -> Mapping[str, _Column]:
        """The top-level columns that have one leaf: scalars, and arrays of them."""
        elements = _structs(self._data, thrift.field_at(self._data, 0, _SCHEMA))
        columns: dict[str, _Column] = {}
        leaf, at = 0, 1
        while at < len(elements):
            start, open_ = at, 1
            name, leaves = "", 0
            while open_:
                found = _element(elements[at])
                name = name or found[0]
                leaves += not found[1]
                open_ += found[1] - 1
                at += 1
            if leaves == 1:
                columns[name] = _Column(leaf, tuple(elements[start:at]))
            leaf += leaves
        return columns

    @cached_property
    def _chunks(self) -> Positions:
        """The place of each row group's and leaf's `ColumnMetaData`, and place and length of its offset index."""
        data = self._data
        places = np.zeros((self._footer.num_row_groups, len(self._footer.schema), 3), dtype=np.int64)
        _, groups, at = thrift.list_header(data, thrift.field_at(data, 0, _GROUPS))
        for group in range(groups):
            _, leaves, at = thrift.list_header(data, thrift.field_at(data, at, _CHUNKS))
            for leaf in range(leaves):
                *members, (_, _, at) = thrift.fields(data, at)
                found = {field: value for field, _, value in members}
                index = [found[field] for field in (_INDEX_OFFSET, _INDEX_LENGTH) if field in found]
                places[group, leaf, 0] = found[_METADATA]
                places[group, leaf, 1 : 1 + len(index)] = [thrift.integer(data, value)[0] for value in index]
            *_, (_, _, at) = thrift.fields(data, at)  # the chunks are a row group's first field
        return places

    def place(self, group: int, column: str) -> ByteRange | None:
        """Returns where the offset index of a top-level column is; None if there is none, or the column has parts."""
        known = self._columns.get(column)
        if known is None:
            return None
        _, start, length = self._chunks[group, known.leaf].tolist()
        return None if length <= 0 else (start, start + length)

    def file_of(self, group: int, column: str, excerpt: Excerpt, parts: Sequence[Data]) -> bytes:
        """Returns a Parquet file with one column and one row group: some pages of a chunk.

        Args:
            group: The row group.
            column: One of those that have a `place`.
            excerpt: The pages.
            parts: The bytes of `excerpt.ranges`.

        Raises:
            ValueError, LookupError: a page has no header.
        """
        known = self._columns[column]
        has_dictionary = len(parts) > len(excerpt.chosen)
        first = len(_MAGIC) + (len(parts[0]) if has_dictionary else 0)
        values = sum(map(_values, parts[has_dictionary:]))
        size = sum(map(len, parts))
        chunk = self._chunk_of(int(self._chunks[group, known.leaf, 0]), values, size, first, has_dictionary)
        row_group = StructWriter().structs(1, [StructWriter().integer(2, I64, 0).raw(3, STRUCT, chunk).end()])
        row_group.integer(2, I64, size).integer(3, I64, excerpt.rows)
        footer = StructWriter().integer(1, I32, _VERSION).structs(2, [_ROOT, *known.elements])
        rest = footer.integer(3, I64, excerpt.rows).structs(4, [row_group.end()]).end()
        return b"".join([_MAGIC, *parts, rest, len(rest).to_bytes(4, "little"), _MAGIC])

    def _chunk_of(self, at: int, values: int, size: int, first: int, has_dictionary: bool) -> bytes:
        """Returns the `ColumnMetaData` of an excerpt: that of the chunk with other numbers and places."""
        kept = StructWriter()
        for field, kind, value in thrift.fields(self._data, at):
            if 1 <= field <= 4:  # the type, the encodings, the path and the compression
                kept.raw(field, kind, self._data[value : thrift.skipped(self._data, value, kind)])
        kept.integer(5, I64, values).integer(6, I64, size).integer(7, I64, size).integer(9, I64, first)
        if has_dictionary:
            kept.integer(11, I64, len(_MAGIC))
        return kept.end()


def _values(page: Data) -> int:
    """Returns how many values a page has, nulls included, by its header."""
    for field, _, at in thrift.fields(page, 0):
        if field in (_HEADER_V1, _HEADER_V2):
            return thrift.integer(page, thrift.field_at(page, at, 1))[0]
    raise ValueError("the page is no data page")


def _element(element: bytes) -> tuple[str, int]:
    """Returns the name of an element of the schema, and how many others are in it."""
    name, children = "", 0
    for field, _, at in thrift.fields(element, 0):
        if field == _NAME:
            name = thrift.text(element, at)
        elif field == _CHILDREN:
            children = thrift.integer(element, at)[0]
    return name, children


def _structs(data: bytes, at: int) -> list[bytes]:
    """Returns the bytes of each structure of a list."""
    _, count, at = thrift.list_header(data, at)
    found = []
    for _ in range(count):
        start, at = at, thrift.skipped(data, at, STRUCT)
        found.append(data[start:at])
    return found
