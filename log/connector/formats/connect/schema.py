"""Parses Kafka Connect's schemas, as JsonConverter writes them beside a payload. Pure.

A schema has a type of Connect's, and for what Connect has no type a *logical* one by its name, such as
``io.debezium.time.MicroTimestamp``: an int64 that counts microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

__all__ = ["Described", "described"]

_DEEPEST = 100
"""The depth that a schema may have, the same in every Python: their own limits differ. A type is at most 32 deep."""
_TOO_DEEP = "a schema that is nested too deeply"


@dataclass(frozen=True, slots=True)
class Described:
    """The schema of a value.

    Attributes:
        type: Connect's type, such as ``int32``, ``bytes`` or ``struct``.
        logical: The name of what it stands for; None if it is no more than its type.
        scale: Of a ``org.apache.kafka.connect.data.Decimal``: the digits after the point.
        precision: Likewise, if it is said: all digits.
        fields: Of a struct: names and what their values are.
        items: Of an array its elements, of a map its values.
        keys: Of a map its keys.
    """

    type: str
    logical: str | None = None
    scale: int | None = None
    precision: int | None = None
    fields: tuple[tuple[str, Described], ...] = ()
    items: Described | None = None
    keys: Described | None = None

    def field(self, name: str) -> Described | None:
        """Returns a member of a struct; None if it has none of that name."""
        return next((found for known, found in self.fields if known == name), None)


@lru_cache(maxsize=256)
def described(text: str) -> Described:
    """Parses the text of a schema. Messages of one schema have the same text, so it is parsed once.

    Raises:
        ValueError: it is no such schema; the text says why.
    """
    try:
        return _read(json.loads(text), "schema")
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error


def _read(document: Any, place: str, depth: int = 0) -> Described:
    if depth > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    if not isinstance(document, dict) or not isinstance(document.get("type"), str):
        raise ValueError(f"{place} is no schema of Kafka Connect: it has no 'type'")
    parameters = document.get("parameters")
    if not isinstance(parameters, Mapping):
        parameters = {}
    parts = [part for part in ("items", "values", "keys") if part in document]
    inner = {part: _read(document[part], f"{place}.{part}", depth + 1) for part in parts}
    name = document.get("name")
    return Described(
        document["type"],
        name if isinstance(name, str) else None,
        _whole(parameters.get("scale")),
        _whole(parameters.get("connect.decimal.precision")),
        _fields(document.get("fields"), place, depth + 1),
        inner.get("items") or inner.get("values"),
        inner.get("keys"),
    )


def _fields(documents: Any, place: str, depth: int) -> tuple[tuple[str, Described], ...]:
    if not isinstance(documents, list):
        return ()
    found = []
    for document in documents:
        read = _read(document, place, depth)
        name = document.get("field")
        if not isinstance(name, str):
            raise ValueError(f"{place} has a field without a name")
        found.append((name, read))
    return tuple(found)


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else int(str(value))
    except ValueError:
        return None
