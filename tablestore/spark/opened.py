"""The table that a data source's options name, opened in Spark's own processes, which come and go.

`SparkStore` says which table it is and where, so those processes need no catalog, which takes a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest
from filestore.storage.local import LocalStorage
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore.system.names import split_name

__all__ = ["identity_options", "opened"]


def identity_options(table: TableIdentity) -> dict[str, str]:
    """Options that lead to the table without its catalog."""
    return {"database": table.database, "table": table.name, "tableId": table.table_id, "location": table.location}


def opened(options: Mapping[str, str]) -> OpenedTable:
    """The table that options name. Its files are opened at their first use.

    Args:
        options: ``path`` (``database.table``, or that of a system table) with ``catalog`` and perhaps ``token``, or
            those of `identity_options`.

    Raises:
        InvalidRequest: ``missing-option``.
        NotFound: the catalog has no such table.
    """
    given = {name.lower(): value for name, value in options.items()}
    if location := given.get("location"):
        identity = TableIdentity(given["database"], given["table"], given["tableid"], location)
        return OpenedTable(identity, LocalStorage(), system_ambient())
    if not given.get("path") or not given.get("catalog"):
        raise InvalidRequest(
            "format('tablestore') needs .option('catalog', <URL or warehouse>) and the table's name as path, such as "
            ".load('database.table')",
            code="missing-option",
        )
    from tablestore.store import connect  # see above

    path, _ = split_name(given["path"])
    with connect(given["catalog"], token=given.get("token")) as store:
        return store.managed_table(path).opened
