"""Decides which errors say that stored rows cannot be read, however often it is tried: their bytes are lost.

What only needs such rows to report them to readers of changes goes on without them: a rollback, an overwrite, a reader
that continues after its changes are gone.
"""

from __future__ import annotations

from filestore.errors import Corrupt, TableStoreError

__all__ = ["is_unreadable"]


def is_unreadable(error: TableStoreError) -> bool:
    """Returns whether a file is damaged or missing. A storage that does not answer may still have it."""
    return isinstance(error, Corrupt) or error.code == "file-not-found"
