"""The names of system tables. The module imports quickly, since names are split before anything else."""

from __future__ import annotations

from filestore.errors import NotFound, Unsupported

__all__ = ["SYSTEM_TABLES", "refuse_system", "split_name"]

SYSTEM_TABLES = (
    "snapshots",
    "schemas",
    "options",
    "tags",
    "partitions",
    "buckets",
    "files",
    "audit_log",
    "changes",
)


def split_name(name: str) -> tuple[str, str | None]:
    """Splits ``database.table$system`` into the table and the system table; None for a name without ``$``.

    Raises:
        NotFound: ``no-system-table``.
    """
    table, dollar, system = name.partition("$")
    if not dollar:
        return name, None
    if system not in SYSTEM_TABLES:
        raise NotFound(
            f"there is no system table {system!r}; there are {', '.join(SYSTEM_TABLES)}", code="no-system-table"
        )
    return table, system


def refuse_system(name: str) -> None:
    """Refuses a system table where only ordinary tables are possible.

    Raises:
        Unsupported: ``system-table``.
    """
    table, system = split_name(name)
    if system is not None:
        raise Unsupported(
            f"{name} is a system table, which can only be read, in batches: use {table}", code="system-table"
        )
