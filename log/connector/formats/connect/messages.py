"""Splits messages of Kafka Connect's JsonConverter with ``schemas.enable``: ``{"schema": …, "payload": …}``.

A batch has one schema or few, as texts that are the same byte by byte up to the payload. So such a head is looked at
once, and the payloads behind it go on together. Whatever does not look like that is read message by message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from log.connector.formats.format import Index

__all__ = ["Parted", "Payloads", "parted", "schemas_of"]

_PAYLOAD = b'"payload":'
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_MOST_HEADS = 64
_NO_PAYLOAD = "member 'payload' is missing: the message has no schema, so debezium-json.schema-include is false"


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads with one schema.

    Attributes:
        schema: Its text; None if the messages have null there, or nothing.
        values: The payloads, as JSON.
        index: The position of each one's message, ascending.
    """

    schema: str | None
    values: Sequence[bytes]
    index: Index


@dataclass(frozen=True, slots=True)
class Parted:
    """Messages split into schemas and payloads.

    Attributes:
        groups: Payloads, by schema.
        tombstones: Positions of messages whose schema and payload are null: what old converters make of no value.
        malformed: Position and reason of the others.
    """

    groups: tuple[Payloads, ...]
    tombstones: tuple[int, ...]
    malformed: dict[int, str]


@dataclass(slots=True)
class _Parts:
    """The messages that were split so far."""

    values: dict[str | None, list[bytes]] = field(default_factory=dict)
    index: dict[str | None, list[Index]] = field(default_factory=dict)
    tombstones: list[int] = field(default_factory=list)
    malformed: dict[int, str] = field(default_factory=dict)

    def add(self, schema: str | None, values: Sequence[bytes], index: Index) -> None:
        self.values.setdefault(schema, []).extend(values)
        self.index.setdefault(schema, []).append(index)

    def empty(self, schema: str | None, index: Index) -> None:
        """Adds messages whose payload is null."""
        if schema is None:
            self.tombstones += index.tolist()
        else:
            self.malformed |= dict.fromkeys(index.tolist(), "a Debezium message has no payload, and no null value")

    def take(self, schema: str | None, messages: pa.Array, places: pa.Array, head: int) -> None:
        """Adds messages that have a head of so many bytes in front of the payload, and a brace behind it."""
        bodies = pc.binary_slice(messages, head, -1)
        nothing = pc.is_in(bodies, pa.array([b"null", b" null"], bodies.type))
        if pc.any(nothing).as_py():
            self.empty(schema, places.filter(nothing).to_numpy())
            bodies, places = bodies.filter(pc.invert(nothing)), places.filter(pc.invert(nothing))
        if len(bodies):
            self.add(schema, pl.Series(pl.from_arrow(bodies)).to_list(), places.to_numpy())

    def read(self, place: int, message: bytes) -> None:
        """Splits one message by itself."""
        try:
            members = _members(message.decode())
            if "payload" not in members:
                raise ValueError(_NO_PAYLOAD)
            schema = _spelled(members.get("schema", "null"))
        except UnicodeDecodeError as error:
            self.malformed[place] = f"not UTF-8: {error.reason} at byte {error.start}"
        except ValueError as error:
            self.malformed[place] = str(error)
        except RecursionError:
            self.malformed[place] = "not JSON: nested too deeply"
        else:
            if members["payload"] == "null":
                self.empty(schema, np.array([place]))
            else:
                self.add(schema, [members["payload"].encode()], np.array([place]))

    def done(self) -> Parted:
        groups = [_in_order(schema, self.values[schema], np.concatenate(self.index[schema])) for schema in self.values]
        return Parted(tuple(groups), tuple(sorted(self.tombstones)), self.malformed)


def parted(messages: Sequence[bytes]) -> Parted:
    """Groups the payloads of messages by their schemas."""
    found = _Parts()
    left, places = pa.array(messages, pa.large_binary()), pa.array(np.arange(len(messages)))
    for _ in range(_MOST_HEADS):
        if not len(left):
            break
        head = left[0].as_py().partition(_PAYLOAD)[0] + _PAYLOAD
        schema, is_head = _head_schema(head)
        alike = pc.and_(pc.starts_with(left, head), pc.ends_with(left, b"}"))
        if is_head and pc.all(alike).as_py():
            found.take(schema, left, places, len(head))
            return found.done()
        if is_head and alike[0].as_py():
            found.take(schema, left.filter(alike), places.filter(alike), len(head))
            left, places = left.filter(pc.invert(alike)), places.filter(pc.invert(alike))
        else:
            found.read(places[0].as_py(), left[0].as_py())
            left, places = left[1:], places[1:]
    for place in places.to_pylist():
        found.read(place, messages[place])
    return found.done()


def schemas_of(messages: Sequence[bytes]) -> tuple[str, ...]:
    """Returns the texts of the messages' schemas, each once, in the order of their first messages."""
    found: dict[str, None] = {}
    left = pa.array(messages, pa.large_binary())
    while len(left):
        first = left[0].as_py()
        head = first.partition(_PAYLOAD)[0] + _PAYLOAD
        schema, is_head = _head_schema(head)
        if is_head:
            left = left.filter(pc.invert(pc.starts_with(left, head)))
        else:
            schema, left = _alone(first), left[1:]
        if schema is not None:
            found[schema] = None
    return tuple(found)


def _alone(message: bytes) -> str | None:
    try:
        return _spelled(_members(message.decode()).get("schema", "null"))
    except (ValueError, RecursionError):
        return None  # who reads it says so


@lru_cache(maxsize=256)
def _head_schema(head: bytes) -> tuple[str | None, bool]:
    """Returns the text of the schema in the bytes before a payload, and whether these are such a head at all.

    With null and a brace behind it, it has to be a whole document: then the payload is a member of the message, and not
    one of its schema.
    """
    try:
        members = _members(f"{head.decode()}null}}")
        return _spelled(members.get("schema", "null")), {"schema", "payload"} == members.keys()
    except (ValueError, RecursionError):
        return None, False


def _spelled(schema: str) -> str | None:
    """The text that equal schemas share, however a message spells its own; None for null.

    Raises:
        ValueError: a string in it is no Unicode text, which no column holds.
    """
    if schema == "null":
        return None
    text = json.dumps(json.loads(schema), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, as an escape
        raise ValueError("member 'schema' has a string that is no Unicode text") from error
    return text


def _members(text: str) -> dict[str, str]:
    """The members of a JSON object, each as the text that it is.

    Raises:
        ValueError: it is no JSON object; the text says where it breaks.
    """
    found: dict[str, str] = {}
    at = _after(text, _skip(text, 0), "{")
    if text[at : at + 1] == "}":
        _end(text, at + 1)
        return found
    while True:
        name, at = _value(text, at)
        if not isinstance(name, str):
            raise ValueError(f"not JSON: a member without a name before character {at}")
        start = _after(text, _skip(text, at), ":")
        _, at = _value(text, start)
        found[name] = text[start:at]
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            _end(text, _after(text, at, "}"))
            return found
        at = _skip(text, at + 1)


def _value(text: str, at: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None, "it matches nothing, too"
    return match.end()


def _after(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise ValueError(f"not JSON of an object: {mark!r} is missing at character {at}")
    return _skip(text, at + 1)


def _end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise ValueError(f"not JSON: something follows the object at character {at}")


def _in_order(schema: str | None, values: list[bytes], index: Index) -> Payloads:
    order = np.argsort(index, kind="stable")
    if (order == np.arange(len(order))).all():
        return Payloads(schema, values, index)
    return Payloads(schema, [values[i] for i in order.tolist()], index[order])
