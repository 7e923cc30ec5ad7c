"""The table that a data source's options name, opened in Spark's own processes, which come and go.

`SparkStore` says where the table lies, so those processes need no catalog, which takes a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest
from filestore.storage import LocalStorage
from tablestore.handle import TableHandle
from tablestore.system.names import split_name

__all__ = ["location_options", "opened"]


def location_options(handle: TableHandle) -> dict[str, str]:
    """Options that lead to the table without its catalog."""
    return {"location": handle.location, "tableId": handle.table_id}


def opened(options: Mapping[str, str]) -> TableHandle:
    """The table that options name.

    Args:
        options: ``path`` (perhaps that of a system table) and either ``catalog`` (and ``token``), or those of
            `location_options`.

    Raises:
        InvalidRequest: ``missing-option``.
        NotFound: there is no such table.
    """
    given = {name.lower(): value for name, value in options.items()}
    if not given.get("path") or not (given.get("catalog") or given.get("location")):
        raise InvalidRequest(
            "format('tablestore') needs .option('catalog', <URL or warehouse>) and the table's name as path, such as "
            ".load('database.table')",
            code="missing-option",
        )
    path, _ = split_name(given["path"])
    if location := given.get("location"):
        database, _, name = path.partition(".")
        return TableHandle(database, name, given["tableid"], location, LocalStorage(), system_ambient())
    from tablestore.store import connect  # see above

    with connect(given["catalog"], token=given.get("token")) as store:
        return store.managed_table(path).handle
