"""Cuts documents into their members, and arrays into their elements, as JSON texts. Vectorised.

That these texts are JSON values is not looked at: whoever reads them finds out.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from filestore.lazily import pl
from log.connector.formats.json.tokens import COLON, Text, among, pieces_of, scanned

__all__ = ["elements_of", "members_of"]


def members_of(documents: pl.Series) -> dict[str, pl.Series]:
    """Returns the texts of each member's values, by its name, in the order in which names come first.

    Args:
        documents: Objects, as bytes or texts without ends of lines.

    Raises:
        ArrowInvalid: one of them is no object.
    """
    text = _scanned(documents, b"{")
    colons = np.flatnonzero((text.level == 1) & (text.token == COLON))
    if not (among(text.token[colons - 1], b"{,").all() and among(text.token[colons + 1], b"},").all()):
        raise pa.ArrowInvalid("an object has something beside its members")
    frame = pl.DataFrame(
        {
            "key": _stripped(pieces_of(text.data, text.at[colons - 1] + 1, text.at[colons])),
            "value": _stripped(pieces_of(text.data, text.at[colons] + 1, text.at[colons + 1])),
        }
    )
    found: dict[str, list[pl.Series]] = {}
    for part in frame.partition_by("key", maintain_order=True):
        try:
            name = json.loads(part["key"][0])
        except ValueError as error:
            raise pa.ArrowInvalid("a name of a member is no string") from error
        if not isinstance(name, str):
            raise pa.ArrowInvalid("a name of a member is no string")
        found.setdefault(name, []).append(part["value"])
    return {name: pl.concat(parts) for name, parts in found.items()}


def elements_of(arrays: pl.Series) -> pl.Series:
    """Returns the texts of all elements of arrays; `ArrowInvalid` if one of them is no array."""
    text = _scanned(arrays, b"[")
    own = np.flatnonzero(text.level == 1)
    token = text.token[own]
    begins = np.flatnonzero(among(token, b"[,"))
    if not among(token[begins + 1], b"],").all() or (token == COLON).any():
        raise pa.ArrowInvalid("an array has something beside its elements")
    elements = _stripped(pieces_of(text.data, text.at[begins] + 1, text.at[begins + 1]))
    alone = among(token[begins], b"[") & among(token[begins + 1], b"]")
    return elements.filter(~(pl.Series(alone) & (elements == "")))


def _scanned(texts: pl.Series, bracket: bytes) -> Text:
    """Finds the tokens of texts that are one object or one array each."""
    joined = texts.cast(pl.String).str.strip_chars(" \t\r\n").str.join("\n").cast(pl.Binary)
    data = np.frombuffer(joined.item(), np.uint8) if len(texts) else np.array([], np.uint8)
    text = scanned(data)
    outer = text.opens[text.level[text.opens] == 1]
    if len(outer) != len(texts) or not among(text.token[outer], bracket).all():
        raise pa.ArrowInvalid("a text is something else than one object or array")
    return text


def _stripped(texts: pl.Series) -> pl.Series:
    return texts.cast(pl.String).str.strip_chars(" \t\r\n")
