"""Opens the table that a data source's options name, in Spark's own processes, which come and go.

`SparkStore` says which table it is and where, so those processes need no catalog, which takes a second to import.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest
from filestore.secrets import secret, secret_in
from filestore.storage.locations import storage_of
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore.system.names import split_name

__all__ = ["identity_options", "opened", "opened_by_name", "storage_options", "token_of"]


_STORAGE = "storage."
"""The prefix of a storage option's name."""


def identity_options(table: OpenedTable) -> dict[str, str]:
    """Options that lead to the table without its catalog. None of them is a secret: Spark shows them."""
    identity = table.identity
    names = {"database": identity.database, "table": identity.name, "tableId": identity.table_id}
    storage = {_STORAGE + name: value for name, value in table.storage.options().items()}
    return names | {"location": identity.location} | storage


def opened(options: Mapping[str, str]) -> OpenedTable:
    """The table that options name, to be read. Its files are opened at their first use.

    Args:
        options: ``path`` (``database.table``, or that of a system table) with ``catalog`` and perhaps ``token-file``
            and ``storage.<option>``, or those of `identity_options`.

    Raises:
        InvalidRequest: ``missing-option``.
        NotFound: the catalog has no such table.
    """
    given = {name.lower(): value for name, value in options.items()}
    if location := given.get("location"):
        identity = TableIdentity(given["database"], given["table"], given["tableid"], location)
        return OpenedTable(identity, storage_of(location, storage_options(given)), system_ambient())
    with opened_by_name(given) as table:
        return opened(identity_options(table))  # without the catalog, which closes here, and which no reader needs


@contextmanager
def opened_by_name(options: Mapping[str, str]) -> Iterator[OpenedTable]:
    """The table that options name, to be written in this block: its catalog, which may hold its commits, is open.

    Args:
        options: As for `opened`. With those of `identity_options` there is no catalog.

    Raises:
        InvalidRequest: ``missing-option``.
        NotFound: the catalog has no such table.
    """
    given = {name.lower(): value for name, value in options.items()}
    if given.get("location"):
        yield opened(given)
        return
    if not given.get("path") or not given.get("catalog"):
        raise InvalidRequest(
            "format('tablestore') needs .option('catalog', <URL or warehouse>) and the table's name as path, such as "
            ".load('database.table')",
            code="missing-option",
        )
    from tablestore.store import connect  # see above

    path, _ = split_name(given["path"])
    with connect(given["catalog"], token=token_of(given), storage_options=storage_options(given)) as store:
        yield store.table(path).opened


def token_of(options: Mapping[str, str]) -> str | None:
    """Reads the token of a catalog's service.

    The option ``token-file`` names its file. Without it, the environment's token is for the catalog that
    ``TABLESTORE_CATALOG`` names, and for no other.

    Raises:
        InvalidRequest: ``token-option``: the token itself is an option, which Spark hands to every task;
            ``bad-secret``.
    """
    given = {name.lower(): value for name, value in options.items()}
    if "token" in given:
        raise InvalidRequest(
            "a token is no option, since Spark hands options to every task: use .option('token-file', <a file that "
            "has it>), or set TABLESTORE_CATALOG and TABLESTORE_TOKEN for the driver",
            code="token-option",
        )
    if (path := given.get("token-file")) is not None:
        return secret_in(path)
    # a session could name any URL
    return secret("TABLESTORE_TOKEN") if given.get("catalog") == os.environ.get("TABLESTORE_CATALOG") else None


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options ``storage.<option>``, which say how S3 is reached, as `tablestore.connect` takes them."""
    given = {name.lower(): value for name, value in options.items()}
    return {name.removeprefix(_STORAGE): value for name, value in given.items() if name.startswith(_STORAGE)}
