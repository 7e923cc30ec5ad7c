"""What readers and new tables are given where nobody says it: ``log.scan``, and a session's ``table-storage.*``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from filestore.errors import InvalidRequest
from filestore.model.table_options import TableOptions

__all__ = ["PREFIX", "starting_point", "table_defaults"]

PREFIX = "table-storage."
"""Before an option's name in a session's settings (FLIP-188)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Options for tables that are made, from a session's settings.

    Args:
        settings: ``table-storage.<option>`` and its value.

    Raises:
        InvalidRequest: ``bad-default``: a name without the prefix; or those of `TableOptions.parse`.
    """
    if strange := [name for name in settings if not name.startswith(PREFIX)]:
        raise InvalidRequest(
            f"setting {strange[0]!r} is no default for tables: write {PREFIX + strange[0]!r}", code="bad-default"
        )
    return TableOptions.parse({n.removeprefix(PREFIX): value for n, value in settings.items()}).as_dict()


def starting_point(scan: str | None, timestamp: datetime | None, options: TableOptions) -> tuple[str, datetime | None]:
    """Where a reader of changes begins: as it asked, else as the table's ``log.scan`` says.

    Args:
        scan: What it asked for, if anything.
        timestamp: With it; alone it means ``from-timestamp``.
        options: The table's.
    """
    if scan is not None:
        return scan, timestamp
    if timestamp is not None:
        return "from-timestamp", timestamp
    at = options["log.scan.timestamp-millis"]
    return options["log.scan"], None if at is None else _EPOCH + timedelta(milliseconds=at)
