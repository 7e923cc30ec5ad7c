"""The outcome of entering tables of a warehouse in its catalog. No request over HTTP returns it yet."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.errors import TableStoreError

__all__ = ["Registration"]


@dataclass(frozen=True, slots=True)
class Registration:
    """A folder with a table's files, and whether the catalog has the table now.

    Attributes:
        location: The folder.
        name: The table, as ``database.table``; None if it could not be registered.
        table_id: Its UUID.
        version: Its newest version.
        created: Whether this call has entered it; otherwise the catalog had it.
        notes: What is to be done before it works as ever, such as a log that is missing.
        error: Why it could not be registered; None if the catalog has it.
    """

    location: str
    name: str | None = None
    table_id: str | None = None
    version: int | None = None
    created: bool = False
    notes: tuple[str, ...] = ()
    error: TableStoreError | None = None
