"""The files with the rows that commits have inserted into a table of events, in which rows are only added. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from filestore.delta.actions import data_file
from filestore.delta.log import Commit
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation

__all__ = ["added_files", "inserted_files", "noting_definitions", "stored_alike"]


def inserted_files(commits: Iterable[Commit], partition_by: Sequence[str], *, keep_removed: bool) -> list[DataFile]:
    """Returns the files that commits have added, but for those that only move rows, as compactions do.

    Args:
        commits: Commits of a table without a primary key, in their order.
        partition_by: Its partition columns.
        keep_removed: Whether events may be removed, as partitions that expire are. What was inserted by one of the
            commits and removed by a later one counts as inserted.

    Raises:
        InvalidRequest: ``events-removed``, ``events-changed``: a commit that does not only insert.
    """
    files: list[DataFile] = []
    for commit in commits:
        operation = commit.snapshot().operation
        if not operation.changes_data:
            continue
        added = added_files(commit, partition_by)
        removes = any("remove" in action for action in commit.actions)
        if added and (removes or operation is Operation.ROLLBACK):
            raise InvalidRequest(
                f"version {commit.version} of the table of events is a {operation} that replaces rows, so which of its "
                "rows are new events is not known: rebuild the view, which joins all events again, or drop it",
                code="events-changed",
            )
        if removes and not keep_removed:
            raise InvalidRequest(
                f"version {commit.version} of the table of events is a {operation} that removes events: set "
                "view.removed-events = keep to leave in the view what it has of them, or rebuild it, which joins the "
                "events again that are left",
                code="events-removed",
            )
        files += added
    return files


def added_files(commit: Commit, partition_by: Sequence[str]) -> list[DataFile]:
    """Returns the files that a commit has added."""
    return [data_file(action["add"], partition_by) for action in commit.actions if "add" in action]


def noting_definitions(commits: Iterable[Commit], found: list[TableDefinition]) -> Iterator[Commit]:
    """Yields the commits, and appends the definition of each that has one."""
    for commit in commits:
        found += [TableDefinition.from_delta(action["metaData"]) for action in commit.actions if "metaData" in action]
        yield commit


def stored_alike(definitions: Iterable[TableDefinition], after: TableDefinition, columns: Sequence[str]) -> bool:
    """Returns whether columns of a table have one name in the files of all its definitions.

    A column that was renamed and got its name back has its values under the other name in the files that were added
    meanwhile. The table has other files in their place since, but these are the ones with the inserted rows.

    Args:
        definitions: The definitions by which files were written.
        after: The one by which they are read.
        columns: The columns, by the names that they have in `after`.
    """
    wanted = {column.id: column.in_files for column in after.schema.numbered() if column.name in columns}
    for definition in definitions:
        found = {column.id: column.in_files for column in definition.schema.numbered()}
        if any(found.get(number) != name for number, name in wanted.items()):
            return False
    return True
