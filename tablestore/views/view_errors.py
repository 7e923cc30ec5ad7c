"""Errors about the tables that a view reads, with the view's name: who refreshes many has to know which one failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from filestore.errors import NotFound, TableStoreError
from tablestore.table import Table

__all__ = ["errors_of_view"]

_GONE = ("table-replaced", "no-table")


@contextmanager
def errors_of_view(view: Table, inputs: Sequence[Table]) -> Iterator[None]:
    """Makes errors name the view, with their class and code, and the tables that are not there any more.

    Args:
        view: The view's table.
        inputs: The tables that it reads.
    """
    name = view.identifier
    try:
        yield
    except TableStoreError as error:
        gone = dict.fromkeys(table.identifier for table in (view, *inputs) if error.code in _GONE and _is_gone(table))
        if gone:
            raise NotFound(
                f"{' and '.join(gone)} was dropped, or dropped and created again, since the view {name} was opened: "
                "open the view again",
                code=error.code,
            ) from error
        if name in error.message:
            raise
        raise error.about(f"the view {name}") from error


def _is_gone(table: Table) -> bool:
    try:
        table.filestore.state()
    except NotFound as error:
        return error.code in _GONE
    except TableStoreError:
        return False
    return False
