"""Default options of the tables that a store creates, from a session's settings (FLIP-188)."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.errors import InvalidRequest
from filestore.model.stray_options import without_effect
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


def with_defaults(defaults: Mapping[str, str], given: Mapping[str, str], *, keyed: bool) -> dict[str, str]:
    """Returns the options of a new table. Defaults that would have no effect in it are left out.

    A connector's table has no defaults, and options of views are for views only.

    Args:
        defaults: The defaults.
        given: The options that the user gives.
        keyed: Whether the table has a primary key.
    """
    if CONNECTOR in given:
        return dict(given)
    is_view = "view.query" in given
    found = {name: value for name, value in defaults.items() if is_view or not name.startswith("view.")} | dict(given)
    idle = without_effect(found, keyed=keyed).keys() - given.keys()
    return {name: value for name, value in found.items() if name not in idle}
