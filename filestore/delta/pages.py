"""``add`` actions in memory: plain as Arrow has them, or packed in pages, in a fifth of the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.adds import ADD, Mask, Positions
from filestore.delta.slot_hashes import Hashes
from filestore.rows.slices import slices

__all__ = ["PAGES", "Page", "Pages"]

PAGE_ROWS = 128
"""The rows of a page: it is unpacked in 0.1 ms, and larger ones take hardly less memory."""

_SMALL = PAGE_ROWS // 4
_TOGETHER = 64

PAGES = pa.struct({"rows": pa.int64(), "content": pa.large_binary(), "size": pa.int64()})
"""The type of `Pages.to_columns`."""

_SCHEMA = pa.schema(list(ADD))
_CODEC = pa.Codec("zstd", 3)


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Some actions. It is never changed.

    Attributes:
        rows: Their number.
        content: The actions, of type `ADD`; or their bytes as an Arrow message, compressed.
        size: The bytes of that message before they were compressed.
    """

    rows: int
    content: pa.StructArray | pa.Buffer
    size: int = 0

    @classmethod
    def of(cls, adds: pa.StructArray) -> Page:
        """Returns a page that has actions as they are."""
        return cls(len(adds), adds)

    def packed(self) -> Page:
        """Returns the same actions, compressed."""
        if isinstance(self.content, pa.Buffer):
            return self
        message = pa.RecordBatch.from_struct_array(self.content).serialize()
        packed = _CODEC.compress(message, asbytes=True)  # Arrow's own buffer keeps room for the longest result
        return Page(self.rows, pa.py_buffer(packed), message.size)

    def even(self) -> list[Page]:
        """Returns them in pages of about `PAGE_ROWS`; those of a packed page stay together."""
        if isinstance(self.content, pa.Buffer):
            return [self]
        count = max(1, round(self.rows / PAGE_ROWS))
        cuts = [self.rows * number // count for number in range(count + 1)]
        return [Page.of(self.content.slice(start, end - start)) for start, end in pairwise(cuts)]

    def adds(self) -> pa.StructArray:
        """Returns the actions."""
        if not isinstance(self.content, pa.Buffer):
            return self.content
        message = _CODEC.decompress(self.content, self.size)
        return pa.ipc.read_record_batch(message, _SCHEMA).to_struct_array()


class Pages:
    """A sequence of actions in pages. It is never changed.

    Args:
        pages: The pages.

    Attributes:
        pages: Those that have an action.
        starts: The number of the first action of each page, and the number of all.
        packed: True if all are packed.
    """

    def __init__(self, pages: Iterable[Page]) -> None:
        self.pages = tuple(page for page in pages if page.rows)
        self.starts: Positions = np.cumsum([0, *(page.rows for page in self.pages)], dtype=np.int64)
        self.packed = all(isinstance(page.content, pa.Buffer) for page in self.pages)
        self._last: tuple[int, pa.StructArray] | None = None

    @classmethod
    def of_columns(cls, columns: pa.StructArray) -> Pages:
        """Returns the pages that `to_columns` gave; their bytes stay where they are."""
        rows, sizes = (pc.struct_field(columns, name).to_pylist() for name in ("rows", "size"))
        contents = pc.struct_field(columns, "content")
        _, starts, lengths = slices(contents)
        data = contents.buffers()[2]
        parts = zip(rows, starts.tolist(), lengths.tolist(), sizes, strict=True)
        return cls(Page(count, data.slice(start, length), size) for count, start, length, size in parts)

    def to_columns(self) -> pa.StructArray:
        """Returns packed pages as one array, which is sent to another process or kept in a file."""
        rows, size = (
            pa.array([p.rows for p in self.pages], pa.int64()),
            pa.array([p.size for p in self.pages], pa.int64()),
        )
        ends = np.cumsum([0, *(page.content.size for page in self.pages)], dtype=np.int64)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(page.content for page in self.pages))]
        content = pa.Array.from_buffers(pa.large_binary(), len(self.pages), buffers)
        return pa.StructArray.from_arrays([rows, content, size], fields=list(PAGES))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def pack(self) -> Pages:
        """Returns the same actions, packed."""
        return Pages(self.packing())

    def packing(self) -> Iterator[Page]:
        """Yields pages of the same actions, packed."""
        return (part.packed() for page in self.pages for part in page.even())

    def _pages_of(self, positions: Positions) -> Positions:
        """Returns the numbers of the pages that have some positions."""
        pages: Positions = np.searchsorted(self.starts, positions, side="right") - 1
        return pages

    def _page_at(self, position: int) -> int:
        """Returns the number of the page that has a position."""
        return int(np.searchsorted(self.starts, position, side="right")) - 1

    def _adds(self, number: int) -> pa.StructArray:
        """Returns the actions of a page. It keeps the last one: slots are often asked for in their order."""
        if (last := self._last) is not None and last[0] == number:
            return last[1]
        adds = self.pages[number].adds()
        self._last = number, adds
        return adds

    def take(self, positions: Positions) -> pa.StructArray:
        """Returns the actions at ascending positions."""
        parts: list[pa.StructArray] = []
        at = 0
        while at < len(positions):
            page = self._page_at(int(positions[at]))
            start, end = self.starts[page], self.starts[page + 1]
            behind = int(np.searchsorted(positions, end))
            inside = positions[at:behind] - start
            adds, first, last = self._adds(page), int(inside[0]), int(inside[-1]) + 1
            whole = last - first == len(inside)
            parts.append(adds.slice(first, last - first) if whole else adds.take(pa.array(inside)))
            at = behind
        return _joined(parts)

    def between(self, start: int, end: int) -> pa.StructArray:
        """Returns the actions from one position to another one."""
        parts: list[pa.StructArray] = []
        while start < end:
            page = self._page_at(start)
            first, last = int(self.starts[page]), min(end, int(self.starts[page + 1]))
            parts.append(self._adds(page).slice(start - first, last - start))
            start = last
        return _joined(parts)

    def shares(self, start: int, end: int, other: Pages, begin: int) -> bool:
        """Returns whether all from one position to another one are in pages that another sequence has there, too."""
        if start == end:
            return True
        mine, others = self._page_at(start), other._page_at(begin)
        if self.starts[mine] - start != other.starts[others] - begin:
            return False
        count = self._page_at(end - 1) - mine + 1
        some = zip(self.pages[mine : mine + count], other.pages[others : others + count], strict=False)
        return all(one is two for one, two in some) and others + count <= len(other.pages)

    def changed(
        self, keys: Hashes, stay: Mask, adds: pa.StructArray, new_keys: Hashes, *, plain: int
    ) -> tuple[Pages, Hashes]:
        """Returns other actions, in the order of their keys. Pages in which nothing changes are shared.

        Args:
            keys: The key of each action, ascending.
            stay: Which actions stay.
            adds: Further actions.
            new_keys: The keys of these, ascending.
            plain: So many are not packed, and have one page.
        """
        at = np.searchsorted(keys, new_keys)
        homes = np.minimum(self._pages_of(at), len(self.pages) - 1)
        count = int(stay.sum()) + len(adds)
        if count <= plain or not self.pages:
            whole, ordered = _merged(self.between(0, len(self)).filter(pa.array(stay)), keys[stay], adds, new_keys)
            new = Pages([Page.of(whole)])
            return (new if count <= plain else new.pack()), ordered
        touched = np.unique(np.append(self._pages_of(np.flatnonzero(~stay)), homes))
        pages, all_keys = list[Page](), list[Hashes]()
        done = 0
        for first, behind in _runs(touched):
            pages += self.pages[done:first]
            all_keys.append(keys[self.starts[done] : self.starts[first]])
            a, b = int(self.starts[first]), int(self.starts[behind])
            c, d = np.searchsorted(homes, (first, behind)).tolist()
            kept = self.between(a, b).filter(pa.array(stay[a:b]))
            some, ordered = _merged(kept, keys[a:b][stay[a:b]], adds.slice(c, d - c), new_keys[c:d])
            pages += Pages([Page.of(some)]).pack().pages
            all_keys.append(ordered)
            done = behind
        pages += self.pages[done:]
        all_keys.append(keys[self.starts[done] :])
        return Pages(_without_small_ones(pages)), np.concatenate(all_keys)


