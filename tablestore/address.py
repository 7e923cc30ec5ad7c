"""`Address`: where a store is, and how to reach it: the arguments of `tablestore.connect`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog_service.client import Catalog
from catalog_service.client import connect as connect_catalog

__all__ = ["Address"]


@dataclass(frozen=True, slots=True)
class Address:
    """The arguments that open a store; `tablestore.connect` says what each of them is.

    IMPORTANT: a pickle has the token and the database's URL: whoever has it may do what this store may.
    """

    target: str
    token: str | None = field(default=None, repr=False)
    database: str | None = field(default=None, repr=False)
    options: Mapping[str, str] | None = field(default=None, repr=False)
    storage_options: Mapping[str, str] | None = None
    brokers: str | None = None
    commits: str | None = None

    def open_catalog(self) -> Catalog:
        """Connects to the catalog; raises as `tablestore.connect`."""
        return connect_catalog(
            self.target,
            token=self.token,
            database=self.database,
            storage_options=self.storage_options,
            brokers=self.brokers,
            commits=self.commits,
        )
