"""Finds the facts of the members of JSON objects, at any depth. Vectorised: Python loops over names and depths."""

from __future__ import annotations

import pyarrow as pa

from filestore.lazily import pl
from log.connector.formats.json.members import elements_of, members_of
from tablestore.incoming.files.facts import Facts, Kind, Seen
from tablestore.incoming.files.texts import number_facts, string_facts

__all__ = ["document_facts"]

_DEEPEST = 50


def document_facts(documents: pl.Series) -> dict[str, Facts]:
    """Returns what is known of each member of some objects.

    Raises:
        ArrowInvalid: they are none.
    """
    return _members(documents, 0)


def _members(documents: pl.Series, depth: int) -> dict[str, Facts]:
    if depth > _DEEPEST:
        raise pa.ArrowInvalid("nested too deeply")
    return {name: _values(texts, depth) for name, texts in members_of(documents).items()}


def _values(texts: pl.Series, depth: int) -> Facts:
    """Sorts JSON texts by their first characters."""
    texts = texts.filter(texts != "null")
    if not len(texts):
        return Facts()
    first = texts.str.slice(0, 1)
    found = Facts()
    for begin, parts in texts.to_frame("text").with_columns(first=first).group_by("first", maintain_order=True):
        found += _alike(str(begin[0]), parts["text"], depth)
    return found


def _alike(begin: str, texts: pl.Series, depth: int) -> Facts:
    seen = Seen(len(texts), texts[0])
    if begin == "{":
        return Facts({Kind.OBJECT: seen}, members=_members(texts, depth + 1))
    if begin == "[":
        return Facts({Kind.LIST: seen}, elements=_values(elements_of(texts), depth + 1))
    if begin == '"':
        return string_facts(texts.str.strip_prefix('"').str.strip_suffix('"'))
    if begin in "tf":
        return Facts({Kind.BOOLEAN: seen})
    return number_facts(texts)