def _merged(
    some: pa.StructArray, keys: Hashes, others: pa.StructArray, other_keys: Hashes
) -> tuple[pa.StructArray, Hashes]:
    """Returns all actions in the order of their keys."""
    if not len(others):
        return some, keys
    both = np.append(keys, other_keys)
    order = np.argsort(both, kind="stable")
    return pa.concat_arrays([some, others]).take(pa.array(order)), both[order]


def _runs(numbers: Positions) -> Iterator[tuple[int, int]]:
    """Yields ranges of consecutive numbers, of at most `_TOGETHER`."""
    first = previous = None
    for number in numbers.tolist():
        if first is None or previous is None or number != previous + 1 or number - first == _TOGETHER:
            if first is not None and previous is not None:
                yield first, previous + 1
            first = number
        previous = number
    if first is not None and previous is not None:
        yield first, previous + 1


def _without_small_ones(pages: Sequence[Page]) -> Iterator[Page]:
    """Joins neighbours of which pages that lost most of their actions are left."""
    waiting: Page | None = None
    for page in pages:
        if waiting is not None and waiting.rows + page.rows <= PAGE_ROWS and min(waiting.rows, page.rows) < _SMALL:
            waiting = Page.of(_joined([waiting.adds(), page.adds()])).packed()
            continue
        if waiting is not None:
            yield waiting
        waiting = page
    if waiting is not None:
        yield waiting


def _joined(parts: Sequence[pa.StructArray]) -> pa.StructArray:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else pa.array([], ADD)
