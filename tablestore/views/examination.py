"""The findings about a maintained view, for the doctor (FORMAT.md section 12.8) and for EXPLAIN. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from filestore.checks.report import Finding, Invariant
from filestore.errors import TableStoreError

__all__ = ["cannot_be_refreshed", "different_rows", "lacking_events", "other_results", "unchecked"]


def different_rows(different: int, results: int, stored: int, read: Sequence[int]) -> Finding:
    """Returns the finding that stored rows are not the result of the query."""
    versions = " and ".join(map(str, read))
    return Finding(
        Invariant.VIEW_RESULT,
        f"for version{'s' if len(read) > 1 else ''} {versions} of its tables the query has {results} rows, "
        f"{stored} are stored, and {different} differ. Create the view again, and report this",
    )


def lacking_events(events: int, stored: int, version: int) -> Finding:
    """Returns the finding that a view does not have the events of a table, each once."""
    return Finding(
        Invariant.VIEW_RESULT,
        f"version {version} of its table of events has {events} rows, and the view has {stored} with other values or "
        "another number. Rebuild the view, and report this",
    )


def other_results(version: int, results: int, stored: int, read: Sequence[int]) -> Finding:
    """Returns the finding that a refresh has not added the results of the events that it has read."""
    versions = " and ".join(map(str, read))
    return Finding(
        Invariant.VIEW_RESULT,
        f"the refresh to version {version} has read versions {versions} of its tables, by which the query adds "
        f"{results} rows; it has added {stored} that are others. Rebuild the view, and report this",
    )


def cannot_be_refreshed(view: str, error: TableStoreError) -> tuple[str, ...]:
    """Returns the line that stands for how a view is refreshed, if its tables do not fit it any more."""
    return (f"{view} cannot be refreshed: {error.message}",)


def unchecked(reason: str) -> Finding:
    """Returns the note that the rows of a view could not be compared."""
    return Finding(Invariant.VIEW_UNCHECKED, f"the rows of the view were not compared with its query: {reason}")
