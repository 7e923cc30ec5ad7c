"""Looks at every byte of a Parquet file: they are those that were written (FORMAT.md section 12.2).

Other checks decode what they need, and a file has more than that: an index by which another reader skips rows, say.
"""

from __future__ import annotations

from filestore.errors import Corrupt
from filestore.files.parquet import ParquetReader

__all__ = ["damage_of", "is_checksum"]


def damage_of(parquet: ParquetReader) -> str | None:
    """Describes which bytes of a file are damaged; None if none are, or if the file has no checksums.

    Raises:
        Corrupt: the footer is damaged, or this is no Parquet file.
    """
    damaged = parquet.damaged()
    if not damaged:
        return None
    (start, end), *others = damaged
    more = f" and {len(others)} other parts" if others else ""
    return f"is damaged: its bytes {start} to {end - 1}{more} are not those that were written"


def is_checksum(error: Corrupt) -> bool:
    """Returns whether an error says that bytes differ from their checksum."""
    return error.code == "checksum"
