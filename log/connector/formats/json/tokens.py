"""The tokens of JSON texts: brackets, commas and colons outside of strings, found by arrays over the bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.lazily import pl

__all__ = [
    "CLOSE",
    "CLOSE_ARRAY",
    "COLON",
    "COMMA",
    "NEWLINE",
    "OPEN",
    "OPEN_ARRAY",
    "QUOTE",
    "Bytes",
    "Flags",
    "Index",
    "Text",
    "among",
    "check_spaces",
    "is_space",
    "outside",
    "pieces_of",
    "quotes_in",
    "scanned",
]

Bytes = npt.NDArray[np.uint8]
Index = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

QUOTE, _BACKSLASH, COMMA, COLON, NEWLINE = b'"\\,:\n'
OPEN_ARRAY, CLOSE_ARRAY, OPEN, CLOSE = b"[]{}"


@dataclass(frozen=True, slots=True)
class Text:
    """Documents and their tokens: brackets, commas and colons outside of strings.

    Tokens are ordered container by container, each in its order; `container` numbers an object's or array's own tokens,
    the first of which opens it and the last of which closes it.
    """

    data: Bytes
    quotes: Index
    at: Index
    token: Bytes
    level: Index
    container: Index
    opens: Index
    """The number of the token with which each container begins."""


def scanned(data: Bytes) -> Text:
    """Finds the tokens of texts, each on a line of its own.

    Raises:
        ArrowInvalid: brackets or strings are not closed on their line.
    """
    quotes = quotes_in(data)
    at = outside(quotes, np.flatnonzero(_marked(b"{}[],:")[data]))
    token = data[at]
    opens, closes = among(token, b"{["), among(token, b"}]")
    level = np.cumsum(opens.astype(np.int64) - closes) + closes
    ends = np.flatnonzero(data == NEWLINE)
    depth_at_end = np.concatenate([[0], level - closes])[np.searchsorted(at, ends)]
    if len(quotes) % 2 or len(outside(quotes, ends)) < len(ends) or depth_at_end.any() or level.min(initial=1) < 1:
        raise pa.ArrowInvalid("strings or brackets of a document are not closed")
    order = np.argsort(level, kind="stable")
    at, token, level, opens = at[order], token[order], level[order], opens[order]
    begins = np.flatnonzero(opens)
    lasts = np.append(begins[1:], len(token))[: len(begins)] - 1
    if not (token[lasts] == token[begins] + 2).all():  # as the bytes of "{" and "}", "[" and "]" are
        raise pa.ArrowInvalid("brackets of a document do not match")
    return Text(data, quotes, at, token, level, np.cumsum(opens) - 1, begins)


def outside(quotes: Index, places: Index) -> Index:
    """Returns those of some places that are outside of strings."""
    found: Index = places[np.searchsorted(quotes, places) % 2 == 0]
    return found


def quotes_in(data: Bytes) -> Index:
    """Finds the quotes with which strings begin and end: those without an odd number of backslashes before them."""
    quotes, slashes = np.flatnonzero(data == QUOTE), np.flatnonzero(data == _BACKSLASH)
    if not len(slashes):
        return quotes
    begins = np.diff(slashes, prepend=-2) != 1
    first = slashes[begins][np.cumsum(begins) - 1]  # where the run begins that a backslash is in
    last = np.searchsorted(slashes, quotes) - 1
    behind = (last >= 0) & (slashes[last] == quotes - 1)
    run = np.where(behind, quotes - first[last], 0)
    found: Index = quotes[run % 2 == 0]
    return found


def among(token: Bytes, wanted: bytes) -> Flags:
    """Returns for each token whether it is one of some."""
    return _marked(wanted)[token]


def is_space(data: Bytes) -> Flags:
    """Returns for each byte whether it is space that ends no text."""
    return _marked(b" \t\r")[data]


def _marked(wanted: bytes) -> Flags:
    found = np.zeros(256, bool)
    found[list(wanted)] = True
    return found


def check_spaces(data: Bytes, gaps: list[tuple[Index, Index]]) -> None:
    """Checks that only space is in some gaps, such as before a key and after it.

    Raises:
        ArrowInvalid: something else is.
    """
    for begins, ends in gaps:
        sizes = ends - begins
        if (sizes < 0).any():
            raise pa.ArrowInvalid("a key, an element or a comma is missing")
        firsts = np.cumsum(sizes) - sizes
        inside = np.repeat(begins - firsts, sizes) + np.arange(sizes.sum())
        if not is_space(data[inside]).all():
            raise pa.ArrowInvalid("there is something beside the keys, elements and commas")


def pieces_of(data: Bytes, begins: Index, ends: Index) -> pl.Series:
    """Returns parts of the bytes, one behind the other."""
    borders = np.empty(2 * len(begins), np.int64)
    borders[::2], borders[1::2] = begins, ends
    borders = np.append(borders, borders[-1:])
    if not len(borders):
        return pl.Series([], dtype=pl.Binary)
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(borders) - 1, buffers)
    return pl.Series(pl.from_arrow(pieces)).gather_every(2)
