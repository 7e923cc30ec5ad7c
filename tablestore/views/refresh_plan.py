"""Plans a refresh from the versions of a view and of its inputs. Pure.

Each commit of a view's table has an app version, and beside it the positions up to which the inputs were read: for each
input the id of the table and its version. So a version of the view names the versions of which it is the result, a
refresh that is repeated changes nothing, and no other state has to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from filestore.commit.proposal import AppVersion
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from tablestore.writing.apps import VIEW_APP

__all__ = ["RefreshPlan", "plan_append", "plan_refresh", "read_versions", "rebuilt", "same_columns", "same_types"]


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """The work of a refresh.

    Attributes:
        since: The versions of the inputs whose changes are added, in their order; None to compute all rows.
        until: The versions of which the view is the result afterwards.
        app: The number of the commit, with these versions as positions.
    """

    since: tuple[int, ...] | None
    until: tuple[int, ...]
    app: AppVersion


def read_versions(output: TableState, *table_ids: str) -> tuple[int, ...] | None:
    """Returns the versions of the inputs of which a version of the view is the result.

    None if there are none: the view was never refreshed, or a table was dropped and created again since.
    """
    found = [output.positions.get(table_id) for table_id in table_ids]
    known = tuple(version for version in found if version is not None)
    return known if len(known) == len(found) else None


def same_columns(before: TableDefinition, after: TableDefinition, columns: Sequence[str]) -> bool:
    """Returns whether columns are the same ones in two versions of a table, and not others that got their names.

    The difference of two versions follows a column by its id, and the query reads it by its name.
    """
    ids = [{column.name: column.id for column in table.schema.numbered()} for table in (before, after)]
    return all(ids[0].get(name) == ids[1].get(name) for name in columns)


def same_types(before: TableDefinition, after: TableDefinition, columns: Sequence[str]) -> bool:
    """Returns whether columns have the same types in two versions of a table: wider ones may have other texts."""
    types = [{column.name: column.type for column in table.schema} for table in (before, after)]
    return all(types[0].get(name) == types[1].get(name) for name in columns)


def plan_refresh(output: TableState, *inputs: TableState) -> RefreshPlan | None:
    """Plans the refresh of a view to the given versions of its inputs; returns None if it is their result already."""
    since = read_versions(output, *(table.table_id for table in inputs))
    until = tuple(table.version for table in inputs)
    if since is not None and any(before > after for before, after in zip(since, until, strict=True)):
        since = None  # the input has lost versions, as by a restored backup
    return None if since == until else RefreshPlan(since, until, _next(output, inputs))


def rebuilt(output: TableState, *inputs: TableState) -> RefreshPlan:
    """Plans a refresh that computes all rows of a view again, whatever it has read."""
    return RefreshPlan(None, tuple(table.version for table in inputs), _next(output, inputs))


def plan_append(output: TableState, events: TableState, other: TableState) -> RefreshPlan | None:
    """Plans the refresh of a view to which the rows are added that were inserted into a table of events.

    A change of the other table alone is nothing to do.

    Args:
        output: The version of the view.
        events: The newest version of the table of events.
        other: That of the table in which events are looked up.

    Returns:
        The plan; `RefreshPlan.since` has the version of the table of events alone, and is None for the first refresh.

    Raises:
        InvalidRequest: ``events-replaced``: the table of events was created again, or has lost versions.
    """
    first = VIEW_APP not in output.app_versions
    since = output.positions.get(events.table_id)
    if not first and (since is None or since > events.version):
        what = "was created again" if since is None else f"has lost versions after {events.version}"
        raise InvalidRequest(
            f"the table of events {what} since the view was refreshed, so which events it lacks is not known: rebuild "
            "it, which joins all events again, or drop it",
            code="events-replaced",
        )
    if since == events.version:
        return None
    until = events.version, other.version
    return RefreshPlan(None if first or since is None else (since,), until, _next(output, (events, other)))


def _next(output: TableState, inputs: Sequence[TableState]) -> AppVersion:
    """Returns the number of the next commit of the view, with the versions of its inputs."""
    positions = {table.table_id: table.version for table in inputs}
    return AppVersion(VIEW_APP, output.app_versions.get(VIEW_APP, -1) + 1, tuple(sorted(positions.items())))
