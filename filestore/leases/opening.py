"""Chooses the kind of a table's leases: files for a table on a local disk, objects for one in a store of objects."""

from __future__ import annotations

from collections.abc import Callable

from filestore.ambient import Ambient
from filestore.leases.interface import WriterLeases
from filestore.leases.locks import LockedLeases
from filestore.leases.objects import ObjectLeases
from filestore.storage.interface import Storage
from filestore.storage.schemes import is_local

__all__ = ["leases_of"]


def leases_of(storage: Storage, location: str, ambient: Ambient, timeout_s: Callable[[], float]) -> WriterLeases:
    """Returns a table's leases: locks of files on a local disk, else objects.

    Args:
        storage: The table's storage.
        location: The table's location.
        ambient: Clock, ids and pauses.
        timeout_s: Returns after how many seconds without a renewal a writer counts as dead (``log.lease-timeout``).
    """
    if is_local(location):
        return LockedLeases(location)
    return ObjectLeases(storage, location, ambient, timeout_s)
