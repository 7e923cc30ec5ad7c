"""The rule for names of databases and tables.

A name becomes a folder, a part of a Kafka topic and an unquoted SQL identifier, so only what all three allow is
allowed: an ASCII letter, then ASCII letters, digits and underscores. Names are stored in lower case, as in Spark's own
catalog, so that ``Shop.Orders`` in SQL finds ``shop.orders`` and two names never share a folder on a file system that
ignores case. Kafka takes 249 characters for ``<database>.<table>.<uuid>``, which leaves 105 for each.

A hidden name contains a hyphen, so no user's table can have it: a table has one before it is published, and after
another table has replaced it (`catalog_service.tables.lifecycle`). A folder has such a name if the table that was
created with the plain one has been renamed.
"""

from __future__ import annotations

import re

from filestore.errors import InvalidRequest

__all__ = ["NAME_LENGTH_MAX", "NAME_RULE", "fold_name", "fold_table", "hidden_name", "shown_name"]

NAME_LENGTH_MAX = 100
NAME_RULE = (
    "a name begins with a letter a-z, continues with letters, digits and underscores, "
    f"and has at most {NAME_LENGTH_MAX} characters; case does not matter"
)
# A-Z is spelled out since IGNORECASE would accept the Kelvin sign as a k.
_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{NAME_LENGTH_MAX - 1}}}")
_ID_PART = 8
_HIDDEN = re.compile(rf"[a-z][a-z0-9_]*-[0-9a-f]{{{_ID_PART}}}")


def fold_name(kind: str, name: str) -> str:
    """Checks a name and returns it as it is stored: in lower case.

    Args:
        kind: ``database`` or ``table``, for the message.
        name: As the user wrote it.

    Raises:
        InvalidRequest: ``bad-name``.
    """
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= NAME_LENGTH_MAX else name[:40] + "…"
        raise InvalidRequest(f"{kind} name {shown!r} is not allowed: {NAME_RULE}", code="bad-name")
    return name.lower()


def fold_table(name: str) -> str:
    """Checks the name of a table, as `fold_name`; hidden names are allowed, for whoever stages a table knows it."""
    return name if len(name) <= NAME_LENGTH_MAX and _HIDDEN.fullmatch(name) else fold_name("table", name)


def hidden_name(name: str, table_id: str) -> str:
    """Returns a name that no user can give to a table: the beginning of `name`, and of the table's UUID."""
    return f"{name[: NAME_LENGTH_MAX - _ID_PART - 1]}-{table_id[:_ID_PART]}"


def shown_name(folder: str) -> str:
    """Returns the name that a user can give to a table in a folder: that of the folder, without what hides it."""
    return folder.partition("-")[0]
