"""`Place`: completes the names of tables in the query of a view. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from filestore.errors import Unsupported

__all__ = ["Place"]

_DIALECT = "spark"


@dataclass(frozen=True, slots=True)
class Place:
    """The place by which names of tables in a statement are completed.

    Attributes:
        catalog: The catalog of the view; tables of other catalogs cannot be joined. Empty: names have no catalog.
        database: The database of names without one.
    """

    catalog: str
    database: str

    def name(self, table: exp.Table) -> str:
        """Returns ``database.table`` as the catalog spells it: names of tables are the same in upper and lower case.

        Raises:
            Unsupported: ``view-query``: a table of another catalog.
        """
        found = f"{table.db or self.database}.{table.name}".lower()
        if not table.catalog or table.catalog == self.catalog:
            return found
        shown = table.sql(_DIALECT, comments=False)
        if not self.catalog:
            raise Unsupported(
                f"{table.catalog!r} in {shown} is a catalog of Spark, and the query of a view that Python creates "
                f"names tables of its own store, without a catalog: write {found}",
                code="view-query",
            )
        raise Unsupported(
            f"{shown} is in another catalog than the view, which can read tables of the catalog {self.catalog} only",
            code="view-query",
        )
