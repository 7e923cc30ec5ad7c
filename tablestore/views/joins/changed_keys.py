"""The keys of a table that have changed between two versions."""

from __future__ import annotations

from filestore.lazily import pl
from filestore.rows.frames import frame_of
from tablestore.reading.version_changes import Changes

__all__ = ["changed_keys"]


def changed_keys(changes: Changes, most: int) -> pl.DataFrame | None:
    """Reads the keys whose rows have changed; returns None if there are more than `most`."""
    key = list(changes.pair.after.definition.primary_key)
    pieces = [frame_of(changes.pair.after.definition.schema.select(key).to_arrow().empty_table())]
    count = 0
    for keys in changes.key_pieces():
        count += keys.height
        if count > most:
            return None
        pieces.append(keys)
    return pl.concat(pieces)
