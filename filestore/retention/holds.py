"""Reads and writes the files of consumers: which versions running readers hold (FORMAT.md section 14)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from filestore import layout
from filestore.decoding import well_formed
from filestore.delta.state import TableState
from filestore.errors import NotFound
from filestore.storage.interface import Storage

__all__ = ["ConsumerInfo", "holds", "is_lapsed", "read_hold", "stored_holds", "write_hold"]


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """The content of a consumer's file.

    Attributes:
        id: The consumer's name.
        table_id: The table that it reads. A file of a reader of a dropped table is ignored.
        version: The oldest version that it needs; all later ones are kept, too.
        holder: The reader that registered it; another reader with the same id takes it over.
        touched_ms: When the reader last wrote the file, in milliseconds since 1970 UTC.
        rows: Whether it still reads the rows of `version`, and not only the changes after it.
    """

    id: str
    table_id: str
    version: int
    holder: str
    touched_ms: int
    rows: bool = False

    def to_bytes(self) -> bytes:
        """Returns the file's content."""
        return json.dumps(asdict(self)).encode()


def holds(storage: Storage, location: str, state: TableState, now_ms: int) -> list[ConsumerInfo]:
    """Lists the consumers of a table whose files were written within ``consumer.expiration-time``, by id."""
    found = (h for h in stored_holds(storage, location) if h.table_id == state.table_id)
    return sorted((h for h in found if not is_lapsed(h, state, now_ms)), key=lambda hold: hold.id)


def is_lapsed(hold: ConsumerInfo, state: TableState, now_ms: int) -> bool:
    """Returns whether its reader has not written the file for so long that it holds nothing any more."""
    return now_ms - hold.touched_ms > state.definition.options.milliseconds("consumer.expiration-time")


def stored_holds(storage: Storage, location: str) -> Iterator[ConsumerInfo]:
    """Reads all consumers' files, also those of lapsed ones and of dropped tables."""
    for name in storage.list_names(layout.join(location, layout.CONSUMERS)):
        consumer_id = layout.parse_consumer(name)
        if consumer_id is not None and (found := read_hold(storage, location, consumer_id)) is not None:
            yield found


def read_hold(storage: Storage, location: str, consumer_id: str) -> ConsumerInfo | None:
    """Reads one consumer's file; None if there is none. `Corrupt` if it is not a consumer's file."""
    path = layout.join(location, layout.consumer_path(consumer_id))
    try:
        stored = storage.read(path)
    except NotFound:
        return None
    with well_formed(f"the consumer's file {path}", code="bad-consumer", advice="remove it"):
        return ConsumerInfo(**json.loads(stored))


def write_hold(storage: Storage, location: str, hold: ConsumerInfo) -> None:
    """Writes a consumer's file, or replaces it. `NotFound` if the table's folder is gone."""
    storage.replace(layout.join(location, layout.consumer_path(hold.id)), hold.to_bytes())
