"""The use case of entering tables in the catalog whose files are in the warehouse already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog_service.tables.construction import key_of
from catalog_service.tables.lifecycle import Lifecycle
from catalog_service.tables.registration import Registration as Registry
from catalog_service.wire.registrations import Registration
from filestore import layout
from filestore.errors import InvalidRequest, TableStoreError

__all__ = ["Registering"]


@dataclass(frozen=True, slots=True)
class Registering:
    """Registers tables by their folders."""

    lifecycle: Lifecycle

    def register(self, folders: Sequence[tuple[str, str]], name: str | None = None) -> list[Registration]:
        """Enters the tables of some folders; what is there already stays as it is.

        All folders are read first: of several with one table, or for one name, none is registered, unless it is given
        alone (`catalog_service.tables.candidates`).

        Args:
            folders: From `table_folders`.
            name: Another name for the table of one folder.

        Returns:
            One for each folder. An error of one folder is in it, and stops no other.

        Raises:
            InvalidRequest: ``bad-name``: a name, and several tables.
        """
        if name is not None and len(folders) > 1:
            raise InvalidRequest(
                f"there are {len(folders)} tables, and one name was given: register the folder of one table",
                code="bad-name",
            )
        registry = Registry(self.lifecycle)
        refused = registry.undecided(folders) if len(folders) > 1 else {}
        return [self._registered(registry, place, name, refused.get(place)) for place in folders]

    def _registered(
        self, registry: Registry, place: tuple[str, str], name: str | None, refused: TableStoreError | None
    ) -> Registration:
        location = layout.table_location(self.lifecycle.warehouse, *place)
        if refused is not None:
            return Registration(location, error=refused)
        try:
            found = registry.register(*place, name)
        except TableStoreError as error:
            return Registration(location, error=error)
        row = found.row
        return Registration(
            location, key_of(row.database, row.name), row.table_id, found.state.version, found.created, found.notes
        )
