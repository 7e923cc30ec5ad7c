"""The storage of a table as a client of the catalog has it: with the table's claims, if the catalog holds commits."""

from __future__ import annotations

from dataclasses import dataclass

from catalog_service.client.catalog import Catalog
from catalog_service.wire.claims import ClaimAnswer, ClaimRequest, PublishRequest
from catalog_service.wire.tables import TableInfo
from filestore.ambient import Ambient
from filestore.commit.claims import Claim
from filestore.commit.held import HeldStorage
from filestore.errors import Unavailable
from filestore.storage.interface import Storage
from filestore.storage.locations import Storages

__all__ = ["storage_of_table"]

_CATALOG = "catalog"


def storage_of_table(catalog: Catalog, info: TableInfo, storages: Storages, ambient: Ambient) -> Storage:
    """Returns the storage with which a process reads and writes a table.

    Args:
        catalog: The catalog, which must stay open as long as the storage is used.
        info: The table. REQUIRES: it has no connector.
        storages: The storages of this process.
        ambient: The source of ids.
    """
    identity = info.identity()
    storage = storages.of(identity.location, info.storage_options)
    if info.commits != _CATALOG:
        return storage
    claims = CatalogClaims(catalog, identity.database, identity.name, identity.table_id)
    return HeldStorage(storage, identity.location, claims, ambient.new_id)


@dataclass(frozen=True, slots=True)
class CatalogClaims:
    """Implements `filestore.commit.claims.Claims` by requests to a catalog."""

    catalog: Catalog
    database: str
    name: str
    table_id: str

    def newest(self) -> Claim | None:
        """Returns the newest claim."""
        return self.catalog.newest_claim(self.database, self.name, self.table_id).claim()

    def claim(self, wanted: Claim, after: Claim | None) -> Claim:
        """Makes a claim the newest one, if that is still `after`."""
        request = ClaimRequest(
            table_id=self.table_id,
            version=wanted.version,
            file=wanted.file,
            after=None if after is None else ClaimAnswer.of(after),
        )
        newest = self.catalog.claim_version(self.database, self.name, request).claim()
        if newest is None:
            raise Unavailable(
                "the catalog answered a claim of a version without saying who has it: does its URL lead to a "
                "catalog service?"
            )
        return newest

    def publish(self, claim: Claim) -> Claim | None:
        """Notes that a claim is published."""
        request = PublishRequest(table_id=self.table_id, version=claim.version, file=claim.file)
        return self.catalog.publish_claim(self.database, self.name, request).claim()
