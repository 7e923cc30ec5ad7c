"""How system tables are called. Light to import: names are split before anything else."""

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
    """The table and the system table of ``database.table$system``; None if it is a table itself.

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
    """Refuses a system table where only tables will do.

    Raises:
        Unsupported: ``system-table``.
    """
    table, system = split_name(name)
    if system is not None:
        raise Unsupported(
            f"{name} is a system table, which is only read, in batches: name {table} itself", code="system-table"
        )
