"""Handles readers whose next changes are gone, from the log or with an expired version: ``on-log-gap``.

With ``rescan`` it continues from the newest version. If the version that it has read still exists, it gets exactly the
difference between the two. If not, the removed rows are not known any more: a mark says that all earlier rows are
invalid, and then all rows follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Literal, TypeAlias

import pyarrow as pa

from filestore.delta.state import TableState
from filestore.delta.vectors import stored_paths
from filestore.errors import InvalidRequest, NotFound, TableStoreError
from filestore.table import FileStore
from filestore.unreadable import is_unreadable
from log.table.store import LOG_GAP

__all__ = ["OnGap", "OnLogGap", "is_gap", "on_log_gap", "reading_replaced", "truncates", "truncation"]

_CODES = frozenset({LOG_GAP, "snapshot-expired"})
_CONTROL = b"tablestore.control"
_TRUNCATE = b"truncate"


class OnLogGap(StrEnum):
    """The ways in which a reader can handle changes that are gone."""

    FAIL = "fail"
    RESCAN = "rescan"


OnGap: TypeAlias = Literal["fail", "rescan"]
"""The choices as users write them."""


def on_log_gap(text: str) -> OnLogGap:
    """Parses the name of a choice; raises `InvalidRequest` (``bad-on-log-gap``)."""
    try:
        return OnLogGap(text)
    except ValueError as error:
        names = " or ".join(repr(str(choice)) for choice in OnLogGap)
        raise InvalidRequest(f"on_log_gap={text!r} is not known: use {names}", code="bad-on-log-gap") from error


def is_gap(error: NotFound) -> bool:
    """Returns whether changes are gone, and not the table or its log as a whole."""
    return error.code in _CODES


@contextmanager
def reading_replaced(filestore: FileStore, version: int) -> Iterator[None]:
    """Surrounds the reading of files for a version's changes: if one is damaged or missing, the changes are gone.

    The rows that a version removes are in files of the version before, which were perhaps replaced because of that. A
    file that the newest version has, too, is no gap: it has to be restored or replaced.
    """
    try:
        yield
    except TableStoreError as error:
        if not is_unreadable(error) or _is_named(error, filestore.state()):
            raise
        raise NotFound(
            f"the changes of version {version} cannot be read from its files ({error.message}): read the table again "
            "with scan='full', or go on with on_log_gap='rescan'",
            code=LOG_GAP,
        ) from error


def _is_named(error: TableStoreError, state: TableState) -> bool:
    """Returns whether the file that an error names is one of a version."""
    runs = (run.path for run in state.pending)
    return any(path in error.message for path in (*stored_paths(state.files), *runs))


def truncation(schema: pa.Schema) -> pa.RecordBatch:
    """Makes the mark: a batch without rows, whose schema has the metadata ``tablestore.control = truncate``."""
    return pa.RecordBatch.from_pylist([], schema=schema.with_metadata({_CONTROL: _TRUNCATE}))


def truncates(batch: pa.RecordBatch) -> bool:
    """Returns whether a batch is the mark that all earlier rows are invalid: all rows of the table follow."""
    return (batch.schema.metadata or {}).get(_CONTROL) == _TRUNCATE
