"""The metadata that can be read and written: the connector's, and that of the formats of key and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from filestore.model.types import TIMESTAMP, canonical

__all__ = ["KAFKA_KEYS", "NO_KEYS", "MetadataKey", "Origin", "available_keys"]

NO_KEYS: Mapping[str, pa.DataType] = {}
"""The metadata of a format that has none."""


class Origin(StrEnum):
    """The source of a key's values; the members are in the order of a row's columns."""

    KEY_FORMAT = "key."
    VALUE_FORMAT = "value."
    CONNECTOR = ""


@dataclass(frozen=True, slots=True)
class MetadataKey:
    """A metadata of a message besides the row in its key and value.

    Attributes:
        name: As columns refer to it: ``offset``, ``value.source.table``.
        type: The canonical type of its values.
        description: What it is, for people.
        nullable: Whether a message may lack it.
        writable: Whether it can be written to a message.
        origin: The source of its values.
    """

    name: str
    type: pa.DataType
    description: str
    nullable: bool = False
    writable: bool = False
    origin: Origin = Origin.CONNECTOR

    @property
    def own_name(self) -> str:
        """The key's name in its format: without ``key.`` or ``value.``."""
        return self.name.removeprefix(self.origin)


KAFKA_KEYS: tuple[MetadataKey, ...] = (
    MetadataKey("topic", pa.string(), "The topic that the message is in."),
    MetadataKey("partition", pa.int32(), "Its partition."),
    MetadataKey(
        "headers",
        pa.map_(pa.string(), pa.binary()),
        "Its headers; of several with one name the last. Written, NULL is none.",
        writable=True,
    ),
    MetadataKey("leader-epoch", pa.int32(), "The epoch of the leader that took it, if known.", nullable=True),
    MetadataKey("offset", pa.int64(), "Its offset in the partition."),
    MetadataKey(
        "timestamp", TIMESTAMP, "Its time, in milliseconds. Written, NULL is the time of writing.", writable=True
    ),
    MetadataKey(
        "timestamp-type", pa.string(), "What that time is: `CreateTime`, `LogAppendTime` or `NoTimestampType`."
    ),
)
"""The metadata of a Kafka message, for ``connector = kafka`` and ``upsert-kafka`` (names and types are Flink's)."""


def available_keys(
    connector: Iterable[MetadataKey] = KAFKA_KEYS,
    *,
    key_format: Mapping[str, pa.DataType] = NO_KEYS,
    value_format: Mapping[str, pa.DataType] = NO_KEYS,
) -> tuple[MetadataKey, ...]:
    """Returns all metadata of a table, in the order of a row's columns: key format, value format, connector.

    A format's key that is called as one of the connector hides it, as in Flink (`SupportsReadingMetadata`). None of
    Kafka's begins with ``key.`` or ``value.``, so none is.

    Args:
        connector: What the connector gives.
        key_format: What the format of the keys gives: names without prefix and types. It can be read only.
        value_format: The same of the values.
    """
    formats = (*_of_format(Origin.KEY_FORMAT, key_format), *_of_format(Origin.VALUE_FORMAT, value_format))
    hidden = {key.name for key in formats}
    return (*formats, *(key for key in connector if key.name not in hidden))


def _of_format(origin: Origin, given: Mapping[str, pa.DataType]) -> list[MetadataKey]:
    part = "key" if origin is Origin.KEY_FORMAT else "value"
    return [
        MetadataKey(
            origin + name, canonical(kind), f"`{name}`, as the message's {part} says it.", nullable=True, origin=origin
        )
        for name, kind in given.items()
    ]
