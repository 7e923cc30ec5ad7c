"""Default options of the tables that a store creates, from a session's settings (FLIP-188)."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.errors import InvalidRequest
from filestore.model.table_options import TableOptions
from log.connector.options import CONNECTOR

__all__ = ["PREFIX", "table_defaults", "with_defaults"]

PREFIX = "table-storage."
"""The prefix of an option's name in a session's settings (FLIP-188)."""


def table_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the default options of new tables from a session's settings.

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


def with_defaults(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a new table: a connector's has no defaults, and options of views are for views only."""
    if CONNECTOR in given:
        return dict(given)
    is_view = "view.query" in given
    return {name: value for name, value in defaults.items() if is_view or not name.startswith("view.")} | dict(given)
